package stripe

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	stripego "github.com/stripe/stripe-go/v76"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// currentVersion is the API version for reading prices.
const currentVersion = "2026-04-22.dahlia"

// Price is a stored Stripe price. Its amounts are in the currency's smallest unit, as at Stripe. Stripe
// never changes these fields of a price: https://docs.stripe.com/api/prices/update
type Price struct {
	Schema     int                   `json:"schema"`
	Provider   metering.ProviderKind `json:"provider"`
	PriceID    string                `json:"price"`
	ISO        string                `json:"currency"` // ISO 4217
	UnitAmount metering.Decimal      `json:"unit_amount"`
	DivideBy   int64                 `json:"divide_by,omitempty"` // number of units that UnitAmount pays for; 0: 1
	RoundUp    bool                  `json:"round_up,omitempty"`  // an incomplete package is charged as one; false: it is free
	Volume     bool                  `json:"volume,omitempty"`    // the last reached tier applies to all units
	Tiers      []Tier                `json:"tiers,omitempty"`     // instead of UnitAmount
}

// Tier is one tier of a graduated or volume price.
type Tier struct {
	UpTo       *metering.Decimal `json:"up_to"` // last quantity in the tier; nil: no limit, as in the last tier
	UnitAmount metering.Decimal  `json:"unit_amount"`
	FlatAmount *metering.Decimal `json:"flat_amount"` // nil: none
}

// ReadPrice decodes a stored price.
func ReadPrice(terms []byte) (billing.ProviderPrice, error) {
	var p Price
	if err := json.Unmarshal(terms, &p); err != nil {
		return nil, fmt.Errorf("read price: %w", err)
	}
	return p, nil
}

// ID returns the price's id at Stripe.
func (p Price) ID() string { return p.PriceID }

// Currency returns the ISO 4217 code.
func (p Price) Currency() string { return p.ISO }

// JSON returns the encoding for storage.
func (p Price) JSON() []byte {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // numbers and strings always encode
	}
	return text
}

// Lines returns the lines of Stripe's invoice: one for each tier that the quantity reaches, and another one
// for the tier's flat amount, even without usage
// (https://docs.stripe.com/products-prices/pricing-models#tiered-pricing). A negative quantity is billed as
// 0 (https://docs.stripe.com/billing/subscriptions/usage-based/meters/configure). Each line is rounded
// separately to the smallest unit, half up
// (https://docs.stripe.com/billing/subscriptions/usage-based/recording-usage-api).
func (p Price) Lines(units metering.Decimal) (lines []billing.PriceLine) {
	if len(p.Tiers) == 0 {
		return []billing.PriceLine{p.line(units, p.packages(units), p.UnitAmount)}
	}
	var from metering.Decimal
	for n, t := range p.Tiers {
		last := t.UpTo == nil || units.Cmp(*t.UpTo) <= 0
		switch {
		case p.Volume && !last:
			continue
		case p.Volume:
			return p.tier(t, units)
		case n > 0 && units.Cmp(from) <= 0:
			return lines
		case last:
			return append(lines, p.tier(t, units.Sub(from))...)
		}
		lines = append(lines, p.tier(t, t.UpTo.Sub(from))...)
		from = *t.UpTo
	}
	return lines
}

// packages returns the quantity by which Stripe multiplies the unit amount:
// https://docs.stripe.com/api/prices/create#create_price-transform_quantity
func (p Price) packages(units metering.Decimal) metering.Decimal {
	if p.DivideBy == 0 {
		return units
	}
	whole, rest := units.DivMod(p.DivideBy)
	if p.RoundUp && !rest.IsZero() {
		return whole.Add(metering.Whole(1))
	}
	return whole
}

// tier returns the invoice lines of units in a tier: one for the units and, if the tier has a flat amount, one for
// that.
func (p Price) tier(t Tier, units metering.Decimal) []billing.PriceLine {
	lines := []billing.PriceLine{p.line(units, units, t.UnitAmount)}
	if t.FlatAmount != nil {
		lines = append(lines, billing.PriceLine{Flat: true, Amount: Amount(halfUp(*t.FlatAmount), p.ISO)})
	}
	return lines
}

