package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// Step is one step of the working of an amount: given, or worked out from steps
// before it, or from those that it is made of.
type Step struct {
	Name   string           `json:"name"`   // one of the Step names
	Amount metering.Decimal `json:"amount"` // in the unit of the step, exact
	Unit   string           `json:"unit"`   // "units", or the ISO 4217 code of the currency

	Digits       *int32                  `json:"digits,omitempty"`        // that it is rounded to, half to even; nil: it is not rounded
	MeterVersion metering.MeterVersionID `json:"meter_version,omitempty"` // that has counted it; 0: it is not counted
	Events       int64                   `json:"events,omitempty"`        // that it is counted from
	PriceVersion int                     `json:"price_version,omitempty"` // that it stands in; 0: in none
	Closed       *metering.Range         `json:"-"`                       // the closed period that it is of
	Reason       string                  `json:"reason,omitempty"`        // why there is an adjustment
	Series       *Series                 `json:"-"`                       // that it was reported in
	Of           []Step                  `json:"of,omitempty"`            // what it is the sum of; of an adjustment, its working
}

// The names of steps, in the order in which they come. One stands only where it
// does something.
const (
	StepUsage         = "usage"                   // what the meter has counted; of a closed period, until its closing
	StepLate          = "late_usage"              // what it has counted of a closed period since
	StepTotal         = "total_usage"             // usage + late usage
	StepUnits         = "reported_units"          // the usage in the decimals that the provider takes
	StepIncluded      = "included_units"          // of the units, what the base price covers
	StepOverage       = "overage_units"           // units beyond the included ones, never below zero
	StepRate          = "overage_rate"            // for each of them
	StepUsageFee      = "overage_charge"          // overage units × overage rate
	StepBase          = "base_price"              // for the period
	StepExact         = "exact_charge"            // base price + overage charge
	StepTrial         = "trial"                   // less: all of it, where the subscription was in trial
	StepCharge        = "charge"                  // what is left of it, in the currency's minor unit
	StepUnbilledUnits = "unbilled_units"          // less: the units that the closed period is not billed with
	StepUnbilled      = "unbilled_charge"         // less: the charge for them
	StepClosedUnits   = "closed_units"            // less: the units that the closed period is billed with
	StepClosed        = "closed_charge"           // less: the charge for them
	StepOnlyUnits     = "only_reported_units"     // less: the units that the late policy has only reported
	StepOnly          = "only_reported"           // less: the charge for them
	StepOtherUnits    = "elsewhere_units"         // less: the units that were billed elsewhere, each there
	StepOther         = "billed_elsewhere"        // less: the amounts for them
	StepQuantity      = "quantity"                // the units less these, not below zero where the provider takes nothing below
	StepAmount        = "amount"                  // the charge less these
	StepAdjustment    = "adjustment"              // plus: the amount that late usage adds to a closed period
	StepAll           = "amount_with_adjustments" // the amount + the adjustments
	StepPart          = "part"                    // what one series was reported
)

// ReasonLate is why a closed period is adjusted: usage came for it later, or the
// provider was not reported all of it in time.
const ReasonLate = "late usage"

const inUnits = "units"

// Explain is the working of what a meter comes to in a period of
// ExpectedPeriods, to its last step: the amount of StatementOf. There is none of
// a meter that is still counting its past, or that a closed period has not known.
func Explain(f Facts, period Period, meter metering.MeterID) []Step {
	l, _ := StatementOf(f, period).Line(meter)
	return l.Working
}

// steps are the working of the line that a calculation comes to.
func (c *calculation) steps() []Step {
	return slices.Concat(c.counted(), c.charged(), c.less())
}

// counted is how many units are charged.
func (c *calculation) counted() []Step {
	steps := []Step{{Name: StepUsage, Amount: c.usage, Unit: inUnits, MeterVersion: c.version, Events: c.events}}
	if c.late != nil {
		closed := c.late.closed
		steps[0].Closed = &closed
		steps = append(steps,
			Step{Name: StepLate, Amount: c.late.usage, Unit: inUnits, Events: c.late.events, Closed: &closed},
			Step{Name: StepTotal, Amount: c.total(), Unit: inUnits, Events: c.events + c.late.events})
	}
	if c.scale != nil {
		steps = append(steps, Step{Name: StepUnits, Amount: c.units(), Unit: inUnits, Digits: c.scale})
	}
	return steps
}

