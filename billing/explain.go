package billing

import "github.com/odometer-metering/odometer/metering"

// Step is one step of the working of a charge.
type Step struct {
	Name   string           // one of the Step names
	Amount metering.Decimal // in the unit of the step
	Unit   string           // "units", or the ISO 4217 code of the currency
}

// The names of steps, in the order in which they come.
const (
	StepUsage    = "usage"          // what the meter has counted
	StepIncluded = "included_units" // of it, what the base price covers
	StepOverage  = "overage_units"  // usage beyond the included units, never below zero
	StepRate     = "overage_rate"   // for each of them
	StepUsageFee = "overage_charge" // overage units × overage rate
	StepBase     = "base_price"     // for the period
	StepExact    = "exact_charge"   // base price + overage charge
	StepCharge   = "charge"         // the exact charge in the currency's minor unit, half to even
)

const inUnits = "units"

// Explain is the working of a charge: its last step is what is charged.
func Explain(price Price, usage metering.Decimal, currency string) []Step {
	over := price.Overage(usage)
	exact := price.Charge(usage)
	return []Step{
		{StepUsage, usage, inUnits},
		{StepIncluded, price.IncludedUnits, inUnits},
		{StepOverage, over, inUnits},
		{StepRate, price.OverageRate, currency},
		{StepUsageFee, over.Mul(price.OverageRate), currency},
		{StepBase, price.BasePrice, currency},
		{StepExact, exact, currency},
		{StepCharge, price.ChargeIn(currency, usage), currency},
	}
}
