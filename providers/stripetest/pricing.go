package stripetest

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// Tier is one tier of a price. Amounts are decimals in the smallest unit; "" is none.
type Tier struct {
	UpTo       string `json:"up_to"` // last quantity of the tier; "inf" in the last tier
	UnitAmount string `json:"unit_amount_decimal"`
	FlatAmount string `json:"flat_amount_decimal"`
}

// part is the quantity and amount in one tier of a price, or of a price without tiers.
type part struct {
	tier     int // from 1; 0: a price without tiers
	flat     bool
	quantity metering.Decimal
	amount   metering.Decimal // in the currency's smallest unit
}

// parts returns the invoice lines for a quantity: one line for the units in each tier that applies. If the tier
// has a flat amount, another line without a quantity bills it, even if there is no usage. Each line is rounded
// separately, half up, and is at least 0
// (https://docs.stripe.com/billing/subscriptions/usage-based/recording-usage-api). Published invoices agree
// with these rules. The fake assumes that volume prices also have a separate line for the flat amount. A
// negative quantity is billed as 0
// (https://docs.stripe.com/billing/subscriptions/usage-based/meters/configure).
func (p *Price) parts(quantity metering.Decimal) []part {
	quantity = notNegative(quantity)
	if len(p.Tiers) == 0 {
		return []part{{quantity: quantity, amount: decimalOf(halfUp(p.single(quantity)))}}
	}
	if p.TiersMode == "volume" {
		n := slices.IndexFunc(p.Tiers, func(t Tier) bool { return t.includes(quantity) })
		return p.Tiers[n].parts(n+1, quantity)
	}
	var parts []part
	var from metering.Decimal
	for n, t := range p.Tiers {
		if n > 0 && quantity.Cmp(from) <= 0 {
			break
		}
		to := quantity
		if !t.includes(quantity) {
			to = metering.MustDecimal(t.UpTo)
		}
		parts = append(parts, t.parts(n+1, to.Sub(from))...)
		from = to
	}
	return parts
}

// remainingParts returns the parts of a quantity minus the parts of the billed quantity. After the invoice of a
// threshold, the tiers continue from the billed quantity:
// https://docs.stripe.com/billing/subscriptions/usage-based/thresholds
func (p *Price) remainingParts(quantity, billed metering.Decimal) []part {
	parts := p.parts(quantity)
	if billed.IsZero() {
		return parts
	}
	for n := range parts {
		for _, b := range p.parts(billed) {
			if b.flat == parts[n].flat && (b.tier == parts[n].tier || p.TiersMode == "volume") {
				parts[n].quantity, parts[n].amount = parts[n].quantity.Sub(b.quantity), notNegative(parts[n].amount.Sub(b.amount))
			}
		}
	}
	left := slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.quantity.IsZero() && p.amount.IsZero() })
	if len(left) == 0 {
		return parts[:1]
	}
	return left
}

// single returns the amount for a quantity at a price without tiers.
func (p *Price) single(quantity metering.Decimal) *big.Rat {
	units := p.transformed(rational(quantity.String()))
	if units.Sign() < 0 {
		return new(big.Rat)
	}
	return units.Mul(units, rational(p.UnitAmount))
}

// transformed follows https://docs.stripe.com/api/prices/create#create_price-transform_quantity
func (p *Price) transformed(quantity *big.Rat) *big.Rat {
	if p.DivideBy == 0 {
		return quantity
	}
	packages := new(big.Rat).Quo(quantity, big.NewRat(p.DivideBy, 1))
	whole := floor(packages)
	if p.DivideRound == "up" && new(big.Rat).SetInt(whole).Cmp(packages) < 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return new(big.Rat).SetInt(whole)
}

// includes reports whether the quantity is not above the tier.
func (t Tier) includes(quantity metering.Decimal) bool {
	return t.UpTo == "inf" || quantity.Cmp(metering.MustDecimal(t.UpTo)) <= 0
}

// parts returns the invoice lines for a quantity in the tier. n is the number of the tier, from 1.
func (t Tier) parts(n int, quantity metering.Decimal) []part {
	exact := new(big.Rat).Mul(rational(quantity.String()), rational(t.UnitAmount))
	parts := []part{{tier: n, quantity: quantity, amount: notNegative(decimalOf(halfUp(exact)))}}
	if t.FlatAmount != "" {
		parts = append(parts, part{tier: n, flat: true, amount: decimalOf(halfUp(rational(t.FlatAmount)))})
	}
	return parts
}

// notNegative returns x, or 0 if x is negative.
func notNegative(x metering.Decimal) metering.Decimal {
	if x.IsNegative() {
		return metering.Whole(0)
	}
	return x
}

// check validates the form of a price.
func (p *Price) check() error {
	if len(p.Tiers) == 0 && p.TiersMode != "" {
		return fmt.Errorf("a tiered price must have tiers")
	}
	if len(p.Tiers) > 0 && (p.TiersMode != "graduated" && p.TiersMode != "volume" || p.DivideBy != 0) {
		return fmt.Errorf("tiers are graduated or volume, and without transform_quantity")
	}
	if p.DivideBy < 0 || p.DivideBy > 0 && p.DivideRound != "up" && p.DivideRound != "down" {
		return fmt.Errorf("transform_quantity divides by a positive number and rounds up or down")
	}
	below := new(big.Rat)
	for n, t := range p.Tiers {
		for _, amount := range []string{t.UnitAmount, t.FlatAmount} {
			if amount != "" && !amountPattern.MatchString(amount) {
				return fmt.Errorf("invalid decimal of a tier: %s", amount)
			}
		}
		if t.UpTo == "inf" && n == len(p.Tiers)-1 {
			return nil
		}
		if !wholePattern.MatchString(t.UpTo) || rational(t.UpTo).Cmp(below) <= 0 {
			return fmt.Errorf("tiers end at rising whole numbers, and the last at inf")
		}
		below = rational(t.UpTo)
	}
	if len(p.Tiers) > 0 {
		return fmt.Errorf("the last tier ends at inf")
	}
	return nil
}

// rational returns the value of a valid decimal; "" is 0.
func rational(decimal string) *big.Rat {
	r := new(big.Rat)
	if decimal != "" {
		r.SetString(decimal)
	}
	return r
}

// floor returns the greatest whole number that is at most x.
func floor(x *big.Rat) *big.Int { return new(big.Int).Div(x.Num(), x.Denom()) }

// halfUp rounds to a whole number. A half is rounded up.
func halfUp(x *big.Rat) *big.Int { return floor(new(big.Rat).Add(x, big.NewRat(1, 2))) }

// decimalOf converts a whole number of any length. It does not use ParseDecimal, which limits the length.
func decimalOf(n *big.Int) metering.Decimal {
	if n.IsInt64() {
		return metering.Whole(n.Int64())
	}
	const billion = 1_000_000_000
	head, tail := new(big.Int).DivMod(n, big.NewInt(billion), new(big.Int))
	return decimalOf(head).Mul(metering.Whole(billion)).Add(metering.Whole(tail.Int64()))
}
