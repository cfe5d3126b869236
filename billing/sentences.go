package billing

import "fmt"

// StepNames returns the names of all steps, in the order of a breakdown. Steps that occur only as parts of another step
// come last.
func StepNames() []string {
	return []string{
		StepUsage, StepLate, StepTotal, StepUnits, StepIncluded, StepOverage, StepRate, StepUsageFee,
		StepRest, StepUnitPrice, StepPackageSize, StepPackages, StepPackagePrice, StepPercent, StepUnitCharges, StepPerUnits, StepFlatFees, StepFixedFee, StepFixedFees, StepRateCharge, StepDefaultCharge, StepUnrated, StepModelCharge,
		StepBase, StepMinimum, StepMaximum, StepExact, StepProvider, StepTrial, StepCharge,
		StepUnbilledUnits, StepUnbilled, StepClosedUnits, StepClosed, StepOnlyUnits, StepOnly, StepOtherUnits, StepOther, StepQuantity, StepAmount, StepAdjustment, StepAll,
		StepTier, StepTierUnits, StepTierPrice, StepTierFlatFee, StepRateUnits, StepDimension, StepPriceLine, StepPricedUnits, StepPriceRate, StepPart,
	}
}

// Counted reports whether the step's amount is computed from events, so that Events applies.
func (s Step) Counted() bool {
	switch s.Name {
	case StepUsage, StepLate, StepTotal, StepFixedFees, StepUnrated, StepRateUnits, StepDimension:
		return true
	}
	return false
}

// Sentence returns one English sentence that explains the step's amount.
func (s Step) Sentence() string {
	switch s.Name {
	case StepUsage, StepLate, StepTotal, StepUnits, StepIncluded, StepOverage:
		return s.ofUnits()
	case StepRate, StepUsageFee, StepBase, StepMinimum, StepMaximum, StepExact, StepTrial, StepCharge:
		return s.ofCharge()
	case StepRest, StepUnitPrice, StepPerUnits, StepTier, StepTierUnits, StepTierPrice, StepTierFlatFee, StepFlatFees:
		return s.ofUnitPrices()
	case StepPackageSize, StepPackages, StepPackagePrice, StepPercent, StepUnitCharges, StepFixedFee, StepFixedFees, StepModelCharge:
		return s.ofModel()
	case StepProvider, StepPriceLine, StepPricedUnits, StepPriceRate:
		return s.ofProvider()
	case StepRateCharge, StepDefaultCharge, StepUnrated, StepRateUnits, StepDimension:
		return s.ofDimensions()
	case StepUnbilledUnits, StepUnbilled, StepClosedUnits, StepClosed, StepOnlyUnits, StepOnly, StepOtherUnits, StepOther:
		return s.ofDeduction()
	}
	return s.ofRest()
}

// ofUnits returns the sentence for a step from StepUsage to StepOverage.
func (s Step) ofUnits() string {
	switch {
	case s.Name == StepUsage && s.Closed == nil:
		return fmt.Sprintf("The meter's usage in the period, from %s.", counted(s.Events, "event"))
	case s.Name == StepUsage:
		return fmt.Sprintf("The meter's usage when the period was closed, from %s.", counted(s.Events, "event"))
	case s.Name == StepLate:
		return fmt.Sprintf("The usage that arrived after the period was closed, from %s.", counted(s.Events, "event"))
	case s.Name == StepTotal:
		return fmt.Sprintf("The usage when the period was closed plus the late usage, from %s.", counted(s.Events, "event"))
	case s.Name == StepUnits && *s.Digits == 0:
		return "The usage rounded half to even to whole units: the provider accepts no decimals."
	case s.Name == StepUnits:
		return fmt.Sprintf("The usage rounded half to even to %s, the most that the provider accepts.", counted(int64(*s.Digits), "decimal"))
	case s.Name == StepIncluded:
		return "The included units, which are not charged."
	}
	return "The units above the included units, never below zero."
}

// ofCharge returns the sentence for a step of the overage rate, of the base price, of the bounds, of a trial or of the
// whole charge.
func (s Step) ofCharge() string {
	switch s.Name {
	case StepRate:
		return "The price of each overage unit."
	case StepUsageFee:
		return "The overage units times the overage rate."
	case StepBase:
		return "The base price of the period, independent of usage."
	case StepMinimum:
		return "The least charge of the period."
	case StepMaximum:
		return "The greatest charge of the period."
	case StepExact:
		return "The base price plus the charge for the usage, within the minimum and the maximum charge, before rounding."
	case StepTrial:
		return "Less the whole charge: the subscription was in its trial, for which the provider charges nothing."
	}
	if s.Price != "" {
		return "The provider's charge after the deduction for a trial, if any."
	}
	return fmt.Sprintf("The exact charge rounded half to even to the minor unit of %s.", s.Unit)
}

