package metering_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

func TestZonesAreThoseOfIANA(t *testing.T) {
	t.Parallel()
	names := metering.ZoneNames()
	require.Greater(t, len(names), 550)
	for _, name := range []string{"UTC", "Europe/Zurich", "US/Eastern", "Asia/Calcutta", "Europe/Kiev", "Europe/Kyiv", "America/Ciudad_Juarez", "Etc/GMT+12"} {
		require.Contains(t, names, name)
	}
	for _, name := range names {
		location, err := metering.LoadLocation(name)
		require.NoError(t, err)
		require.Equal(t, name, location.String())
	}
	for _, name := range []string{
		"", "Local", "posixrules", "Factory", "right/UTC", "posix/UTC", "right/Europe/Zurich", "SystemV/EST5EDT",
		"Europe", "Europe/", "europe/zurich", "Europe/Zurich ", "UTC+2", "EST5EDT4", "tzdata.zi", "../etc/passwd", "/etc/localtime", "Mars/Olympus",
	} {
		_, err := metering.LoadLocation(name)
		require.Error(t, err, "%q", name)
	}
}

// monthStarts returns the first instants of the local months between two
// instants, found minute by minute. Where clocks go back into the month
// before, that month is over nevertheless.
func monthStarts(from, until time.Time, zone *time.Location) (starts []time.Time) {
	latest := 0
	for at := from.Truncate(time.Minute); at.Before(until); at = at.Add(time.Minute) {
		local := at.In(zone)
		if month := local.Year()*12 + int(local.Month()); month > latest {
			if latest > 0 {
				starts = append(starts, at)
			}
			latest = month
		}
	}
	return starts
}

func TestPropertyMonthsOfAllZonesAreThoseOfTheirClocks(t *testing.T) {
	t.Parallel()
	histories.Check(t, func(t *rapid.T) {
		zone := zone(t, rapid.SampledFrom(metering.ZoneNames()).Draw(t, "zone"))
		first, last := time.Date(1975, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2045, 1, 1, 0, 0, 0, 0, time.UTC) // since 1975 offsets are whole minutes
		at := time.UnixMicro(rapid.Int64Range(first.UnixMicro(), last.UnixMicro()).Draw(t, "instant")).UTC()
		if _, change := at.In(zone).ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "near a change of clocks") {
			at = change.UTC()
		}
		starts := monthStarts(at.AddDate(0, 0, -40), at.AddDate(0, 0, 70), zone)
		for i, start := range starts[1:] {
			month := metering.Range{Start: starts[i], End: start}
			for _, in := range []time.Time{month.Start, month.Start.Add(time.Microsecond), month.End.Add(-time.Microsecond)} {
				require.Equal(t, month, metering.WindowOf(in, metering.Month, zone), "%s", in)
			}
			require.Less(t, month.End.Sub(month.Start), 32*24*time.Hour)
		}
	})
}
