package stripetest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

func TestPriceDeterminesInvoiceTotal(t *testing.T) {
	t.Parallel()
	tiers := []stripetest.Tier{{UpTo: "100", UnitAmount: "10", FlatAmount: "500"}, {UpTo: "200", UnitAmount: "5", FlatAmount: "50"}, {UpTo: "inf", UnitAmount: "0.125"}}
	for name, c := range map[string]struct {
		price stripetest.Price
		costs map[int]string // by quantity
	}{
		"a unit":       {stripetest.Price{UnitAmount: "2.5"}, map[int]string{0: "0", 1: "3", 2: "5", 3: "8", -4: "0"}},
		"fractions":    {stripetest.Price{UnitAmount: "0.000000000001"}, map[int]string{499_999_999_999: "0", 500_000_000_000: "1"}},
		"graduated":    {stripetest.Price{TiersMode: "graduated", Tiers: tiers}, map[int]string{0: "500", 1: "510", 100: "1500", 101: "1555", 200: "2050", 203: "2050", 204: "2051"}},
		"volume":       {stripetest.Price{TiersMode: "volume", Tiers: tiers}, map[int]string{0: "500", 100: "1500", 101: "555", 200: "1050", 204: "26"}},
		"packages":     {stripetest.Price{UnitAmount: "10", DivideBy: 60, DivideRound: "up"}, map[int]string{0: "0", 1: "10", 60: "10", 61: "20"}},
		"whole ones":   {stripetest.Price{UnitAmount: "10", DivideBy: 60, DivideRound: "down"}, map[int]string{59: "0", 60: "10", 119: "10"}},
		"included":     {stripetest.Price{TiersMode: "graduated", Tiers: []stripetest.Tier{{UpTo: "100", FlatAmount: "1000"}, {UpTo: "inf", UnitAmount: "0.5"}}}, map[int]string{0: "1000", 100: "1000", 103: "1002"}},
		"a flat price": {stripetest.Price{TiersMode: "volume", Tiers: []stripetest.Tier{{UpTo: "inf", UnitAmount: "2", FlatAmount: "7"}}}, map[int]string{0: "7", 1: "9"}},
	} {
		for quantity, want := range c.costs {
			price := c.price
			b := plain(t, func(in *stripetest.Seed) {
				price.ID, price.Meter = "price_calls", "calls"
				in.Prices[0] = price
			})
			b.reportCalls(quantity, noon)
			b.advanceTo(april.Add(time.Hour))
			in := b.State().Accounts[0].Invoices[0]
			require.Equal(t, want, in.Total.String(), "%s of %d", name, quantity)
			var used metering.Decimal
			for _, l := range in.Lines {
				used = used.Add(l.Quantity)
			}
			require.Equal(t, fmt.Sprint(max(quantity, 0)), used.String(), name)
		}
	}
}

// TestEachReachedTierHasOwnInvoiceLines checks the invoice lines of a graduated price. Each tier that is reached has a
// line for its units, rounded separately, and a line for its flat amount.
func TestEachReachedTierHasOwnInvoiceLines(t *testing.T) {
	t.Parallel()
	tiered := func(in *stripetest.Seed) {
		in.Prices[0].TiersMode = "graduated"
		in.Prices[0].Tiers = []stripetest.Tier{{UpTo: "1000", FlatAmount: "900"}, {UpTo: "inf", UnitAmount: "3.6", FlatAmount: "0"}}
	}
	b := plain(t, tiered)
	b.reportCalls(1031, noon)
	b.advanceTo(april)
	id := b.newestInvoice()["id"].(string)
	require.Equal(t, []string{
		"1000 × price_calls (Tier 1) 1000 0", "price_calls (Tier 1) 0 900", "31 × price_calls (Tier 2) 31 112", "price_calls (Tier 2) 0 0",
	}, fields(b.firstPage("/v1/invoices/"+id+"/lines"), "description", "quantity", "amount"))
	require.EqualValues(t, 1012, b.newestInvoice()["total"])
	require.Equal(t, []string{"si_1", "si_1", "si_1", "si_1"}, fields(b.firstPage("/v1/invoices/"+id+"/lines"), "subscription_item"))
	b.advanceTo(april.Add(time.Hour))
	b.reportCalls(5, noon)
	line := b.State().Accounts[0].Invoices[0].Lines
	require.Equal(t, [2]string{"5", "0"}, [2]string{line[0].Late.String(), line[1].Late.String()}, "said once")

	b = plain(t, tiered)
	b.advanceTo(april)
	draft := b.newestInvoice()["id"].(string)
	require.Equal(t, []string{"0 0", "0 900"}, b.lines(draft), "though nothing was used")
	b.reportCalls(1031, noon)
	b.advanceTo(april.Add(time.Hour))
	require.Equal(t, []string{"1000 0", "0 900", "31 112", "0 0"}, b.lines(draft), "another tier than the draft's")
}

