package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

func TestCurrentPeriod(t *testing.T) {
	t.Parallel()
	fortnight := metering.Range{Start: january.Start, End: january.Start.AddDate(0, 0, 14)}
	for name, c := range map[string]struct {
		now        time.Time
		subscribed bool
		starts     *time.Time
		want       metering.Range
	}{
		"TheFirstInstantOfAMonthIsItsOwn":      {now: february.Start, want: february},
		"TheLastInstantOfAMonthIsItsOwn":       {now: january.End.Add(-time.Microsecond), want: january},
		"BeforeTheFirstItIsTheCalendars":       {now: february.Start.Add(time.Hour), starts: &march.Start, want: february},
		"OfASubscription":                      {now: fortnight.End.Add(-time.Microsecond), subscribed: true, want: fortnight},
		"AfterTheSubscriptionsItIsAMonth":      {now: fortnight.End, subscribed: true, want: metering.Range{Start: fortnight.End, End: fortnight.End.AddDate(0, 1, 0)}},
		"WithoutASubscriptionItIsTheCalendars": {now: fortnight.End, want: january},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := knownOf(c.now)
			f.Customer.BillingStartsAt = c.starts
			if c.subscribed {
				f.Connection, f.Side = &billing.Connection{}, &billing.Side{Subscription: "sub_1", Period: fortnight}
			}
			require.Equal(t, c.want, billing.CurrentPeriod(f))
		})
	}
}

// A preview has a line for each meter, with the exact charge and, if the meter is not reported, the reason.
func TestAPreviewHasALineForEachMeter(t *testing.T) {
	t.Parallel()
	f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), subscribed(february)))
	f.Meters = append(f.Meters,
		metering.Meter{ID: 2, Slug: "seats", Version: metering.MeterVersion{Status: metering.Complete}},
		metering.Meter{ID: 3, Slug: "bytes", Version: metering.MeterVersion{Status: metering.Backfilling}},
		metering.Meter{ID: 4, Slug: "hours", Version: metering.MeterVersion{Status: metering.Complete}})
	f = atBasic(f)
	f.Side.Destinations = append(f.Side.Destinations, billing.Destination{MeterID: 2, Excluded: billing.NoTarget("no item")}, billing.Destination{MeterID: 3, Excluded: billing.NoTarget("no item")})
	f.Usage = []billing.Usage{used(january, "1000"), used(february, "101.1"), {Period: february.Start, MeterID: 2, Total: metering.Whole(7)}}

	f.Meters[0].UsageScale = 1
	lines := billing.NewBooks(f).Preview()
	require.Len(t, lines, 4)
	lines[0].Working = nil
	require.Equal(t, billing.PreviewLine{
		MeterID: 1, MeterSlug: "calls", Usage: decimal(t, "101.1"), UnitPrice: decimal(t, "0.005"), Amount: decimal(t, "10.0055"), Currency: "USD", Source: billing.MeterPrice,
	}, lines[0])
	require.Equal(t, "no item", lines[1].Excluded.Detail)
	require.Equal(t, "USD", lines[1].Currency)
	require.True(t, lines[1].Amount.IsZero())
	require.Equal(t, billing.ExcludedBackfilling, lines[2].Excluded.Code)
	require.Empty(t, lines[3].Excluded, "nothing is known of it")

	f.Side = nil
	require.Empty(t, billing.NewBooks(f).Preview()[1].Excluded, "the customer's items have not been read")
	require.Equal(t, billing.ExcludedBackfilling, billing.NewBooks(f).Preview()[2].Excluded.Code)
}

// A preview line has the currency of the price that is charged, Odometer's or the provider's. A meter without a price
// has the currency of the other meters' prices in Odometer.
func TestPreviewLineHasCurrencyOfChargedPrice(t *testing.T) {
	t.Parallel()
	f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), subscribed(february)))
	f.Meters = append(f.Meters, metering.Meter{ID: 2, Slug: "seats", Version: metering.MeterVersion{Status: metering.Complete}})
	f.Prices[1][0].Currency = "CHF"
	f.Side.Destinations = append(f.Side.Destinations, billing.Destination{MeterID: 2, Target: "mtr_2", Method: "delta", Counting: billing.Adds})
	for theirs, want := range map[string][]string{"": {"CHF", "CHF"}, "EUR": {"EUR", "CHF"}} {
		if f.Side.Destinations[0].Price = nil; theirs != "" {
			f.Side.Destinations[0].Price = &tariff{"price_1", theirs, tariffOf(1, 1, 0)}
		}
		lines := billing.NewBooks(f).Preview()
		require.Equal(t, want, []string{lines[0].Currency, lines[1].Currency}, theirs)
	}
}

