package billing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/odometer-metering/odometer/metering"
)

// String returns what the terms charge, in words.
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
	return "by dimension (" + strings.Join(append(prices, other), " | ") + ")"
}

func (p DimensionPrice) matchText() string {
	var conditions []string
	for _, property := range slices.Sorted(maps.Keys(p.Match)) {
		var values []string
		for _, value := range p.Match[property] {
			values = append(values, value.String())
		}
		conditions = append(conditions, property+" "+strings.Join(values, " or "))
	}
	return strings.Join(conditions, " and ")
}

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
	return strings.Join(tiers, "; ")
}

func (t Terms) unitText(price metering.Decimal) string {
	if t.PerUnits <= 1 {
		return t.money(price) + " for each unit"
	}
	return fmt.Sprintf("%s for each %d units", t.money(price), t.PerUnits)
}

func (t Terms) money(amount metering.Decimal) string { return amount.String() + " " + t.Currency }
