package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// like is a provider price that charges the same as the given Odometer terms.
type like struct {
	*tariff
	terms billing.Terms
}

func (l like) Terms() (billing.Terms, bool) { return l.terms, true }

// Odometer's price of a meter is compared with the provider's price of that meter, in any of the customer's
// destinations and subscriptions. Validate rejects a provider price in another currency.
func TestOdometersPriceIsComparedWithProvidersPrice(t *testing.T) {
	t.Parallel()
	in := func(currency string) billing.Destination {
		return billing.Destination{MeterID: 1, Price: &tariff{"price_1", currency, tariffOf(1, 1, 0)}}
	}
	alike := func(rate string) billing.Destination {
		d := in("USD")
		d.Price = like{d.Price.(*tariff), billing.Terms{OverageRate: decimal(t, rate), Currency: "USD"}}
		return d
	}
	another := billing.Destination{MeterID: 2, Price: &tariff{"price_2", "JPY", tariffOf(1, 2, 0)}}
	for name, c := range map[string]struct {
		side    billing.Side
		charged bool // the current period is billed in amounts, at Odometer's prices
		refused bool
		differs int
	}{
		"in another currency":        {billing.Side{Destinations: []billing.Destination{in("EUR"), another}}, false, true, 1},
		"after another meter's":      {billing.Side{Destinations: []billing.Destination{another, in("EUR")}}, false, true, 1},
		"of a further subscription":  {billing.Side{Others: []billing.Side{{Destinations: []billing.Destination{in("EUR")}}}}, false, true, 1},
		"which charges the same":     {billing.Side{Destinations: []billing.Destination{alike("100")}}, false, false, 0},
		"which charges another rate": {billing.Side{Destinations: []billing.Destination{alike("99")}}, false, false, 1},
		"in the same currency":       {billing.Side{Destinations: []billing.Destination{in("USD")}}, false, false, 1},
		"and ours is charged":        {billing.Side{Destinations: []billing.Destination{in("USD")}}, true, false, 0},
		"which nobody here knows":    {billing.Side{Destinations: []billing.Destination{{MeterID: 1}}}, false, false, 0},
		"of which there is none":     {billing.Side{}, false, false, 0},
		"of another meter than ours": {billing.Side{Destinations: []billing.Destination{another}}, false, false, 0},
	} {
		f := knownOf(january.Start)
		l := billing.Linked{Meters: f.Meters, Prices: f.Prices, Side: c.side, Now: f.Now, Schedules: []billing.Facts{f}}
		l.Schedules[0].Connection = &billing.Connection{Invoices: true}
		if c.charged {
			l.Schedules[0].Connection.Bills = metering.BillsAmounts
		}
		differences := l.Differences()
		require.Len(t, differences, c.differs, name)
		if c.differs > 0 {
			first := "Odometer has no form of the provider's price"
			if name == "which charges another rate" {
				first = "tier 1: unit_price is 100 in Odometer and 99 at the provider"
			}
			require.Equal(t, billing.PriceDifference{MeterID: 1, MeterSlug: "calls", Ours: "100 USD for each unit", Theirs: "price_1", First: first}, differences[0], name)
		}
		if err := l.Validate("body.billing_provider_id"); c.refused {
			require.ErrorContains(t, err, "a customer that the provider bills in EUR for the meter calls, but the meter's price in Odometer is in USD", name)
		} else {
			require.NoError(t, err, name)
		}
	}
	f := knownOf(january.Start, billing.Period{Range: january, Bills: metering.BillsQuantities})
	f.Connection = &billing.Connection{Invoices: true, Bills: metering.BillsAmounts}
	kept := billing.Linked{Meters: f.Meters, Prices: f.Prices, Side: billing.Side{Destinations: []billing.Destination{alike("99")}}, Now: f.Now, Schedules: []billing.Facts{f}}
	require.Len(t, kept.Differences(), 1, "the current period keeps its form")
	l := billing.Linked{Meters: knownOf(january.Start).Meters, Side: billing.Side{Destinations: []billing.Destination{in("EUR")}}}
	require.NoError(t, l.Validate("body.billing_provider_id"), "there is no price of ours")
	require.Empty(t, l.Differences())
}

// SamePrices compares the provider prices of two subscriptions meter by meter. A period's prices are stored again if
// any of them differs.
func TestSamePricesComparesEachMeter(t *testing.T) {
	t.Parallel()
	one, other := &tariff{"price_1", "USD", tariffOf(1, 1, 0)}, &tariff{"price_2", "USD", tariffOf(1, 1, 1)}
	for name, c := range map[string]struct {
		prices map[metering.MeterID]billing.ProviderPrice
		same   bool
	}{
		"all are the same": {map[metering.MeterID]billing.ProviderPrice{1: one, 2: other}, true},
		"one has changed":  {map[metering.MeterID]billing.ProviderPrice{1: other, 2: other}, false},
		"one is another's": {map[metering.MeterID]billing.ProviderPrice{1: one, 3: other}, false},
		"there is one":     {map[metering.MeterID]billing.ProviderPrice{1: one}, false},
		"there is none":    {nil, false},
	} {
		s := billing.Subscription{Prices: map[metering.MeterID]billing.ProviderPrice{1: one, 2: other}}
		require.Equal(t, c.same, s.SamePrices(billing.Subscription{Prices: c.prices}), name)
		require.Equal(t, c.same, billing.Subscription{Prices: c.prices}.SamePrices(s), name)
	}
}
