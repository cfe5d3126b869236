package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// currencyCase is a change of a customer's facts. Before the change, the meters 1 and 2 have prices in EUR from the
// beginning, plan 1 has a price of meter 1 in USD, and meter 4 has a free price in JPY.
type currencyCase struct {
	subscription string // currency of the subscription; "": the customer has none
	statements   bool   // the connection receives statements, which can have several currencies
	change       func(*billing.Facts)
	want         []billing.CurrencyChange
}

// inCurrency returns p as a price of 1 per unit in the currency, by default of meter 1.
func inCurrency(currency string, p billing.Price) billing.Price {
	p.MeterID, p.Version, p.Terms = max(p.MeterID, 1), 9, billing.Terms{OverageRate: metering.Whole(1), Currency: currency}
	return p
}

// TestPriceOrPlanChangeCanChangeChargeCurrency checks which changes of prices and plans charge a customer in another
// currency than the customer is billed in: now or later, and with or without a subscription.
func TestPriceOrPlanChangeCanChangeChargeCurrency(t *testing.T) {
	t.Parallel()
	set := func(p billing.Price) func(*billing.Facts) {
		return func(f *billing.Facts) { f.Prices[p.MeterID] = append(f.Prices[p.MeterID], p) }
	}
	own := func(p billing.Price) func(*billing.Facts) {
		p.CustomerID = 7
		return func(f *billing.Facts) { f.Customer.Prices = append(f.Customer.Prices, p) }
	}
	assign := func(from time.Time) func(*billing.Facts) {
		return func(f *billing.Facts) {
			f.Customer.Plans = append(f.Customer.Plans, billing.Assignment{PlanID: 1, EffectiveFrom: from})
		}
	}
	later := january.End.AddDate(0, 2, 0)
	toUSD := []billing.CurrencyChange{{From: "EUR", To: "USD"}}
	begun := []billing.CurrencyChange{{From: "EUR", To: "USD", Begun: true}}
	free := billing.Price{MeterID: 1, Version: 9, Terms: billing.Terms{Currency: "USD"}, EffectiveFrom: later}
	afterFree := set(inCurrency("EUR", billing.Price{MeterID: 4, EffectiveFrom: later}))
	for name, c := range map[string]currencyCase{
		"the meter's price, later":                    {change: set(inCurrency("USD", billing.Price{EffectiveFrom: later})), want: toUSD},
		"the meter's price, now":                      {change: set(inCurrency("USD", billing.Price{EffectiveFrom: january.Start})), want: toUSD},
		"the meter's price in its currency":           {change: set(inCurrency("EUR", billing.Price{EffectiveFrom: later}))},
		"the meter's price in the subscription's":     {subscription: "USD", change: set(inCurrency("USD", billing.Price{EffectiveFrom: later}))},
		"the meter's price in its currency still":     {subscription: "USD", change: set(inCurrency("EUR", billing.Price{EffectiveFrom: later}))},
		"the meter's price in neither":                {subscription: "USD", change: set(inCurrency("CHF", billing.Price{EffectiveFrom: later})), want: []billing.CurrencyChange{{From: "USD", To: "CHF"}}},
		"a price after a free one":                    {subscription: "USD", change: afterFree, want: []billing.CurrencyChange{{From: "USD", To: "EUR"}}},
		"a free price":                                {change: set(free)},
		"an own price, later":                         {change: own(inCurrency("USD", billing.Price{EffectiveFrom: later})), want: toUSD},
		"an own price, now":                           {change: own(inCurrency("USD", billing.Price{EffectiveFrom: january.Start})), want: begun},
		"an own price, not in the subscription's":     {subscription: "USD", change: own(inCurrency("EUR", billing.Price{EffectiveFrom: later})), want: []billing.CurrencyChange{{From: "USD", To: "EUR"}}},
		"a plan that begins later":                    {change: assign(later), want: toUSD},
		"a plan that has begun":                       {change: assign(january.Start), want: begun},
		"a first price beside prices of other meters": {change: set(inCurrency("USD", billing.Price{MeterID: 3, EffectiveFrom: later})), want: toUSD},
		"a first price on a statement":                {statements: true, change: set(inCurrency("USD", billing.Price{MeterID: 3, EffectiveFrom: later}))},
		"the meter's price on a statement":            {statements: true, change: set(inCurrency("USD", billing.Price{EffectiveFrom: later})), want: toUSD},
		"a first own price beside other meters":       {change: own(inCurrency("USD", billing.Price{MeterID: 3, EffectiveFrom: january.Start})), want: toUSD},
		"a first price in their currency":             {change: set(inCurrency("EUR", billing.Price{MeterID: 3, EffectiveFrom: later}))},
		"another plan's price":                        {change: set(inCurrency("CHF", billing.Price{PlanID: 2, EffectiveFrom: january.Start}))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := func() billing.Facts {
				f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 9), subscribed(january)))
				f.Side = &billing.Side{Currency: c.subscription}
				f.Connection.Invoices = !c.statements
				f.Meters = []metering.Meter{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}}
				f.Prices = map[metering.MeterID][]billing.Price{
					1: {inCurrency("EUR", billing.Price{}), inCurrency("USD", billing.Price{PlanID: 1})},
					2: {inCurrency("EUR", billing.Price{MeterID: 2})},
					4: {{MeterID: 4, Version: 1, Terms: billing.Terms{Currency: "JPY"}}},
				}
				f.Prices[1][0].Version, f.Prices[1][1].Version = 1, 2
				return f
			}
			after := facts()
			c.change(&after)
			require.Equal(t, c.want, billing.ChangedCurrencies(facts(), after))
		})
	}
}

// TestEndOfCustomersOwnPriceChangesCurrency checks that a customer is charged in the currency of the meter's price
// again when the customer's own price ends.
func TestEndOfCustomersOwnPriceChangesCurrency(t *testing.T) {
	t.Parallel()
	f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 9), subscribed(january)))
	f.Meters = []metering.Meter{{ID: 1}}
	f.Prices = map[metering.MeterID][]billing.Price{1: {inCurrency("USD", billing.Price{})}}
	f.Customer.Prices = []billing.Price{inCurrency("EUR", billing.Price{CustomerID: 7})}
	after := f
	after.Customer.Prices = append(after.Customer.Prices[:1:1], billing.Price{MeterID: 1, CustomerID: 7, Version: 10, Inherits: true, EffectiveFrom: january.End})
	require.Equal(t, []billing.CurrencyChange{{From: "EUR", To: "USD"}}, billing.ChangedCurrencies(f, after))
	require.Empty(t, billing.ChangedCurrencies(f, f))
}
