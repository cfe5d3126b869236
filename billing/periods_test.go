package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

const grace = 72 * time.Hour

func TestFirstPeriod(t *testing.T) {
	november := span(t, "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
	october := span(t, "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z")
	for _, c := range []struct {
		name, timezone, created, early, came, starts string
		want                                         metering.Range
	}{
		{"TheMonthOfTheCustomer", "UTC", "2026-11-02T00:00:00Z", "", "", "", november},
		{"AnEarlierEventWithinTheMonthChangesNothing", "UTC", "2026-11-20T00:00:00Z", "2026-11-01T00:00:00Z", "2026-11-20T00:00:00Z", "", november},
		{"AnEventBeforeTheMonthWithItsGraceRunning", "UTC", "2026-11-02T23:59:59Z", "2026-10-31T23:59:59Z", "2026-11-03T23:59:59Z", "", october},
		{"AnEventBeforeTheMonthAfterItsGrace", "UTC", "2026-11-02T00:00:00Z", "2026-10-31T23:59:59Z", "2026-11-04T00:00:00Z", "", november},
		{"AnEventMonthsBefore", "UTC", "2026-11-02T00:00:00Z", "2026-09-15T00:00:00Z", "2026-11-02T00:00:00Z", "", november},
		{"WhatAnOperatorSaid", "UTC", "2026-11-02T00:00:00Z", "2026-10-31T00:00:00Z", "2026-11-02T00:00:00Z", "2026-06-15T08:00:00Z", span(t, "2026-06-15T08:00:00Z", "2026-07-01T00:00:00Z")},
		{"TheMonthIsTheZones", "Asia/Kathmandu", "2026-10-31T18:15:00Z", "", "", "", span(t, "2026-10-31T18:15:00Z", "2026-11-30T18:15:00Z")},
		{"TheGraceRunsFromTheZonesMonth", "Asia/Kathmandu", "2026-11-01T00:00:00Z", "2026-10-31T18:14:59Z", "2026-11-03T18:14:59Z", "", span(t, "2026-09-30T18:15:00Z", "2026-10-31T18:15:00Z")},
		{"AMonthThatBeginsWithASkippedMidnight", "America/Asuncion", "2023-10-01T04:00:00Z", "", "", "", span(t, "2023-10-01T04:00:00Z", "2023-11-01T03:00:00Z")},
	} {
		t.Run(c.name, func(t *testing.T) {
			customer := billing.Customer{CreatedAt: instant(t, c.created)}
			if c.early != "" {
				customer.EarlyEvents = []billing.EarlyEvents{{At: instant(t, c.early), IngestedAt: instant(t, c.came)}}
			}
			if c.starts != "" {
				starts := instant(t, c.starts)
				customer.BillingStartsAt = &starts
			}
			require.Equal(t, c.want, billing.FirstPeriod(customer, grace, location(t, c.timezone)))
		})
	}
}

func TestExtendPeriods(t *testing.T) {
	t.Run("EachBeginsWhereTheFormerEnded", func(t *testing.T) {
		first := span(t, "2026-09-15T08:00:00Z", "2026-10-01T00:00:00Z")
		require.Equal(t, []metering.Range{
			first, span(t, "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"), span(t, "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"),
		}, billing.ExtendPeriods(first, instant(t, "2026-11-01T00:00:00Z"), time.UTC))
		require.Equal(t, []metering.Range{first}, billing.ExtendPeriods(first, first.Start, time.UTC))
		require.Empty(t, billing.ExtendPeriods(first, first.Start.Add(-time.Microsecond), time.UTC))
	})

	t.Run("ItCoversTheTimeUpToNowWithoutAGap", rapid.MakeCheck(func(t *rapid.T) {
		timezone := anyTimezone(t)
		created := anyInstant(t, timezone)
		now := created.Add(time.Duration(rapid.Int64Range(0, int64(3*366*24*time.Hour)).Draw(t, "later")))
		periods := billing.ExtendPeriods(billing.FirstPeriod(billing.Customer{CreatedAt: created}, grace, timezone), now, timezone)
		require.NotEmpty(t, periods)
		require.False(t, periods[0].Start.After(created))
		for i, period := range periods {
			require.Equal(t, metering.WindowOf(period.Start, metering.Month, timezone), period)
			if i > 0 {
				require.Equal(t, periods[i-1].End, period.Start)
			}
		}
		require.True(t, periods[len(periods)-1].Contains(now))
	}))
}

func TestPeriodExistsFromItsFirstInstant(t *testing.T) {
	t.Parallel()
	for now, n := range map[time.Time]int{february.Start.Add(-time.Microsecond): 1, february.Start: 2} {
		require.Len(t, billing.Periods(knownOf(now, billing.Period{Range: january})), n, now)
	}
}

// A page of statements ends with a PeriodPlace, and the next page has the periods before it. Periods with the same
// start are ordered by billing schedule.
func TestPeriodPlacesAreOrderedByStartAndSchedule(t *testing.T) {
	t.Parallel()
	at := billing.Period{Range: february, Stream: 1}.Place()
	for _, c := range []struct {
		period billing.Period
		before bool
	}{
		{billing.Period{Range: january, Stream: 2}, true},
		{billing.Period{Range: february}, true},
		{billing.Period{Range: february, Stream: 1}, false},
		{billing.Period{Range: february, Stream: 2}, false},
		{billing.Period{Range: march}, false},
	} {
		require.Equal(t, c.before, c.period.Place().Before(at), "%s, stream %d", c.period.Start, c.period.Stream)
	}
}

func TestPeriodDeadlineIsEndPlusGrace(t *testing.T) {
	p := billing.Period{Range: span(t, "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z")}
	require.Equal(t, instant(t, "2026-11-04T00:00:00Z"), p.Deadline(grace))
}

func TestPeriodAfterSubscriptionIsOneMonth(t *testing.T) {
	t.Parallel()
	noon := func(month time.Month, day int) time.Time { return time.Date(2026, month, day, 12, 0, 0, 0, time.UTC) }
	end := noon(time.January, 31)
	for now, want := range map[time.Time]metering.Range{
		end:                     {Start: end, End: noon(time.February, 28)},
		noon(time.February, 28): {Start: noon(time.February, 28), End: noon(time.March, 31)},
		noon(time.April, 29):    {Start: noon(time.March, 31), End: noon(time.April, 30)},
		noon(time.December, 31): {Start: noon(time.December, 31), End: noon(time.December+1, 31)},
	} {
		got := billing.AfterSubscription(end, now)
		require.Equal(t, want, got)
		require.True(t, got.Contains(now))
	}
}

// An ended period that has no recorded provider price records the price that is read later, unless the period is
// closed or in another subscription. The recorded price stays if the customer changes to another subscription.
func TestPeriodWithoutProviderPriceRecordsPriceReadLater(t *testing.T) {
	t.Parallel()
	then, now := &tariff{"price_then", "USD", tariffOf(1, 1, 0)}, &tariff{"price_now", "USD", tariffOf(1, 1, 1)}
	prices := func(p billing.ProviderPrice) map[metering.MeterID]billing.ProviderPrice {
		return map[metering.MeterID]billing.ProviderPrice{1: p}
	}
	for name, c := range map[string]struct {
		change func(p *billing.Period)
		side   billing.ProviderPrice
		want   map[metering.MeterID]billing.ProviderPrice
	}{
		"ItHadNone":            {func(*billing.Period) {}, now, prices(now)},
		"ItHadOne":             {func(p *billing.Period) { p.Subscription.Prices = prices(then) }, now, prices(then)},
		"NothingIsSaid":        {func(p *billing.Period) { p.Subscription.Prices = prices(then) }, nil, prices(then)},
		"ThereIsNone":          {func(*billing.Period) {}, nil, nil},
		"OfAnotherOne":         {func(p *billing.Period) { p.Subscription.ID = "sub_0" }, now, nil},
		"ItIsClosed":           {func(p *billing.Period) { p.ClosedAt = &p.End }, now, nil},
		"ThePresentOnesAreNew": {func(p *billing.Period) { p.Range = february; p.Subscription.Prices = prices(then) }, now, prices(now)},
	} {
		period := subscribed(january)
		c.change(&period)
		f := atMeters(february, knownOf(february.Start.Add(time.Hour), period))
		f.Side.Destinations[0].Price = c.side
		require.Equal(t, c.want, billing.ExpectedPeriods(f)[0].Subscription.Prices, name)
		current := billing.ExpectedPeriods(f)
		require.Equal(t, first, current[len(current)-1].Subscription.Connection, name)
	}
}
