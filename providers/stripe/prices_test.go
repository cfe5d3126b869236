package stripe_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// anyPrice returns a random price of any form. Its amounts often produce halves of the smallest unit.
func anyPrice(rng *rand.Rand) stripetest.Price {
	amount := func() string {
		return []string{"0", "1", "2.5", "0.5", "0.125", "33.3", "0.000000000001", "1500"}[rng.IntN(8)]
	}
	p := stripetest.Price{
		ID: "price_any", LookupKey: "any", Meter: "mtr_any", UnitAmount: amount(), Currency: []string{"usd", "jpy", "kwd"}[rng.IntN(3)],
	}
	switch rng.IntN(4) {
	case 0:
	case 1:
		p.DivideBy, p.DivideRound = 1+rng.Int64N(7), []string{"up", "down"}[rng.IntN(2)]
	default:
		p.TiersMode = []string{"graduated", "volume"}[rng.IntN(2)]
		last := int64(0)
		for range rng.IntN(4) {
			last += 1 + rng.Int64N(9)
			p.Tiers = append(p.Tiers, stripetest.Tier{UpTo: fmt.Sprint(last), UnitAmount: amount()})
		}
		p.Tiers = append(p.Tiers, stripetest.Tier{UpTo: "inf", UnitAmount: amount()})
		for n := range p.Tiers {
			if rng.IntN(2) == 0 {
				p.Tiers[n].FlatAmount = fmt.Sprint(rng.IntN(900))
			}
		}
	}
	return p
}

// TestPriceComputesAmountsOfInvoice compares the amounts of a price with those on the fake's final invoices.
// It uses random prices of every form, and random quantities, including negative ones and decimals.
func TestPriceComputesAmountsOfInvoice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		price := anyPrice(rng)
		quantity := metering.Whole(rng.Int64N(60) - 4).Add(metering.Whole(rng.Int64N(1000)).Mul(metering.MustDecimal([]string{"0", "0.001"}[rng.IntN(2)])))
		now := march.Add(time.Hour)
		fake := stripetest.New(stripetest.Options{Now: func() time.Time { return now }})
		require.NoError(t, fake.Seed(&stripetest.Seed{
			Account: stripetest.Account{ID: "acct_1", Key: key, Decimals: true}, Customers: []stripetest.Customer{{ID: "cus_1"}},
			Meters: []stripetest.Meter{{ID: "mtr_any", EventName: "any"}}, Prices: []stripetest.Price{price},
			Subscriptions: []stripetest.Subscription{{ID: "sub_1", Customer: "cus_1", Items: []stripetest.Item{{ID: "si_1", Price: "price_any"}}}},
		}))
		b := servedBy(t, fake)
		c := providers.Credentials{Secret: key}
		side, err := stripe.NewProvider(b).Read(t.Context(), c, providers.Question{Customer: "cus_1", Meters: []metering.Meter{{ID: 1, Slug: "any"}}})
		require.NoError(t, err)
		read := side.Destinations[0].Price
		require.NotNil(t, read, "%+v", side)
		kept, err := stripe.ReadPrice(read.JSON())
		require.NoError(t, err)
		require.Equal(t, billing.PriceHash(read), billing.PriceHash(kept), "it is kept as it was read")

		_, err = b.Send(t.Context(), key, stripe.Report{
			Method: stripe.MeterDelta, EventName: "any", CustomerKey: "stripe_customer_id", ValueKey: "value", Customer: "cus_1",
			Value: quantity, Timestamp: now, Identifier: "one", IdempotencyKey: "one",
		})
		require.NoError(t, err)
		now = april.Add(2 * time.Hour)
		invoice := fake.State().Accounts[0].Invoices[0]
		var amount metering.Decimal
		for _, l := range kept.Lines(quantity) {
			amount = amount.Add(l.Amount)
		}
		want := stripe.Amount(invoice.Total, read.Currency())
		require.True(t, want.Equal(amount), "seed %d: %s of %s are %s, and %s on the invoice", seed, quantity, read, amount, want)
		if ours, same := kept.Terms(); same && !quantity.IsNegative() {
			most := stripe.Amount(metering.Whole(1), read.Currency())
			charge := ours.Charge(billing.Measured{Units: quantity}).Exact
			over, under := charge.Sub(amount), amount.Sub(charge)
			require.False(t, over.Cmp(most) >= 0 || under.Cmp(most) >= 0, "seed %d: ours is %s", seed, ours)
		}
	}
}