// line returns the invoice line of units. priced is the quantity that rate multiplies: units or packages.
func (p Price) line(units, priced, rate metering.Decimal) billing.PriceLine {
	return billing.PriceLine{Units: units, Priced: priced, Rate: Amount(rate, p.ISO), Amount: Amount(halfUp(priced.Mul(rate)), p.ISO)}
}

// halfUp rounds to a whole number, half up. Negative numbers become 0.
func halfUp(x metering.Decimal) metering.Decimal {
	if x.IsNegative() {
		return metering.Decimal{}
	}
	whole := x.Round(0)
	if x.Sub(whole).Equal(metering.MustDecimal("0.5")) {
		return whole.Add(metering.Whole(1))
	}
	return whole
}

// Terms returns the Odometer terms that charge the same amounts, except for rounding. same is false if the
// price does not charge incomplete packages, because Odometer has no such terms.
func (p Price) Terms() (t billing.Terms, same bool) {
	t.Currency = p.ISO
	switch n := len(p.Tiers); {
	case p.DivideBy != 0 && !p.RoundUp:
		return t, false
	case p.DivideBy != 0:
		t.Model, t.PackageSize, t.PackagePrice = billing.ModelPackage, p.DivideBy, Amount(p.UnitAmount, p.ISO)
		return t, true
	case n == 0:
		t.OverageRate = Amount(p.UnitAmount, p.ISO)
		return t, true
	case n == 1:
		t.BasePrice, t.OverageRate = Amount(flatOf(p.Tiers[0]), p.ISO), Amount(p.Tiers[0].UnitAmount, p.ISO)
		return t, true
	case n > 2 || p.Volume || !p.Tiers[0].UnitAmount.IsZero() || !flatOf(p.Tiers[1]).IsZero():
		return p.tieredTerms(), true
	}
	t.BasePrice, t.IncludedUnits, t.OverageRate = Amount(flatOf(p.Tiers[0]), p.ISO), *p.Tiers[0].UpTo, Amount(p.Tiers[1].UnitAmount, p.ISO)
	return t, true
}

// tieredTerms returns the terms of a price with tiers.
func (p Price) tieredTerms() billing.Terms {
	t := billing.Terms{Currency: p.ISO, Model: billing.ModelGraduated}
	if p.Volume {
		t.Model = billing.ModelVolume
	}
	for _, tier := range p.Tiers {
		t.Tiers = append(t.Tiers, billing.Tier{UpTo: tier.UpTo, UnitPrice: Amount(tier.UnitAmount, p.ISO), FlatFee: Amount(flatOf(tier), p.ISO)})
	}
	return t
}

// flatOf returns the flat amount of a tier, or 0.
func flatOf(t Tier) (flat metering.Decimal) {
	if t.FlatAmount != nil {
		flat = *t.FlatAmount
	}
	return flat
}

// String describes the price in words.
func (p Price) String() string {
	if t, same := p.Terms(); same {
		return t.String()
	}
	return fmt.Sprintf("%s %s for each %d units; an incomplete package counts as none", Amount(p.UnitAmount, p.ISO), p.ISO, p.DivideBy)
}

// shownPrice is a price of the API with its tiers, as priceOfItem reads it.
type shownPrice struct {
	ID         string    `json:"id"`
	Currency   string    `json:"currency"`
	Scheme     string    `json:"billing_scheme"`
	UnitAmount *quantity `json:"unit_amount_decimal"`
	Transform  *struct {
		DivideBy int64  `json:"divide_by"`
		Round    string `json:"round"`
	} `json:"transform_quantity"`
	Mode  string      `json:"tiers_mode"`
	Tiers []shownTier `json:"tiers"`
}

type shownTier struct {
	UpTo       *metering.Decimal `json:"up_to"`
	UnitAmount *quantity         `json:"unit_amount_decimal"`
	FlatAmount *quantity         `json:"flat_amount_decimal"`
}

