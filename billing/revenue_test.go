package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// RevenueMonth assigns a period to the month that contains the period's last instant.
func TestRevenueMonthIsMonthOfPeriodsLastInstant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ timezone, end, month string }{
		{"UTC", "2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z"},
		{"UTC", "2026-02-01T00:00:00.000001Z", "2026-02-01T00:00:00Z"},
		{"UTC", "2026-02-15T08:00:00Z", "2026-02-01T00:00:00Z"},
		{"Asia/Kathmandu", "2026-01-31T18:15:00Z", "2025-12-31T18:15:00Z"},
		{"Asia/Kathmandu", "2026-01-31T18:15:01Z", "2026-01-31T18:15:00Z"},
	} {
		period := metering.Range{Start: instant(t, "2026-01-15T00:00:00Z"), End: instant(t, c.end)}
		require.Equal(t, instant(t, c.month), billing.RevenueMonth(period, location(t, c.timezone)).UTC(), c.end)
	}
}

// EndsByReports reports whether the last stored period would end sooner if none of it had been reported.
func TestEndsByReportsIfReportsExtendLastPeriod(t *testing.T) {
	t.Parallel()
	now := february.Start.AddDate(0, 0, 9)
	fromNow := metering.Range{Start: now, End: march.End}
	for name, c := range map[string]struct {
		current metering.Range
		stored  []billing.Period
		want    bool
	}{
		"NoneIsStored":         {fromNow, nil, false},
		"ASubscriptionBegins":  {fromNow, []billing.Period{closedAt(january, "10", "1000"), {Range: february}}, true},
		"OnlyOneIsStored":      {fromNow, []billing.Period{{Range: february}}, true},
		"ItEndsWithThePeriod":  {february, []billing.Period{closedAt(january, "10", "1000"), {Range: february}}, false},
		"TheLastOneIsClosed":   {fromNow, []billing.Period{{Range: january}, closedAt(february, "10", "1000")}, false},
		"TheLastOneLiesBefore": {fromNow, []billing.Period{{Range: january}}, false},
	} {
		require.Equal(t, c.want, billing.EndsByReports(atMeters(c.current, knownOf(now, c.stored...))), name)
	}
}

// OpenCharges returns the charges of an open period for meters with a price. The provider's price takes precedence
// over Odometer's.
func TestOpenChargesPreferProviderPriceToOdometers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ours   bool
		theirs billing.ProviderPrice
		want   []string
	}{
		"AtOurs":        {true, nil, []string{"1000 USD"}},
		"AtTheirs":      {true, &tariff{"price_1", "EUR", tariffOf(1, 1, 0)}, []string{"2.86 EUR"}},
		"AtTheirsAlone": {false, &tariff{"price_1", "EUR", tariffOf(1, 1, 0)}, []string{"2.86 EUR"}},
		"AtNone":        {false, nil, nil},
	} {
		f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 9), subscribed(january)))
		if f.Side.Destinations[0].Price = c.theirs; !c.ours {
			f.Prices = nil
		}
		f.Usage = []billing.Usage{used(january, "10")}
		var charges []string
		for _, charge := range billing.OpenCharges(f, billing.OpenPeriods(f)[0]) {
			charges = append(charges, charge.Charge.String()+" "+charge.Currency)
		}
		require.Equal(t, c.want, charges, name)
	}
}