// TestUnsupportedPriceExcludesMeterWithReason checks the reason for each form of price that is not
// supported. Read excludes a meter with such a price.
func TestUnsupportedPriceExcludesMeterWithReason(t *testing.T) {
	t.Parallel()
	for shown, want := range map[string]string{
		`{"billing_scheme":"per_unit","currency":"usd","unit_amount_decimal":null}`:                                                                     "has no unit amount",
		`{"billing_scheme":"per_unit","currency":"eur","unit_amount_decimal":"1"}`:                                                                      "is billed in USD through a currency option",
		`{"billing_scheme":"per_moon","currency":"usd","unit_amount_decimal":"1"}`:                                                                      `the billing scheme "per_moon"`,
		`{"billing_scheme":"per_unit","currency":"usd","unit_amount_decimal":"1","transform_quantity":{"divide_by":3,"round":"even"}}`:                  "transforms quantities in a way",
		`{"billing_scheme":"tiered","currency":"usd","tiers_mode":"graduated"}`:                                                                         "does not show its tiers",
		`{"billing_scheme":"tiered","currency":"usd","tiers_mode":"stairs","tiers":[{"up_to":null,"unit_amount_decimal":"1"}]}`:                         `the tiers mode "stairs"`,
		`{"billing_scheme":"tiered","currency":"usd","tiers_mode":"volume","tiers":[{"up_to":5,"unit_amount_decimal":"1"}]}`:                            "tiers that are not in ascending order",
		`{"billing_scheme":"tiered","currency":"usd","tiers_mode":"volume","tiers":[{"up_to":5},{"up_to":5},{"up_to":null}]}`:                           "tiers that are not in ascending order",
		`{"billing_scheme":"tiered","currency":"usd","tiers_mode":"volume","tiers":[{"up_to":null}],"transform_quantity":{"divide_by":2,"round":"up"}}`: "transforms quantities in a way",
	} {
		reason, err := stripe.PriceOf(json.RawMessage(shown), "USD")
		require.NoError(t, err)
		require.Contains(t, reason, want)
	}
}

// TestPriceStringDescribesPrice checks the descriptions of prices that users see.
func TestPriceStringDescribesPrice(t *testing.T) {
	t.Parallel()
	for words, p := range map[string]stripe.Price{
		"0.025 USD for each unit": {ISO: "USD", UnitAmount: metering.MustDecimal("2.5")},
		"10 USD for the period, 100 units included, 0.005 USD for each unit": {ISO: "USD", Tiers: []stripe.Tier{
			{UpTo: new(metering.Whole(100)), FlatAmount: new(metering.Whole(1000))}, {UnitAmount: metering.MustDecimal("0.5")},
		}},
		"3 JPY for each 60 units; an incomplete package counts as one":     {ISO: "JPY", UnitAmount: metering.Whole(3), DivideBy: 60, RoundUp: true},
		"0.03 USD for each 60 units; an incomplete package counts as none": {ISO: "USD", UnitAmount: metering.Whole(3), DivideBy: 60},
		"tier by tier: up to 5 units: 0.01 USD for each unit; beyond: 2 USD and 0 USD for each unit": {ISO: "USD", Tiers: []stripe.Tier{
			{UpTo: new(metering.Whole(5)), UnitAmount: metering.Whole(1)}, {FlatAmount: new(metering.Whole(200))},
		}},
		"all units at the price of the tier that they reach: up to 5 units: 0.01 USD for each unit; beyond: 0.02 USD for each unit": {ISO: "USD", Volume: true, Tiers: []stripe.Tier{
			{UpTo: new(metering.Whole(5)), UnitAmount: metering.Whole(1)}, {UnitAmount: metering.Whole(2)},
		}},
	} {
		require.Equal(t, words, p.String())
	}
}

// servedBy returns a client of a served fake.
func servedBy(t *testing.T, fake *stripetest.Fake) *stripe.Client {
	t.Helper()
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	return stripe.New(server.URL)
}