// charged is what they cost.
func (c *calculation) charged() []Step {
	units, price, digits := c.units(), c.price, MinorDigits(c.currency)
	steps := []Step{
		{Name: StepIncluded, Amount: price.IncludedUnits, Unit: inUnits, PriceVersion: price.Version},
		{Name: StepOverage, Amount: price.Overage(units), Unit: inUnits},
		{Name: StepRate, Amount: price.OverageRate, Unit: c.currency, PriceVersion: price.Version},
		{Name: StepUsageFee, Amount: price.overageCharge(units), Unit: c.currency},
		{Name: StepBase, Amount: price.BasePrice, Unit: c.currency, PriceVersion: price.Version},
		{Name: StepExact, Amount: price.Charge(units), Unit: c.currency},
	}
	if c.trial {
		steps = append(steps, Step{Name: StepTrial, Amount: price.Charge(units), Unit: c.currency})
	}
	return append(steps, Step{Name: StepCharge, Amount: c.charge(), Unit: c.currency, Digits: &digits})
}

// less is what was billed already, here or elsewhere, and what is left.
func (c *calculation) less() (steps []Step) {
	if c.late != nil {
		closed := c.late.closed
		steps = append(steps,
			Step{Name: StepClosedUnits, Amount: c.closed.billedUnits(), Unit: inUnits, Closed: &closed},
			Step{Name: StepClosed, Amount: c.closed.billedCharge(), Unit: c.currency, Closed: &closed})
	}
	if c.late == nil && c.closed != nil && c.closed.unreported() {
		steps = append(steps,
			Step{Name: StepUnbilledUnits, Amount: c.units().Sub(c.quantity()), Unit: inUnits},
			Step{Name: StepUnbilled, Amount: c.charge().Sub(c.amount()), Unit: c.currency})
	}
	if c.late != nil && !(c.late.onlyReported.IsZero() && c.late.onlyReportedCharge.IsZero()) {
		steps = append(steps,
			Step{Name: StepOnlyUnits, Amount: c.late.onlyReported, Unit: inUnits},
			Step{Name: StepOnly, Amount: c.late.onlyReportedCharge, Unit: c.currency})
	}
	if len(c.others.parts) > 0 {
		quantity, scale := c.others.quantity, c.otherScale()
		if scale != nil {
			quantity = Units(quantity, *scale)
		}
		steps = append(steps,
			Step{Name: StepOtherUnits, Amount: quantity, Unit: inUnits, Digits: scale, Of: c.others.units()})
	}
	if len(c.others.parts) > 0 && !c.trial {
		steps = append(steps, Step{Name: StepOther, Amount: c.others.amountIn(c.currency), Unit: c.currency, Of: c.others.moneyIn(c.currency)})
	}
	if len(steps) == 0 && c.quantity().Equal(c.units()) {
		return nil
	}
	return append(steps,
		Step{Name: StepQuantity, Amount: c.quantity(), Unit: inUnits},
		Step{Name: StepAmount, Amount: c.amount(), Unit: c.currency})
}

func (e elsewhere) units() []Step {
	steps := make([]Step, len(e.parts))
	for i, p := range e.parts {
		steps[i] = Step{Name: StepPart, Amount: p.quantity, Unit: inUnits, Series: &p.series}
	}
	return steps
}

func (e elsewhere) moneyIn(currency string) (steps []Step) {
	for _, p := range e.parts {
		if p.currency == currency {
			steps = append(steps, Step{Name: StepPart, Amount: p.amount, Unit: currency, Series: &p.series})
		}
	}
	return steps
}

// adjusted goes on from the working of an amount with the meter's adjustments in
// the same currency.
func adjusted(steps []Step, adjustments []Adjustment) []Step {
	own := steps[len(steps)-1]
	sum := own.Amount
	for _, a := range adjustments {
		if a.Currency != own.Unit {
			continue // it stands by itself
		}
		sum = sum.Add(a.Amount)
		steps = append(steps, Step{Name: StepAdjustment, Amount: a.Amount, Unit: a.Currency, Closed: &a.Closed, Reason: a.Reason, Of: a.Working})
	}
	if steps[len(steps)-1].Name == StepAdjustment {
		steps = append(steps, Step{Name: StepAll, Amount: sum, Unit: own.Unit})
	}
	return steps
}
