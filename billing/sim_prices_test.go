package billing_test

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"math/rand/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/metering"
)

// tariff is a provider's own price in the smallest unit of the currency: a fixed amount, a rate for each unit
// up to UpTo, and another rate for the remaining units. Each of the three amounts is rounded on its own,
// halves up.
type tariff struct {
	id, currency string
	lives.Tariff
}

// tariffOf returns the n-th tariff of a provider for a meter.
func tariffOf(connection metering.ConnectionID, meter metering.MeterID, n int) lives.Tariff {
	k := int64(connection)*7 + int64(meter)*5 + int64(n)*3
	tenths := func(of, most int64) metering.Decimal {
		return metering.Whole(k * of % most).Mul(metering.MustDecimal("0.1"))
	}
	return lives.Tariff{Flat: metering.Whole(k * 13 % 400), UpTo: metering.Whole(1 + k%11), First: tenths(29, 190), Rest: tenths(31, 250)}
}

func (t *tariff) ID() string       { return t.id }
func (t *tariff) Currency() string { return t.currency }
func (t *tariff) JSON() []byte     { return fmt.Append(nil, t.id, t.currency, t.Tariff) }
func (t *tariff) String() string   { return t.id }

func (t *tariff) Terms() (billing.Terms, bool) { return billing.Terms{}, false }

var oneHundredth, oneHalf = metering.MustDecimal("0.01"), metering.MustDecimal("0.5")

// inMoney converts an amount from the smallest unit of the currency to the currency itself.
func (t *tariff) inMoney(amount metering.Decimal) metering.Decimal {
	if t.currency == "JPY" {
		return amount
	}
	return amount.Mul(oneHundredth)
}

// Lines returns the price lines for the units, in the form that package billing reads.
func (t *tariff) Lines(units metering.Decimal) []billing.PriceLine {
	line := func(units, rate metering.Decimal) billing.PriceLine {
		exact := units.Mul(rate)
		amount := exact.Round(0)
		if exact.Sub(amount).Equal(oneHalf) {
			amount = amount.Add(metering.Whole(1))
		}
		if amount.IsNegative() {
			amount = metering.Decimal{}
		}
		return billing.PriceLine{Units: units, Priced: units, Rate: t.inMoney(rate), Amount: t.inMoney(amount)}
	}
	fixed := billing.PriceLine{Flat: true, Amount: t.inMoney(t.Flat)}
	if units.Cmp(t.UpTo) <= 0 {
		return []billing.PriceLine{line(units, t.First), fixed}
	}
	return []billing.PriceLine{line(t.UpTo, t.First), fixed, line(units.Sub(t.UpTo), t.Rest)}
}

// oracle computes the price of the units with rational numbers, independently of Lines.
func (t *tariff) oracle(units *big.Rat) *big.Rat {
	cost := rational(t.Flat)
	first, rest := units, new(big.Rat).Sub(units, rational(t.UpTo))
	if rest.Sign() > 0 {
		first = rational(t.UpTo)
		cost.Add(cost, halfUp(rest.Mul(rest, rational(t.Rest))))
	}
	if first.Sign() > 0 {
		cost.Add(cost, halfUp(new(big.Rat).Mul(first, rational(t.First))))
	}
	if t.currency != "JPY" {
		cost.Quo(cost, big.NewRat(100, 1))
	}
	return cost
}

// halfUp rounds a non-negative number to a whole number, halves up.
func halfUp(r *big.Rat) *big.Rat {
	twice := new(big.Rat).Add(new(big.Rat).Add(r, r), big.NewRat(1, 1))
	return new(big.Rat).SetInt(new(big.Int).Quo(twice.Num(), new(big.Int).Mul(twice.Denom(), big.NewInt(2))))
}

// tariffKey identifies a tariff of a provider.
type tariffKey struct {
	meter    metering.MeterID
	n        int
	currency string
}

