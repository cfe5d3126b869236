package metering_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/metering"
)

const grace = 72 * time.Hour

func TestFirstPeriod(t *testing.T) {
	november := span(t, "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
	october := span(t, "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z")
	for _, c := range []struct {
		name, zone, created, earliest, starts string
		want                                  metering.Range
	}{
		{"TheMonthOfTheCustomer", "UTC", "2026-11-02T00:00:00Z", "", "", november},
		{"AnEarlierEventWithinTheMonthChangesNothing", "UTC", "2026-11-20T00:00:00Z", "2026-11-01T00:00:00Z", "", november},
		{"AnEventBeforeTheMonthWithItsGraceRunning", "UTC", "2026-11-03T23:59:59Z", "2026-10-31T23:59:59Z", "", october},
		{"AnEventBeforeTheMonthAfterItsGrace", "UTC", "2026-11-04T00:00:00Z", "2026-10-31T23:59:59Z", "", november},
		{"AnEventMonthsBefore", "UTC", "2026-11-02T00:00:00Z", "2026-09-15T00:00:00Z", "", november},
		{"AnEventAheadOfTheCustomer", "UTC", "2026-11-30T23:59:59Z", "2026-12-01T00:00:00Z", "", november},
		{"WhatAnOperatorSaid", "UTC", "2026-11-02T00:00:00Z", "2026-10-31T00:00:00Z", "2026-06-15T08:00:00Z", span(t, "2026-06-15T08:00:00Z", "2026-07-01T00:00:00Z")},
		{"TheMonthIsTheZones", "Asia/Kathmandu", "2026-10-31T18:15:00Z", "", "", span(t, "2026-10-31T18:15:00Z", "2026-11-30T18:15:00Z")},
		{"TheGraceRunsFromTheZonesMonth", "Asia/Kathmandu", "2026-11-03T18:14:59Z", "2026-10-31T18:14:59Z", "", span(t, "2026-09-30T18:15:00Z", "2026-10-31T18:15:00Z")},
		{"AMonthThatBeginsWithASkippedMidnight", "America/Asuncion", "2023-10-01T04:00:00Z", "", "", span(t, "2023-10-01T04:00:00Z", "2023-11-01T03:00:00Z")},
	} {
		t.Run(c.name, func(t *testing.T) {
			optional := func(text string) *time.Time {
				if text == "" {
					return nil
				}
				at := instant(t, text)
				return &at
			}
			require.Equal(t, c.want, metering.FirstPeriod(instant(t, c.created), optional(c.earliest), optional(c.starts), grace, zone(t, c.zone)))
		})
	}
}

func TestExtendChain(t *testing.T) {
	t.Run("EachBeginsWhereTheFormerEnded", func(t *testing.T) {
		first := span(t, "2026-09-15T08:00:00Z", "2026-10-01T00:00:00Z")
		require.Equal(t, []metering.Range{
			first, span(t, "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"), span(t, "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"),
		}, metering.ExtendChain(first, instant(t, "2026-11-01T00:00:00Z"), time.UTC))
		require.Equal(t, []metering.Range{first}, metering.ExtendChain(first, first.Start, time.UTC))
		require.Empty(t, metering.ExtendChain(first, first.Start.Add(-time.Microsecond), time.UTC))
	})

	t.Run("ItCoversTheTimeUpToNowWithoutAGap", rapid.MakeCheck(func(t *rapid.T) {
		zone := anyZone(t)
		created := anyInstant(t, zone)
		now := created.Add(time.Duration(rapid.Int64Range(0, int64(3*366*24*time.Hour)).Draw(t, "later")))
		chain := metering.ExtendChain(metering.FirstPeriod(created, nil, nil, grace, zone), now, zone)
		require.NotEmpty(t, chain)
		require.False(t, chain[0].Start.After(created))
		for i, period := range chain {
			require.Equal(t, metering.WindowOf(period.Start, metering.Month, zone), period)
			if i > 0 {
				require.Equal(t, chain[i-1].End, period.Start)
			}
		}
		require.True(t, chain[len(chain)-1].Contains(now))
	}))
}

func TestDeadline(t *testing.T) {
	p := metering.Period{Range: span(t, "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z")}
	require.Equal(t, instant(t, "2026-11-04T00:00:00Z"), p.Deadline(grace))
}

func TestCompare(t *testing.T) {
	for _, c := range []struct{ name, current, previous, delta, percent string }{
		{"Growth", "150", "100", "50", "50"},
		{"Decline", "50", "200", "-150", "-75"},
		{"NoChange", "7", "7", "0", "0"},
		{"NothingAtAll", "0", "0", "0", "0"},
		{"FromNothing", "0.000000000001", "0", "0.000000000001", "100"},
		{"ToNothing", "0", "3", "-3", "-100"},
		{"TwoDecimals", "4", "3", "1", "33.33"},
		{"RoundedUp", "5", "3", "2", "66.67"},
		{"HalfAwayFromZero", "1.00005", "1", "0.00005", "0.01"},
		{"HalfAwayFromZeroBelow", "0.99995", "1", "-0.00005", "-0.01"},
		{"LessThanHalf", "1.00004999", "1", "0.00004999", "0"},
		{"Large", "999999999999999999", "0.000000000001", "999999999999999998.999999999999", "99999999999999999899999999999900"},
		{"FromBelowZero", "5", "-5", "10", "-200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := metering.Compare(decimal(t, c.current), decimal(t, c.previous))
			require.Equal(t, []string{c.current, c.previous, c.delta, c.percent},
				[]string{got.Current.String(), got.Previous.String(), got.Delta.String(), got.PercentChange.String()})
		})
	}
}

func TestUntilTheProviderSaysOtherwiseAPeriodIsAMonth(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for now, want := range map[time.Time]metering.Range{
		end: {Start: end, End: time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)},
		time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC): {Start: time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC), End: time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)},
	} {
		got := metering.AfterSubscription(end, now)
		require.Equal(t, want, got)
		require.True(t, got.Contains(now))
	}
}
