package billing_test

import (
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/metering"
)

func decimal(t require.TestingT, literal string) metering.Decimal {
	d, err := metering.ParseDecimal(literal)
	require.NoError(t, err, literal)
	return d
}

func location(t require.TestingT, name string) *time.Location {
	l, err := metering.LoadLocation(name)
	require.NoError(t, err)
	return l
}

func instant(t require.TestingT, text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at.UTC()
}

func span(t require.TestingT, start, end string) metering.Range {
	return metering.Range{Start: instant(t, start), End: instant(t, end)}
}

// timezones includes UTC, zones with fractional offsets, zones that change clocks at midnight, and zones on both sides
// of the date line.
var timezones = []string{
	"UTC", "Asia/Kathmandu", "America/New_York", "Europe/Zurich", "Australia/Lord_Howe", "America/St_Johns", "America/Santiago",
	"America/Asuncion", "America/Havana", "Africa/Cairo", "Asia/Beirut", "Asia/Amman", "Atlantic/Azores", "Pacific/Chatham",
	"Pacific/Apia", "Pacific/Kiritimati", "Etc/GMT+12",
}

func anyTimezone(t *rapid.T) *time.Location {
	return location(t, rapid.SampledFrom(timezones).Draw(t, "timezone"))
}

func anyInstant(t *rapid.T, timezone *time.Location) time.Time {
	first, last := time.Date(1965, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2045, 1, 1, 0, 0, 0, 0, time.UTC)
	at := time.UnixMicro(rapid.Int64Range(first.UnixMicro(), last.UnixMicro()).Draw(t, "instant")).UTC()
	if _, change := at.In(timezone).ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "near a change of clocks") {
		at = change.Add(time.Duration(rapid.IntRange(-26*3600, 26*3600).Draw(t, "seconds away")) * time.Second).UTC()
	}
	return at
}