// quantity is a decimal that the API encodes as a string.
type quantity struct{ metering.Decimal }

func (q *quantity) UnmarshalJSON(text []byte) error {
	return q.Decimal.UnmarshalJSON([]byte(strings.Trim(string(text), `"`)))
}

// orNone returns the quantity, or 0 if it is missing.
func (q *quantity) orNone() (d metering.Decimal) {
	if q != nil {
		d = q.Decimal
	}
	return d
}

// priceOfItem reads the price that Stripe charges for the units of an item. If Odometer does not support the price,
// priceOfItem returns the reason instead. It caches prices, because these fields of a price never change.
func (c *Client) priceOfItem(ctx context.Context, key string, i Item) (billing.ProviderPrice, string, error) {
	at := objectKey{sha256.Sum256([]byte(key)), i.PriceID}
	shown, known := c.prices.Get(at)
	if !known {
		path := stripego.FormatURLPath("/v1/prices/%s", i.PriceID)
		if err := c.readAs(ctx, key, currentVersion, path, query("expand[]", "tiers"), &shown); err != nil {
			return nil, "", fmt.Errorf("get price: %w", err)
		}
		c.prices.Add(at, shown)
	}
	p, reason := shown.priceIn(i.Currency)
	if reason != "" {
		return nil, fmt.Sprintf("Stripe's price %s %s", i.PriceID, reason), nil
	}
	return p, "", nil
}

// priceIn converts the price of an item that is billed in the currency, or returns the reason why the price is not
// supported.
func (s shownPrice) priceIn(currency string) (Price, string) {
	p, reason := s.price()
	if reason == "" && currency != p.ISO {
		reason = fmt.Sprintf("is billed in %s through a currency option, which is not supported", currency)
	}
	return p, reason
}

// price converts the price of the API to the price to store, or returns the reason why the price is not supported.
func (s shownPrice) price() (p Price, reason string) {
	p = Price{Schema: billing.ProviderTermsSchema, Provider: metering.Stripe, PriceID: s.ID, ISO: strings.ToUpper(s.Currency)}
	switch {
	case s.Scheme == "tiered":
		return s.addTiers(p)
	case s.Scheme != "per_unit":
		return p, fmt.Sprintf("has the billing scheme %q, which is not supported", s.Scheme)
	case s.UnitAmount == nil:
		return p, "has no unit amount, which is not supported"
	}
	p.UnitAmount = s.UnitAmount.Decimal
	if s.Transform != nil {
		if s.Transform.DivideBy <= 0 || s.Transform.Round != "up" && s.Transform.Round != "down" {
			return p, "transforms quantities in a way that is not supported"
		}
		p.DivideBy, p.RoundUp = s.Transform.DivideBy, s.Transform.Round == "up"
	}
	return p, ""
}

// addTiers returns p with the price's tiers, or the reason why the tiers are not supported.
func (s shownPrice) addTiers(p Price) (Price, string) {
	switch {
	case len(s.Tiers) == 0:
		return p, "does not show its tiers"
	case s.Mode != "graduated" && s.Mode != "volume":
		return p, fmt.Sprintf("has the tiers mode %q, which is not supported", s.Mode)
	case s.Transform != nil:
		return p, "transforms quantities in a way that is not supported"
	}
	p.Volume = s.Mode == "volume"
	for n, t := range s.Tiers {
		last := n == len(s.Tiers)-1
		if (t.UpTo == nil) != last || n > 0 && !last && t.UpTo.Cmp(*s.Tiers[n-1].UpTo) <= 0 {
			return p, "has tiers that are not in ascending order"
		}
		tier := Tier{UpTo: t.UpTo, UnitAmount: t.UnitAmount.orNone()}
		if t.FlatAmount != nil {
			tier.FlatAmount = &t.FlatAmount.Decimal
		}
		p.Tiers = append(p.Tiers, tier)
	}
	return p, ""
}
