package billing

import "fmt"

// StepNames are the names of steps, in the order in which they come; those of
// parts of another step are the last.
func StepNames() []string {
	return []string{
		StepUsage, StepLate, StepTotal, StepUnits, StepIncluded, StepOverage, StepRate, StepUsageFee, StepBase, StepExact, StepProvider, StepTrial, StepCharge,
		StepUnbilledUnits, StepUnbilled, StepClosedUnits, StepClosed, StepOnlyUnits, StepOnly, StepOtherUnits, StepOther, StepQuantity, StepAmount, StepAdjustment, StepAll,
		StepPriceLine, StepPricedUnits, StepPriceRate, StepPart,
	}
}

// Counted says whether the step is counted from events.
func (s Step) Counted() bool { return s.Name == StepUsage || s.Name == StepLate || s.Name == StepTotal }

// Sentence says in plain English what the step's amount is.
func (s Step) Sentence() string {
	switch s.Name {
	case StepUsage, StepLate, StepTotal, StepUnits, StepIncluded, StepOverage:
		return s.ofUnits()
	case StepRate, StepUsageFee, StepBase, StepExact, StepTrial, StepCharge:
		return s.ofCharge()
	case StepProvider, StepPriceLine, StepPricedUnits, StepPriceRate:
		return s.ofProvider()
	}
	return s.ofRest()
}

func (s Step) ofUnits() string {
	switch {
	case s.Name == StepUsage && s.Closed == nil:
		return fmt.Sprintf("What the meter has counted in the period, from %s.", counted(s.Events, "event"))
	case s.Name == StepUsage:
		return fmt.Sprintf("What the meter had counted when the period was closed, from %s.", counted(s.Events, "event"))
	case s.Name == StepLate:
		return fmt.Sprintf("What the meter has counted of the closed period since, from %s.", counted(s.Events, "event"))
	case s.Name == StepTotal:
		return fmt.Sprintf("The usage until the closing and the late usage, from %s.", counted(s.Events, "event"))
	case s.Name == StepUnits && *s.Digits == 0:
		return "The usage in whole units, rounded half to even: the provider takes no decimals."
	case s.Name == StepUnits:
		return fmt.Sprintf("The usage rounded half to even to %s: the provider takes no more.", counted(int64(*s.Digits), "decimal"))
	case s.Name == StepIncluded:
		return "The units that the base price covers."
	}
	return "The units beyond the included ones, never below zero."
}

func (s Step) ofCharge() string {
	switch s.Name {
	case StepRate:
		return "The price of each unit beyond the included ones."
	case StepUsageFee:
		return "The overage units times the overage rate."
	case StepBase:
		return "The price of the period itself, whatever the usage."
	case StepExact:
		return "The base price plus the overage charge, exactly."
	case StepTrial:
		return "Less: all of it, because the subscription was in trial then, for which the provider charges nothing."
	}
	if s.Price != "" {
		return "What is left of the provider's charge."
	}
	return fmt.Sprintf("The exact charge rounded half to even to the minor unit of %s.", s.Unit)
}

func (s Step) ofProvider() string {
	switch s.Name {
	case StepProvider:
		return "The charge at the provider's own price " + s.Price + ", as the lines of its invoice."
	case StepPricedUnits:
		return "The units that the rate is for, or the packages of them."
	case StepPriceRate:
		return "The provider's price of each of them."
	}
	if len(s.Of) == 0 {
		return "A fixed amount of the provider's price."
	}
	return "The priced units times their rate, rounded as the provider rounds each line."
}

func (s Step) ofRest() string {
	switch s.Name {
	case StepUnbilledUnits:
		return "Less: the units that final invoices do not bill, or that the provider was not reported."
	case StepUnbilled:
		return "Less: the charge for these units, which a later period carries."
	case StepClosedUnits:
		return "Less: the units that the period was billed with."
	case StepClosed:
		return "Less: the charge that the period was billed with."
	case StepOnlyUnits:
		return "Less: the units that are only reported, as the late policy said when they came."
	case StepOnly:
		return "Less: the charge for what is only reported, as the late policy said when it came."
	case StepOtherUnits:
		return "Less: the units that other series of reports have billed."
	case StepOther:
		return "Less: the amounts that other series of reports have billed in this currency."
	case StepQuantity:
		return "The units that are left to bill."
	case StepAmount:
		return "The amount that is left to bill."
	case StepAdjustment:
		return fmt.Sprintf("Plus: what a closed period comes to more because of %s.", s.Reason)
	case StepAll:
		return "The amount with the adjustments that the period carries."
	}
	return "What one series of reports has billed of it."
}

func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