// ofUnitPrices returns the sentence for a step of unit prices or tiers.
func (s Step) ofUnitPrices() string {
	switch s.Name {
	case StepRest:
		return "The units above the included units, which the price's model charges."
	case StepUnitPrice:
		return "The unit price. It pays for one charged unit, or for the number of units that the price states."
	case StepPerUnits:
		return "The number of units that one unit price pays for. The unit charges are divided by it."
	case StepTier:
		return "The units in the tier times the tier's unit price."
	case StepTierUnits:
		return "The charged units in the tier. With the model volume, all charged units."
	case StepTierPrice:
		return "The tier's unit price. It pays for one unit, or for the number of units that the price states."
	case StepTierFlatFee:
		return "The tier's flat fee."
	}
	return "The sum of the flat fees of the tiers that the charged units reach."
}

// ofModel returns the sentence for a step of packages, of a percentage, of fees per event or of the model's charge.
func (s Step) ofModel() string {
	switch s.Name {
	case StepPackageSize:
		return "The number of units in a package."
	case StepPackages:
		return "The number of started packages."
	case StepPackagePrice:
		return "The price of each started package."
	case StepPercent:
		return "The percentage of the charged units, which are an amount of money."
	case StepUnitCharges:
		return "The charge for the units before fees, and before division by the number of units that a unit price pays for."
	case StepFixedFee:
		return "The fee for each counted event."
	case StepFixedFees:
		return fmt.Sprintf("The fixed fee times %s.", counted(s.Events, "event"))
	}
	return "The charge of the price's model: the unit charges, the packages and the fees."
}

// ofDimensions returns the sentence for a step of prices by dimension.
func (s Step) ofDimensions() string {
	switch s.Name {
	case StepRateCharge:
		return fmt.Sprintf("The charge of price %d of the prices by dimension.", s.Rate)
	case StepDefaultCharge:
		return "The charge of the default price by dimension."
	case StepUnrated:
		return "The units that no price by dimension charges" + s.fromEvents()
	case StepRateUnits:
		return "The usage that the price charges as one quantity" + s.fromEvents()
	}
	if s.Dimension == nil {
		return "The units with other or unknown dimension values" + s.fromEvents()
	}
	return "The units with these dimension values" + s.fromEvents()
}

// fromEvents returns the end of a sentence, with the event count. Calculated usage has none.
func (s Step) fromEvents() string {
	if s.Events == 0 {
		return "."
	}
	return fmt.Sprintf(", from %s.", counted(s.Events, "event"))
}

// ofProvider returns the sentence for a step of the provider's own price.
func (s Step) ofProvider() string {
	switch s.Name {
	case StepProvider:
		return "The charge at the provider's own price " + s.Price + ": the sum of its invoice lines."
	case StepPricedUnits:
		return "The number of units, or of packages of units, to which the rate applies."
	case StepPriceRate:
		return "The provider's price for each unit or package."
	}
	if len(s.Of) == 0 {
		return "A fixed amount of the provider's price."
	}
	return "The priced units times the price rate, rounded as the provider rounds each line."
}

// ofDeduction returns the sentence for a step that deducts units or amounts.
func (s Step) ofDeduction() string {
	switch s.Name {
	case StepUnbilledUnits:
		return "Less the units that final invoices do not bill, or that were not reported to the provider."
	case StepUnbilled:
		return "Less the charge for these units, which is billed with a later period."
	case StepClosedUnits:
		return "Less the units already billed with the period."
	case StepClosed:
		return "Less the charge already billed with the period."
	case StepOnlyUnits:
		return "Less the units that are not billed under the late policy in force when they arrived."
	case StepOnly:
		return "Less the charge for the units that are not billed under the late policy in force when they arrived."
	case StepOtherUnits:
		return "Less the units already billed through other series of reports."
	}
	return "Less the amounts already billed in this currency through other series of reports."
}

// ofRest returns the sentence for a step of the remaining units and amount, of adjustments, or of one series.
func (s Step) ofRest() string {
	switch s.Name {
	case StepQuantity:
		return "The units that remain to be billed."
	case StepAmount:
		return "The amount that remains to be billed."
	case StepAdjustment:
		return fmt.Sprintf("Plus the change in a closed period's amount because of %s.", s.Reason)
	case StepAll:
		return "The amount including the adjustments billed with the period."
	}
	return "The part that one series of reports has billed."
}

// counted returns the number and the noun, in the plural unless n is 1.
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
