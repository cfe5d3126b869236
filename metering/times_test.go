package metering_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

func TestParseTime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-01-31T09:30:00Z":                                  "2026-01-31T09:30:00Z",
		"2026-01-31t09:30:00z":                                  "2026-01-31T09:30:00Z",
		"2026-01-31T09:30:00.5Z":                                "2026-01-31T09:30:00.5Z",
		"2026-01-31T09:30:00.123456789Z":                        "2026-01-31T09:30:00.123456Z",
		"2026-01-31T09:30:00.9999999Z":                          "2026-01-31T09:30:00.999999Z",
		"2026-01-31T09:30:00." + strings.Repeat("9", 100) + "Z": "2026-01-31T09:30:00.999999Z",
		"2026-01-31T09:30:00+05:45":                             "2026-01-31T03:45:00Z",
		"2026-01-31T09:30:00-08:00":                             "2026-01-31T17:30:00Z",
		"2026-01-31T09:30:00+23:59":                             "2026-01-30T09:31:00Z",
		"2026-01-31T09:30:00-00:00":                             "2026-01-31T09:30:00Z",
		"2028-02-29T23:59:59.999999+00:00":                      "2028-02-29T23:59:59.999999Z",
		"1969-12-31T23:59:59.9999999Z":                          "1969-12-31T23:59:59.999999Z",
		"0001-01-01T00:00:00Z":                                  "0001-01-01T00:00:00Z",
		"0000-12-31T23:00:00-01:00":                             "0001-01-01T00:00:00Z",
		"9999-12-31T23:59:59.999999999+00:00":                   "9999-12-31T23:59:59.999999Z",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			at, err := metering.ParseTime(text)
			require.NoError(t, err)
			require.Equal(t, want, at.Format(time.RFC3339Nano))
			require.Equal(t, time.UTC, at.Location())
		})
	}

	const form, leap, year = "must be RFC 3339 with seconds and an offset, such as 2026-11-01T00:00:00Z",
		"must not be a leap second: send 23:59:59 or the 00:00:00 after it", "must be in the years 1 to 9999 in UTC"
	for text, want := range map[string]string{
		"": form, "now": form, "2026": form, "2026-01": form, "2026-11-01": form, "1769851800": form,
		"2026-01-31T09:30Z": form, "2026-01-31T09:30-08:00": form, "2026-01-31T09:30:00": form, "2026-01-31 09:30:00Z": form,
		"2026-02-29T00:00:00Z": form, "2026-13-01T00:00:00Z": form, "2026-00-01T00:00:00Z": form, "2026-01-31T24:00:00Z": form,
		"2026-01-31T25:00:00Z": form, "2026-01-31T09:60:00Z": form, "2026-01-31T09:30:61Z": form,
		"2026-01-31T1:00:00Z": form, "2026-01-31T09:30:00,5Z": form, "2026-01-31T09:30:00.Z": form, "2026-01-31T09:30:00.5": form,
		"2026-01-31T09:30:00+24:00": form, "2026-01-31T09:30:00-24:00": form, "2026-01-31T09:30:00+02:60": form,
		"2026-01-31T09:30:00+0200": form, "2026-01-31T09:30:00+02": form, "2026-01-31T09:30:00 02:00": form, "2026-01-31T09:30:00Z+02:00": form,
		" 2026-01-31T09:30:00Z": form, "2026-01-31T09:30:00Z ": form, "2026-01-31T09:30:00 CET": form, "-2026-01-31T09:30:00Z": form,
		"+02026-01-31T09:30:00Z": form, "２026-01-31T09:30:00Z": form, "2026-01-31T09:30:00Z\x00": form,
		"2026-01-31T09:30:00Z" + strings.Repeat("0", 1<<20): form,
		"2016-12-31T23:59:60Z":                              leap, "2017-01-01T01:59:60.5+02:00": leap,
		"9999-12-31T23:59:59-01:00": year, "0001-01-01T00:00:00+00:01": year, "0000-01-01T00:00:00Z": year,
	} {
		t.Run("refuses "+text[:min(len(text), 30)], func(t *testing.T) {
			t.Parallel()
			_, err := metering.ParseTime(text)
			require.EqualError(t, err, want)
		})
	}
}

// FuzzParseTime checks that an accepted instant can be formatted and parsed again, and that time.Parse
// returns the same instant.
func FuzzParseTime(f *testing.F) {
	for _, seed := range []string{
		"2026-01-31T09:30:00Z", "2026-01-31t09:30:00.123456789z", "2026-01-31", "2026-01-31T09:30+05:45", "2026-01-31T09:30:00,5Z",
		"0000-01-01T00:00:00-00:01", "2026-01-31T09:30:00+24:59", "2016-12-31T23:59:60Z", "2026-01-31T9:30:00Z",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, err := metering.ParseTime(text)
		if err != nil {
			return
		}
		require.Equal(t, at, metering.Instant(at), "not in UTC, or finer than a microsecond")
		require.Regexp(t, `^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`, text)
		same, err := time.Parse(time.RFC3339Nano, strings.ToUpper(text))
		require.NoError(t, err)
		require.Equal(t, metering.Instant(same), at)
		again, err := metering.ParseTime(at.Format(time.RFC3339Nano))
		require.NoError(t, err)
		require.True(t, at.Equal(again))
	})
}

func TestOnlyIANATimezonesAreAccepted(t *testing.T) {
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

// monthStarts returns the first instants of the local months between two instants. It checks every minute.
// If clocks go back into the previous month, that month does not begin again.
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

func TestPropertyMonthsFollowLocalClocksOfAllTimezones(t *testing.T) {
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

func TestClockOffsetMayBeAtMostOneMinute(t *testing.T) {
	t.Parallel()
	for offset, right := range map[time.Duration]bool{
		0: true, time.Minute: true, -time.Minute: true, time.Minute + 1: false, -time.Minute - 1: false, 40 * 24 * time.Hour: false,
	} {
		err := metering.ClockOffset(func() (time.Duration, bool) { return offset, true }).Check(metering.ClockLimit)
		require.Equal(t, right, err == nil, "%s: %v", offset, err)
	}
	unknown := metering.ClockOffset(func() (time.Duration, bool) { return 0, false })
	require.Equal(t, metering.CodeUnavailable, metering.CodeOf(unknown.Check(metering.ClockLimit)))
	require.NoError(t, metering.ClockOffset(nil).Check(metering.ClockLimit))
}
