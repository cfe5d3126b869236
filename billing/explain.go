package billing

import (
	"encoding/json"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// Step is one step of the working of an amount: given, or worked out from steps
// before it, or from those that it is made of.
type Step struct {
	Name   string           `json:"name"`   // one of the Step names
	Amount metering.Decimal `json:"amount"` // in the unit of the step, exact
	Unit   string           `json:"unit"`   // "units", "packages", "events", "percent", or the ISO 4217 code of the currency

	Digits       *int32                  `json:"digits,omitempty"`        // that it is rounded to, half to even; nil: it is exact
	MeterVersion metering.MeterVersionID `json:"meter_version,omitempty"` // that has counted it; 0: it is not counted
	Events       int64                   `json:"events,omitempty"`        // that it is counted from; of fixed fees, that they are for
	Tier         int                     `json:"tier,omitempty"`          // its number, from 1; 0: it is of no tier
	Above        *metering.Decimal       `json:"above,omitempty"`         // charged units below the tier; nil: none
	UpTo         *metering.Decimal       `json:"up_to,omitempty"`         // last charged unit of the tier; nil: it has no end
	Rate         int                     `json:"rate,omitempty"`          // the number of the price by dimension, from 1; 0: it is of none, or of the default
	Dimension    json.RawMessage         `json:"dimension,omitempty"`     // values that its units have, by property; nil: it has units of several, or of unknown values
	PriceVersion int                     `json:"price_version,omitempty"` // that it stands in; 0: in none
	Price        string                  `json:"price,omitempty"`         // the provider's, that it is of; "": of ours
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
	StepRest          = "charged_units"           // with another model than overage: units beyond the included ones, never below zero
	StepUnitPrice     = "unit_price"              // for each of them, or for PerUnits of them
	StepPackageSize   = "package_size"            // units of a package
	StepPackages      = "packages"                // that the charged units start
	StepPackagePrice  = "package_price"           // for each of them
	StepPercent       = "percent"                 // of the charged units, which are an amount
	StepUnitCharges   = "unit_charges"            // units × unit price or percent; with tiers, the sum of these
	StepPerUnits      = "per_units"               // that the unit charges are divided by
	StepFlatFees      = "flat_fees"               // of the tiers that the charged units reach
	StepFixedFee      = "fixed_fee"               // for each counted event
	StepFixedFees     = "fixed_fees"              // counted events × fixed fee
	StepRateCharge    = "dimension_charge"        // with prices by dimension: the charge of one price for the units that it matches, with the steps above as parts
	StepDefaultCharge = "default_charge"          // the same of the default
	StepUnrated       = "unrated_units"           // that no price matches, without a default: nothing is charged for them
	StepModelCharge   = "usage_charge"            // the charge of the model: the sum of these
	StepBase          = "base_price"              // for the period
	StepMinimum       = "minimum_charge"          // that the charge is raised to
	StepMaximum       = "maximum_charge"          // that the charge is lowered to
	StepExact         = "exact_charge"            // base price + overage or usage charge, within the minimum and the maximum
	StepProvider      = "provider_charge"         // instead of these, where the provider's own price is charged: the sum of its lines
	StepPriceLine     = "price_line"              // one of these: priced units × price rate, or a fixed amount, as the provider rounds it
	StepPricedUnits   = "priced_units"            // that the rate is for: units, or packages of them
	StepPriceRate     = "price_rate"              // for each of them
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
	StepAmount        = "amount"                  // the charge less these, not below zero where amounts are billed: what is left stays booked
	StepAdjustment    = "adjustment"              // plus: the amount that late usage adds to a closed period
	StepAll           = "amount_with_adjustments" // the amount + the adjustments
	StepTier          = "tier"                    // one of the unit charges: tier units × unit price
	StepTierUnits     = "tier_units"              // of the charged units, those in the tier
	StepTierPrice     = "tier_unit_price"         // for each of them, or for PerUnits of them
	StepTierFlatFee   = "tier_flat_fee"           // one of the flat fees
	StepRateUnits     = "matched_units"           // of the usage, those that one price by dimension charges: the sum of its parts
	StepDimension     = "dimension_units"         // those with one combination of dimension values
	StepPart          = "part"                    // what one series was reported
)

// ReasonLate is why a closed period is adjusted: usage came for it later, or the
// provider was not reported all of it in time.
const ReasonLate = "late usage"

// Units of steps beside currencies.
const (
	inUnits    = "units"
	inPackages = "packages"
	inPercent  = "percent"
)

// Explain is the working of what a meter comes to in a period of
// ExpectedPeriods, to its last step: the amount of StatementOf. There is none of
// a meter that is still counting its past, or that a closed period has not known.
func (b *Books) Explain(period Period, meter metering.MeterID) []Step {
	l, _ := b.StatementOf(period).Line(meter)
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
	charge := Step{Name: StepCharge, Amount: c.charge(), Unit: c.currency, Digits: new(metering.MinorDigits(c.currency))}
	steps := c.ours()
	if c.theirs != nil { // each of its lines is rounded
		steps, charge.Digits, charge.Price = []Step{c.atProvider()}, nil, c.theirs.ID()
	}
	if c.trial {
		steps = append(steps, Step{Name: StepTrial, Amount: c.exact(), Unit: c.currency})
	}
	return append(steps, charge)
}

// atProvider is what they cost at the provider's own price, line by line.
func (c *calculation) atProvider() Step {
	all := Step{Name: StepProvider, Amount: c.exact(), Unit: c.currency, Price: c.theirs.ID()}
	for _, l := range c.theirs.Lines(c.units()) {
		line := Step{Name: StepPriceLine, Amount: l.Amount, Unit: c.currency}
		if !l.Flat {
			line.Of = []Step{{Name: StepPricedUnits, Amount: l.Priced, Unit: inUnits}, {Name: StepPriceRate, Amount: l.Rate, Unit: c.currency}}
		}
		all.Of = append(all.Of, line)
	}
	return all
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
		steps = append(steps,
			Step{Name: StepOtherUnits, Amount: c.inScale(c.others.quantity), Unit: inUnits, Digits: c.otherScale(), Of: c.others.units()})
	}
	if len(c.others.parts) > 0 && !c.trial {
		other := Step{Name: StepOther, Amount: c.elsewhereAmount(), Unit: c.currency}
		if c.theirs == nil || c.late != nil {
			other.Of = moneyIn(c.currency, c.money())
		}
		steps = append(steps, other)
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

// moneyIn are the parts in one currency.
func moneyIn(currency string, parts []elsewherePart) (steps []Step) {
	for _, p := range parts {
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