func TestTiersAreShownOnlyIfExpanded(t *testing.T) {
	t.Parallel()
	b := plain(t)
	product := b.createObject("/v1/products", "name", "API")
	price := b.createObject("/v1/prices", "product", product, "currency", "usd", "recurring[interval]", "month", "recurring[usage_type]", "metered",
		"recurring[meter]", "calls", "billing_scheme", "tiered", "tiers_mode", "graduated",
		"tiers[0][up_to]", "100", "tiers[0][flat_amount]", "500", "tiers[1][up_to]", "inf", "tiers[1][unit_amount_decimal]", "0.5")
	b.mustPost("/v1/subscription_items/si_1", "price", price)
	shown := func(query string) map[string]any {
		return b.firstPage("/v1/subscription_items?subscription=sub_1" + query)[0]["price"].(map[string]any)
	}
	require.NotContains(t, shown(""), "tiers")
	got := shown("&expand[]=data.price.tiers")
	require.Equal(t, []any{"tiered", "graduated", nil}, []any{got["billing_scheme"], got["tiers_mode"], got["unit_amount_decimal"]})
	require.Equal(t, []any{
		map[string]any{"up_to": 100.0, "flat_amount_decimal": "500", "unit_amount_decimal": nil},
		map[string]any{"up_to": nil, "flat_amount_decimal": nil, "unit_amount_decimal": "0.5"},
	}, got["tiers"])

	packages := b.mustPost("/v1/prices", metered(product, "recurring[meter]", "calls", "transform_quantity[divide_by]", "60", "transform_quantity[round]", "up")...)
	require.Equal(t, map[string]any{"divide_by": 60.0, "round": "up"}, packages["transform_quantity"])
}

func TestInvalidPriceIsRefused(t *testing.T) {
	t.Parallel()
	b := plain(t)
	last := stripetest.Tier{UpTo: "inf"}
	for name, price := range map[string]stripetest.Price{
		"no tiers":          {TiersMode: "volume"},
		"no mode":           {Tiers: []stripetest.Tier{last}},
		"an unknown mode":   {TiersMode: "steps", Tiers: []stripetest.Tier{last}},
		"falling tiers":     {TiersMode: "volume", Tiers: []stripetest.Tier{{UpTo: "5"}, {UpTo: "5"}, last}},
		"no last tier":      {TiersMode: "volume", Tiers: []stripetest.Tier{{UpTo: "5"}}},
		"a tier after inf":  {TiersMode: "volume", Tiers: []stripetest.Tier{last, {UpTo: "5"}}},
		"a tier's amount":   {TiersMode: "volume", Tiers: []stripetest.Tier{{UpTo: "inf", UnitAmount: "1/2"}}},
		"packages of tiers": {TiersMode: "volume", Tiers: []stripetest.Tier{last}, DivideBy: 2, DivideRound: "up"},
		"no rounding":       {DivideBy: 2},
		"packages of less":  {DivideBy: -2, DivideRound: "up"},
	} {
		require.Error(t, b.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: key}, Prices: []stripetest.Price{price}}), name)
	}
	product := b.createObject("/v1/products", "name", "API")
	require.Equal(t, 400, b.post("/v1/prices", metered(product, "billing_scheme", "tiered", "tiers_mode", "volume", "tiers[0][up_to]", "5", "tiers[0][unit_amount]", "1")...).status)
}
