package billing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/odometer-metering/odometer/metering"
)

// Limits that keep the text of Terms.String short. The JSON of the terms is complete.
const (
	maxListed = 5  // tiers, prices or values in a list
	maxName   = 40 // characters of a property or a value
)

// shortened returns a list of at most maxListed elements. If it omits parts, the last element states their number
// and kind, such as "3 more tiers".
func shortened(parts []string, what string) []string {
	if len(parts) <= maxListed {
		return parts
	}
	shown := maxListed - 1
	return append(slices.Clone(parts[:shown]), fmt.Sprintf("%d more %s", len(parts)-shown, what))
}

// cut shortens a name that is longer than maxName characters.
func cut(name string) string {
	if runes := []rune(name); len(runes) > maxName {
		return string(runes[:maxName]) + "…"
	}
	return name
}

// String describes the terms in words. It shortens long lists and names.
func (t Terms) String() string {
	var parts []string
	if !t.BasePrice.IsZero() {
		parts = append(parts, fmt.Sprintf("%s for the period", t.money(t.BasePrice)))
	}
	if !t.IncludedUnits.IsZero() {
		parts = append(parts, fmt.Sprintf("%s units included", t.IncludedUnits))
	}
	if t.Dimensions == nil {
		parts = append(parts, t.modelText())
	} else {
		parts = append(parts, t.dimensionsText())
	}
	if !t.MinimumCharge.IsZero() {
		parts = append(parts, "at least "+t.money(t.MinimumCharge))
	}
	if !t.MaximumCharge.IsZero() {
		parts = append(parts, "at most "+t.money(t.MaximumCharge))
	}
	return strings.Join(parts, ", ")
}

// modelText describes the model and its rates in words.
func (t Terms) modelText() string {
	switch t.Model {
	case ModelPerUnit:
		return t.unitText(t.UnitPrice)
	case ModelGraduated:
		return "tier by tier: " + t.tiersText()
	case ModelVolume:
		return "all units at the price of the tier that they reach: " + t.tiersText()
	case ModelPackage:
		return fmt.Sprintf("%s for each %d units; an incomplete package counts as one", t.money(t.PackagePrice), t.PackageSize)
	case ModelPercentage:
		text := fmt.Sprintf("%s%% of the usage", t.Percent)
		if t.FixedFee.IsZero() {
			return text
		}
		return fmt.Sprintf("%s and %s for each event", text, t.money(t.FixedFee))
	}
	return fmt.Sprintf("%s for each unit", t.money(t.OverageRate))
}

// dimensionsText lists the prices by dimension.
func (t Terms) dimensionsText() string {
	var prices []string
	for _, p := range t.Dimensions.Prices {
		prices = append(prices, fmt.Sprintf("%s: %s", p.matchText(), p.Terms(t.Currency)))
	}
	other := "otherwise: no price"
	if d := t.Dimensions.Default; d != nil {
		other = fmt.Sprintf("otherwise: %s", d.Terms(t.Currency))
	}
	return "by dimension (" + strings.Join(append(shortened(prices, "prices"), other), " | ") + ")"
}

// matchText describes the values that the price matches.
func (p DimensionPrice) matchText() string {
	var conditions []string
	for _, property := range slices.Sorted(maps.Keys(p.Match)) {
		var values []string
		for _, value := range p.Match[property] {
			values = append(values, cut(value.String()))
		}
		conditions = append(conditions, cut(property)+" "+strings.Join(shortened(values, "values"), " or "))
	}
	return strings.Join(conditions, " and ")
}

// tiersText lists the tiers, shortened to maxListed elements, and then the last tier.
func (t Terms) tiersText() string {
	var tiers []string
	for _, tier := range t.Tiers {
		text := t.unitText(tier.UnitPrice)
		if !tier.FlatFee.IsZero() {
			text = fmt.Sprintf("%s and %s", t.money(tier.FlatFee), text)
		}
		if tier.UpTo != nil {
			text = fmt.Sprintf("up to %s units: %s", tier.UpTo, text)
		} else {
			text = "beyond: " + text
		}
		tiers = append(tiers, text)
	}
	last := len(tiers) - 1 // the last tier, which has no limit, is always listed
	return strings.Join(append(shortened(tiers[:last:last], "tiers"), tiers[last]), "; ")
}

// unitText describes a unit price, with the number of units that it pays for.
func (t Terms) unitText(price metering.Decimal) string {
	if t.PerUnits <= 1 {
		return t.money(price) + " for each unit"
	}
	return fmt.Sprintf("%s for each %d units", t.money(price), t.PerUnits)
}

// money returns an amount with the currency of the terms.
func (t Terms) money(amount metering.Decimal) string { return amount.String() + " " + t.Currency }