// tariff returns the provider's price of a meter in a contract.
func (f *farSide) tariff(meter metering.MeterID, c *contract) *tariff {
	n := f.priceNo[meter]
	if c.isBeside() {
		n += 50
	}
	key := tariffKey{meter, n, c.currency}
	t := f.tariffs[key]
	if t == nil {
		t = &tariff{fmt.Sprintf("price %d %d %d", f.connection, meter, n), c.currency, tariffOf(f.connection, meter, n)}
		f.tariffs[key] = t
	}
	return t
}

// ofAnyModel returns terms of a random model. The hash of the short form is the random seed, and the terms
// have the short form's base price, included units and currency. A customer that may be billed in quantities
// has no fees for events: the API refuses both together.
func ofAnyModel(short billing.Terms, fees bool) billing.Terms {
	hash := short.Hash()
	rng := rand.New(rand.NewPCG(binary.BigEndian.Uint64(hash[:]), 6))
	t := billing.Terms{BasePrice: short.BasePrice, IncludedUnits: short.IncludedUnits, Currency: short.Currency}
	amount := func(most int64) metering.Decimal {
		return metering.Whole(rng.Int64N(most)).Mul(metering.MustDecimal("0.001"))
	}
	if rng.IntN(4) == 0 {
		t.MinimumCharge = amount(20_000).Round(metering.MinorDigits(t.Currency))
	}
	if rng.IntN(4) == 0 {
		t.MaximumCharge = t.MinimumCharge.Add(amount(40_000).Round(metering.MinorDigits(t.Currency)))
	}
	models := billing.Model("").Values()
	switch t.Model = models[rng.IntN(len(models))]; t.Model {
	case billing.ModelOverage:
		t.Model, t.OverageRate = "", short.OverageRate
	case billing.ModelPerUnit:
		t.UnitPrice, t.PerUnits = amount(30_000), []int64{1, 3, 7, 1000}[rng.IntN(4)]
	case billing.ModelGraduated, billing.ModelVolume:
		var last metering.Decimal
		for range rng.IntN(4) {
			last = last.Add(metering.Whole(1 + rng.Int64N(9)))
			t.Tiers = append(t.Tiers, billing.Tier{UpTo: new(last), UnitPrice: amount(3000), FlatFee: amount(900)})
		}
		t.Tiers = append(t.Tiers, billing.Tier{UnitPrice: amount(3000)})
	case billing.ModelPackage:
		t.PackageSize, t.PackagePrice = 1+rng.Int64N(9), amount(9000)
	case billing.ModelPercentage:
		if t.Percent = amount(90_000); fees {
			t.FixedFee = amount(500)
		}
	}
	return t
}

// charged returns the oracle's charge for usage, at the provider's price if there is one, else at a version
// of Odometer's price.
func (l *life) charged(theirs billing.ProviderPrice, meter metering.MeterID, version int, usage countedUsage) *big.Rat {
	if t, is := theirs.(*tariff); is {
		return t.oracle(usage.units)
	}
	return l.oracle(meter, version, usage)
}

// lineOf returns the line of an invoice for a meter.
func (f *farSide) lineOf(c *contract, in *invoice, meter metering.MeterID) billing.InvoiceLine {
	line := billing.InvoiceLine{MeterID: meter, Quantity: f.onInvoice(in, meter), Currency: c.currency, Lines: 1}
	if _, known := f.itemsOf(c)[meter]; known {
		price := f.tariff(meter, c)
		line.Price = price.id
		if !c.onTrial(in.Range) {
			for _, l := range price.Lines(line.Quantity) {
				line.Amount = line.Amount.Add(l.Amount)
			}
		}
	}
	return line
}

// checkAmounts checks that no reconciliation reports an invoice amount that differs from the price of the
// invoice's units.
func (l *life) checkAmounts() {
	for _, r := range l.reconciled {
		if r.Reason == billing.ReasonOtherAmount {
			l.failf("the invoices are said to bill another amount of meter %d in the period from %s: %+v", r.MeterID, r.Period, r)
		}
	}
}
