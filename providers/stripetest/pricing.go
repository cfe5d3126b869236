package stripetest

import (
	"fmt"
	"math/big"

	"github.com/odometer-metering/odometer/metering"
)

// Tier is a step of a price. Amounts are decimals of the smallest unit, "" is none.
type Tier struct {
	UpTo       string `json:"up_to"` // the last quantity of the tier; "inf" in the last tier
	UnitAmount string `json:"unit_amount_decimal"`
	FlatAmount string `json:"flat_amount_decimal"`
}

// cost is what a quantity costs, in the currency's smallest unit: never below
// zero (https://docs.stripe.com/billing/subscriptions/usage-based/recording-usage-api),
// and half a smallest unit is one. That a graduated price is rounded once, and
// not for each tier, is assumed.
func (p *Price) cost(quantity metering.Decimal) metering.Decimal {
	q := p.transformed(rational(quantity.String()))
	if q.Sign() < 0 {
		q = new(big.Rat)
	}
	exact := new(big.Rat)
	switch p.TiersMode {
	case "volume":
		exact = p.volume(q)
	case "graduated":
		exact = p.graduated(q)
	default:
		exact.Mul(q, rational(p.UnitAmount))
	}
	return decimalOf(halfUp(exact))
}

// transformed is https://docs.stripe.com/api/prices/create#create_price-transform_quantity
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

// volume prices all of a quantity by the tier that it ends in.
func (p *Price) volume(quantity *big.Rat) *big.Rat {
	for _, t := range p.Tiers {
		if t.UpTo == "inf" || quantity.Cmp(rational(t.UpTo)) <= 0 {
			return t.of(quantity)
		}
	}
	return new(big.Rat)
}

// graduated prices each part of a quantity by its tier. That the first tier's
// flat amount is due though nothing was used is assumed.
func (p *Price) graduated(quantity *big.Rat) *big.Rat {
	total, from := new(big.Rat), new(big.Rat)
	for n, t := range p.Tiers {
		if n > 0 && quantity.Cmp(from) <= 0 {
			break
		}
		to := quantity
		if t.UpTo != "inf" && quantity.Cmp(rational(t.UpTo)) > 0 {
			to = rational(t.UpTo)
		}
		total.Add(total, t.of(new(big.Rat).Sub(to, from)))
		from = to
	}
	return total
}

func (t Tier) of(quantity *big.Rat) *big.Rat {
	exact := new(big.Rat).Mul(quantity, rational(t.UnitAmount))
	return exact.Add(exact, rational(t.FlatAmount))
}

// check says what is wrong with a price's form.
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

// rational is a checked decimal; "" is none.
func rational(decimal string) *big.Rat {
	r := new(big.Rat)
	if decimal != "" {
		r.SetString(decimal)
	}
	return r
}

// floor is the greatest whole number that isn't above x.
func floor(x *big.Rat) *big.Int { return new(big.Int).Div(x.Num(), x.Denom()) }

func halfUp(x *big.Rat) *big.Int { return floor(new(big.Rat).Add(x, big.NewRat(1, 2))) }

// tierIncluded makes tiers of a seed's included units.
func (p *Price) tierIncluded() {
	if len(p.Tiers) > 0 || p.IncludedUnits == "0" && p.FlatAmount == "0" {
		return
	}
	p.TiersMode = "graduated"
	if p.IncludedUnits == "0" {
		p.Tiers = []Tier{{UpTo: "inf", UnitAmount: p.UnitAmount, FlatAmount: p.FlatAmount}}
		return
	}
	p.Tiers = []Tier{{UpTo: p.IncludedUnits, FlatAmount: p.FlatAmount}, {UpTo: "inf", UnitAmount: p.UnitAmount}}
}

// decimalOf takes whole numbers of any length; not every Decimal can be read.
func decimalOf(n *big.Int) metering.Decimal {
	if n.IsInt64() {
		return metering.Whole(n.Int64())
	}
	const billion = 1_000_000_000
	head, tail := new(big.Int).DivMod(n, big.NewInt(billion), new(big.Int))
	return decimalOf(head).Mul(metering.Whole(billion)).Add(metering.Whole(tail.Int64()))
}
