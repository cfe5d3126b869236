package billing_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

func TestChargeIsBasePricePlusOverage(t *testing.T) {
	for _, c := range []struct {
		name, base, included, rate, usage, charge string
	}{
		{"NothingUsedCostsTheBase", "29.00", "1000", "0.01", "0", "29"},
		{"WhatIsIncludedCostsTheBase", "29.00", "1000", "0.01", "999.999999999999", "29"},
		{"TheLastIncludedUnitIsFree", "29.00", "1000", "0.01", "1000", "29"},
		{"TheNextUnitCostsTheRate", "29.00", "1000", "0.01", "1001", "29.01"},
		{"APartOfAUnitCostsThatPart", "29.00", "1000", "0.01", "1000.5", "29.005"},
		{"TheSmallestPartIsNotLost", "0", "0", "0.000000000001", "0.000000000001", "0.000000000000000000000001"},
		{"NoPriceIsNoCharge", "0", "0", "0", "123456789", "0"},
		{"TheLargestUsageIsExact", "0.01", "0", "0.1", "999999999999999999.999999999999", "100000000000000000.0099999999999"},
		{"UsageBelowZeroCostsTheBase", "29", "0", "0.01", "-5", "29"},
		{"AThirdOfACentEach", "0", "100", "0.0033333333", "400", "0.99999999"},
	} {
		t.Run(c.name, func(t *testing.T) {
			price := billing.Price{Terms: billing.Terms{BasePrice: decimal(t, c.base), IncludedUnits: decimal(t, c.included), OverageRate: decimal(t, c.rate)}}
			require.Equal(t, c.charge, price.Charge(billing.Measured{Units: decimal(t, c.usage)}).Exact.String())
		})
	}

	t.Run("MoreUsageNeverCostsLess", rapid.MakeCheck(func(t *rapid.T) {
		units := rapid.StringMatching(`[0-9]|[1-9][0-9]{1,6}(\.[0-9]{1,4})?`)
		draw := func(name string) metering.Decimal { return decimal(t, units.Draw(t, name)) }
		price := billing.Price{Terms: billing.Terms{BasePrice: draw("base"), IncludedUnits: draw("included"), OverageRate: draw("rate")}}
		usage, more := draw("usage"), draw("more")
		before, after := price.Charge(billing.Measured{Units: usage}).Exact, price.Charge(billing.Measured{Units: usage.Add(more)}).Exact
		require.LessOrEqual(t, before.Cmp(after), 0)
		require.LessOrEqual(t, price.BasePrice.Cmp(before), 0)
		require.LessOrEqual(t, after.Sub(before).Cmp(more.Mul(price.OverageRate)), 0)
	}))
}

func TestPriceAt(t *testing.T) {
	day := func(month time.Month, d int) time.Time { return time.Date(2026, month, d, 0, 0, 0, 0, time.UTC) }
	var beginning time.Time
	versions := []billing.Price{
		{Version: 1, EffectiveFrom: beginning},
		{Version: 2, EffectiveFrom: day(4, 1)},
		{Version: 3, EffectiveFrom: day(3, 1)}, // set after version 2, for an earlier date
		{Version: 4, EffectiveFrom: day(6, 1)},
		{Version: 5, EffectiveFrom: day(6, 1)}, // corrects version 4
	}
	for _, c := range []struct {
		name string
		at   time.Time
		want int
	}{
		{"TheFirstHoldsFromTheBeginning", day(1, 1), 1},
		{"UntilTheInstantBeforeAnother", day(3, 1).Add(-time.Nanosecond), 1},
		{"AnotherHoldsFromItsDate", day(3, 1), 3},
		{"UntilThatOfTheNextDateHoweverOld", day(4, 1), 2},
		{"OfTwoWithOneDateTheLaterVersionHolds", day(6, 1), 5},
		{"TheLastHoldsForGood", day(12, 31), 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 20 {
				rand.Shuffle(len(versions), func(i, j int) { versions[i], versions[j] = versions[j], versions[i] })
				price, ok := billing.PriceAt(versions, 0, c.at)
				require.True(t, ok)
				require.Equal(t, c.want, price.Version, "of %v", versions)
			}
		})
	}

	t.Run("BeforeTheFirstThereIsNone", func(t *testing.T) {
		_, ok := billing.PriceAt([]billing.Price{{Version: 1, EffectiveFrom: day(4, 1)}}, 0, day(3, 31))
		require.False(t, ok)
		_, ok = billing.PriceAt(nil, 0, day(4, 1))
		require.False(t, ok)
	})
}

func TestRoundMoney(t *testing.T) {
	for _, c := range []struct{ currency, amount, want string }{
		{"USD", "1.004999999999", "1"},
		{"USD", "1.005", "1"}, // half is rounded to even
		{"USD", "1.005000000001", "1.01"},
		{"USD", "1.015", "1.02"},
		{"USD", "1.025", "1.02"},
		{"USD", "-1.005", "-1"},
		{"USD", "-1.015", "-1.02"},
		{"EUR", "0.005", "0"},
		{"EUR", "0.015", "0.02"},
		{"JPY", "0.5", "0"},
		{"JPY", "1.5", "2"},
		{"JPY", "2.5", "2"},
		{"JPY", "2.500000000001", "3"},
		{"KRW", "999.5", "1000"},
		{"KWD", "1.0005", "1"},
		{"KWD", "1.0015", "1.002"},
		{"BHD", "1.00049", "1"},
		{"TND", "0.0015", "0.002"},
		{"CLF", "1.00005", "1"},
		{"CLF", "1.00015", "1.0002"},
		{"XXX", "1.239", "1.24"},
	} {
		t.Run(c.amount+" "+c.currency+" is "+c.want, func(t *testing.T) {
			require.Equal(t, c.want, billing.RoundMoney(decimal(t, c.amount), c.currency).String())
		})
	}

	t.Run("RoundingTwiceChangesNothing", rapid.MakeCheck(func(t *rapid.T) {
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,12})?`).Draw(t, "amount")
		currency := rapid.SampledFrom([]string{"USD", "JPY", "KWD"}).Draw(t, "currency")
		once := billing.RoundMoney(decimal(t, text), currency)
		require.True(t, once.Equal(billing.RoundMoney(once, currency)))
	}))
}

func TestPriceValidate(t *testing.T) {
	good := billing.Price{Terms: billing.Terms{BasePrice: metering.Whole(1), IncludedUnits: metering.Whole(0), OverageRate: decimal(t, "0.000000000001"), Currency: "USD"}}
	require.NoError(t, good.Validate())
	for location, change := range map[string]func(*billing.Price){
		"body.base_price":     func(p *billing.Price) { p.BasePrice = metering.Whole(-1) },
		"body.included_units": func(p *billing.Price) { p.IncludedUnits = metering.Whole(-1) },
		"body.overage_rate":   func(p *billing.Price) { p.OverageRate = metering.MustDecimal("-0.000000000001") },
		"body.currency":       func(p *billing.Price) { p.Currency = "usd" },
	} {
		bad := good
		change(&bad)
		var err *metering.Error
		require.ErrorAs(t, bad.Validate(), &err)
		require.Equal(t, location, err.Fields[0].Location)
	}
}