// The preview of the open period has a line for the late usage of each closed period. LateFor has the closed period's
// range.
func TestPreviewHasLineForLateUsageOfClosedPeriod(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(march.Start.AddDate(0, 0, 1),
		closedAt(january, "50", "10"), closedAt(february, "100", "10"), billing.Period{Range: march}))
	f = atBasic(f)
	f = withLate(f, february, "110", "10")
	lines := billing.NewBooks(f).Preview()
	require.Len(t, lines, 2)
	require.Nil(t, lines[0].LateFor)
	lines[1].Working = nil
	require.Equal(t, billing.PreviewLine{
		MeterID: 1, MeterSlug: "calls", Usage: metering.Whole(10), UnitPrice: decimal(t, "0.005"), Amount: decimal(t, "0.05"), Currency: "USD", LateFor: &february,
	}, lines[1])
}

// PreviewAll lists the meters of several billing schedules by meter ID, and then the late usage of all schedules.
func TestPreviewAllListsMetersBeforeLateUsage(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 5), closedAt(january, "10", "1000"), billing.Period{Range: february}))
	f.Meters = append(f.Meters, metering.Meter{ID: 2, Slug: "seats", Version: metering.MeterVersion{Status: metering.Complete}})
	other := f
	other.Stream, other.Feeds = 1, []billing.Feed{{MeterID: 1, Stream: 1, From: january.Start}}
	other = withLate(other, january, "17", "7")
	f.Feeds = other.Feeds
	type line struct {
		meter metering.MeterID
		late  bool
	}
	var all []line
	for _, l := range billing.PreviewAll([]*billing.Books{billing.NewBooks(f), billing.NewBooks(other)}) {
		all = append(all, line{l.MeterID, l.LateFor != nil})
	}
	require.Equal(t, []line{{1, false}, {2, false}, {1, true}}, all)
}

// Adjustments exclude late usage that earlier target periods have billed. Without a provider there are no
// adjustments.
func TestAdjustmentsExcludeLateUsageBilledEarlier(t *testing.T) {
	t.Parallel()
	charged := func(target metering.Range, units, amount string) billing.Reported {
		r := adjusted(first, january, target, units, amount)
		r.Kind, r.Customer, r.Target, r.Counting = billing.ChargeReport, "cus_1", "sub_1", billing.Adds
		r.Taken.Added = r.Taken.Amount
		r.Standing = r.Taken
		return r
	}
	late := func(stored ...billing.Period) billing.Facts {
		f := atMeters(march, knownOf(march.Start.AddDate(0, 0, 5), stored...))
		return withLate(f, january, "17", "7")
	}
	f := late(closedAt(january, "10", "1000"), closedAt(february, "0", "0"), subscribed(march))
	f.Reported = []billing.Reported{charged(february, "4", "400")}
	lines := billing.NewBooks(f).Adjustments()
	require.Len(t, lines, 1)
	require.Equal(t, "3", lines[0].Quantity.String())
	require.Equal(t, "300", lines[0].Amount.String())

	f.Reported = append(f.Reported, charged(march, "3", "300"))
	lines = billing.NewBooks(f).Adjustments()
	require.Len(t, lines, 1, "the target period itself has it")
	require.Equal(t, "300", lines[0].Amount.String())

	f.Side.Subscription = ""
	require.Empty(t, billing.NewBooks(f).Adjustments(), "all was charged with a subscription that is no more")

	f = late(closedAt(january, "10", "1000"), closedAt(february, "0", "0"), closedAt(march, "0", "0"))
	require.Empty(t, billing.NewBooks(f).Adjustments(), "no period is open")

	f = late(closedAt(january, "10", "1000"), subscribed(march))
	f.Settings.LatePolicy = metering.ReportLate
	require.Empty(t, billing.NewBooks(f).Adjustments())

	f = late(closedAt(january, "10", "1000"), subscribed(march))
	f.Connection, f.Side = nil, nil
	require.Empty(t, billing.NewBooks(f).Adjustments(), "nobody bills")
}
