package billing

import (
	"encoding/json"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// Step is one step in the breakdown of an amount. Its amount is given, or is computed from earlier steps or from its
// parts (Of).
type Step struct {
	Name   string           `json:"name"`   // one of the Step constants
	Amount metering.Decimal `json:"amount"` // in Unit; exact, or rounded to Digits
	Unit   string           `json:"unit"`   // "units", "packages", "percent", or the ISO 4217 code of a currency

	Digits       *int32                  `json:"digits,omitempty"`        // decimals to which Amount is rounded, half to even; nil: no such rounding
	MeterVersion metering.MeterVersionID `json:"meter_version,omitempty"` // meter version that counted the usage; 0 except in StepUsage
	Events       int64                   `json:"events,omitempty"`        // number of events that the units are counted from, or that the fixed fees are charged for
	Tier         int                     `json:"tier,omitempty"`          // number of the tier, from 1; 0: not the step of a tier
	Above        *metering.Decimal       `json:"above,omitempty"`         // number of charged units below the tier; nil: none
	UpTo         *metering.Decimal       `json:"up_to,omitempty"`         // last charged unit of the tier; nil: no upper bound
	Rate         int                     `json:"rate,omitempty"`          // number of the price by dimension, from 1; 0: the default price, or no such price
	Dimension    json.RawMessage         `json:"dimension,omitempty"`     // dimension values of the units, by property; nil: several combinations, or unknown values
	PriceVersion int                     `json:"price_version,omitempty"` // version of the price with this value; 0: not a value of a price
	Price        string                  `json:"price,omitempty"`         // id of the provider's own price that is charged; "": none
	Closed       *metering.Range         `json:"-"`                       // closed period to which Amount belongs; nil: none
	Reason       string                  `json:"reason,omitempty"`        // reason for an adjustment; "" in other steps
	Series       *Series                 `json:"-"`                       // series that billed the part; nil except in StepPart
	Of           []Step                  `json:"of,omitempty"`            // parts of Amount; for an adjustment, its breakdown
}

// Names of steps, in the order of a breakdown. A breakdown contains only the steps that apply to it.
const (
	StepUsage         = "usage"                   // usage of the meter in the period; of a closed period, as of the close
	StepLate          = "late_usage"              // usage of a closed period that arrived after the close
	StepTotal         = "total_usage"             // usage + late usage
	StepUnits         = "reported_units"          // usage, rounded to the decimals that the provider accepts
	StepIncluded      = "included_units"          // units that the base price covers
	StepOverage       = "overage_units"           // units beyond the included ones, never below zero
	StepRate          = "overage_rate"            // price of each overage unit
	StepUsageFee      = "overage_charge"          // overage units × overage rate
	StepRest          = "charged_units"           // with models other than overage: units beyond the included ones, never below zero
	StepUnitPrice     = "unit_price"              // price of each charged unit, or of PerUnits charged units
	StepPackageSize   = "package_size"            // number of units in a package
	StepPackages      = "packages"                // number of packages that the charged units start
	StepPackagePrice  = "package_price"           // price of each started package
	StepPercent       = "percent"                 // percentage of the charged units, which are an amount of money
	StepUnitCharges   = "unit_charges"            // charged units × unit price or percent; with tiers, the sum over the tiers
	StepPerUnits      = "per_units"               // number of units that one unit price pays for; divides the unit charges
	StepFlatFees      = "flat_fees"               // sum of the flat fees of the tiers that the charged units reach
	StepFixedFee      = "fixed_fee"               // fee for each counted event
	StepFixedFees     = "fixed_fees"              // counted events × fixed fee
	StepRateCharge    = "dimension_charge"        // charge of one price by dimension; its parts are the matched units and the steps of the price's model
	StepDefaultCharge = "default_charge"          // charge of the default price by dimension, with the same parts
	StepUnrated       = "unrated_units"           // units that no price by dimension charges
	StepModelCharge   = "usage_charge"            // charge of the price's model; with prices by dimension, the sum of their charges
	StepBase          = "base_price"              // base price of the period
	StepMinimum       = "minimum_charge"          // minimum charge of the period
	StepMaximum       = "maximum_charge"          // maximum charge of the period
	StepExact         = "exact_charge"            // base price + overage or usage charge, within the minimum and the maximum
	StepProvider      = "provider_charge"         // charge at the provider's own price, instead of the steps from StepIncluded to StepExact: the sum of its price lines
	StepPriceLine     = "price_line"              // line of the provider's price: priced units × price rate or a fixed amount, as the provider rounds it
	StepPricedUnits   = "priced_units"            // number of units, or of packages of units, to which the price rate applies
	StepPriceRate     = "price_rate"              // provider's price of each unit or package
	StepTrial         = "trial"                   // less: the whole charge, if the subscription was in a trial
	StepCharge        = "charge"                  // charge after the deduction for a trial, in the currency's minor unit
	StepUnbilledUnits = "unbilled_units"          // less: units of a closed period that are not billed with it
	StepUnbilled      = "unbilled_charge"         // less: charge of a closed period that is not billed with it
	StepClosedUnits   = "closed_units"            // less: units that are billed with the closed period
	StepClosed        = "closed_charge"           // less: charge that is billed with the closed period
	StepOnlyUnits     = "only_reported_units"     // less: late units that the late policy only reports and does not bill
	StepOnly          = "only_reported"           // less: charge for the late units that are only reported
	StepOtherUnits    = "elsewhere_units"         // less: units billed through other series, with one part for each series
	StepOther         = "billed_elsewhere"        // less: amounts billed through other series
	StepQuantity      = "quantity"                // units after these deductions; at least 0 if the provider accepts no negative quantity
	StepAmount        = "amount"                  // charge after these deductions; at least 0 if amounts are billed: a negative remainder is not credited, but stays recorded
	StepAdjustment    = "adjustment"              // plus: the amount that late usage adds to a closed period
	StepAll           = "amount_with_adjustments" // amount + adjustments
	StepTier          = "tier"                    // unit charge of one tier: tier units × unit price
	StepTierUnits     = "tier_units"              // charged units in the tier
	StepTierPrice     = "tier_unit_price"         // price of each unit in the tier, or of PerUnits units
	StepTierFlatFee   = "tier_flat_fee"           // flat fee of one tier
	StepRateUnits     = "matched_units"           // usage that one price by dimension charges: the sum of its parts
	StepDimension     = "dimension_units"         // units with one combination of dimension values
	StepPart          = "part"                    // units or amount that one series of reports has billed
)

// ReasonLate is the reason for adjusting a closed period: usage arrived after the close, or not all usage was reported
// to the provider in time.
const ReasonLate = "late usage"

// Units of steps that are not currency codes.
const (
	inUnits    = "units"
	inPackages = "packages"
	inPercent  = "percent"
)

// Explain returns the breakdown of the meter's amount in a period of ExpectedPeriods. The last step is the amount of
// the line in StatementOf. Explain returns nil if the statement has no line of the meter, for example during the
// meter's first backfill, or because the meter was created after the close.
func (b *Books) Explain(period Period, meter metering.MeterID) []Step {
	l, _ := b.StatementOf(period).Line(meter)
	return l.Working
}

// steps returns the breakdown of the calculation's line.
func (c *calculation) steps() []Step {
	return slices.Concat(c.counted(), c.charged(), c.deductionSteps())
}

// counted returns the steps from StepUsage to StepUnits.
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

// charged returns the steps from StepIncluded or StepProvider to StepCharge.
func (c *calculation) charged() []Step {
	charge := Step{Name: StepCharge, Amount: c.charge(), Unit: c.currency, Digits: new(metering.MinorDigits(c.currency))}
	steps := c.ours()
	if c.theirs != nil { // the charge is not rounded again: the provider rounds each price line
		steps, charge.Digits, charge.Price = []Step{c.atProvider()}, nil, c.theirs.ID()
	}
	if c.trial {
		steps = append(steps, Step{Name: StepTrial, Amount: c.exact(), Unit: c.currency})
	}
	return append(steps, charge)
}

// atProvider returns the step of the charge at the provider's own price, with the price lines as parts.
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

// deductionSteps returns the steps of all deductions, and of the quantity and amount that remain. It returns nil if
// there are no deductions and the quantity equals the units.
func (c *calculation) deductionSteps() []Step {
	steps := append(c.closedDeductions(), c.otherDeductions()...)
	if len(steps) == 0 && c.quantity().Equal(c.units()) {
		return nil
	}
	return append(steps,
		Step{Name: StepQuantity, Amount: c.quantity(), Unit: inUnits},
		Step{Name: StepAmount, Amount: c.amount(), Unit: c.currency})
}

// closedDeductions returns the deductions of a closed period, and of its late usage.
func (c *calculation) closedDeductions() (steps []Step) {
	switch {
	case c.late != nil:
		closed := c.late.closed
		steps = append(steps,
			Step{Name: StepClosedUnits, Amount: c.closed.billedUnits(), Unit: inUnits, Closed: &closed},
			Step{Name: StepClosed, Amount: c.closedCharge(), Unit: c.currency, Closed: &closed})
	case c.closed != nil && c.closed.unreported():
		steps = append(steps,
			Step{Name: StepUnbilledUnits, Amount: c.units().Sub(c.quantity()), Unit: inUnits},
			Step{Name: StepUnbilled, Amount: c.charge().Sub(c.amount()), Unit: c.currency})
	}
	if c.late != nil && !(c.late.onlyReported.IsZero() && c.late.onlyReportedCharge.IsZero()) {
		steps = append(steps,
			Step{Name: StepOnlyUnits, Amount: c.late.onlyReported, Unit: inUnits},
			Step{Name: StepOnly, Amount: c.late.onlyReportedCharge, Unit: c.currency})
	}
	return steps
}

// otherDeductions returns the deductions for other series.
func (c *calculation) otherDeductions() []Step {
	if len(c.others.parts) == 0 {
		return nil
	}
	units := Step{Name: StepOtherUnits, Amount: c.inScale(c.others.quantity), Unit: inUnits, Digits: c.otherScale(), Of: c.others.units()}
	if c.trial {
		return []Step{units}
	}
	other := Step{Name: StepOther, Amount: c.otherAmount(), Unit: c.currency}
	if c.theirs == nil || c.late != nil {
		other.Of = moneyIn(c.currency, c.money())
	}
	return []Step{units, other}
}

// units returns a step for each part, with its units.
func (e seriesTotals) units() []Step {
	steps := make([]Step, len(e.parts))
	for i, p := range e.parts {
		steps[i] = Step{Name: StepPart, Amount: p.quantity, Unit: inUnits, Series: &p.series}
	}
	return steps
}

// moneyIn returns a step for each part in the currency.
func moneyIn(currency string, parts []seriesPart) (steps []Step) {
	for _, p := range parts {
		if p.currency == currency {
			steps = append(steps, Step{Name: StepPart, Amount: p.amount, Unit: currency, Series: &p.series})
		}
	}
	return steps
}

// adjusted appends the adjustments in the amount's currency, and their sum with the amount, to the breakdown of the
// amount.
func adjusted(steps []Step, adjustments []Adjustment) []Step {
	own := steps[len(steps)-1]
	sum := own.Amount
	for _, a := range adjustments {
		if a.Currency != own.Unit {
			continue // Statement.Totals adds the adjustment separately
		}
		sum = sum.Add(a.Amount)
		steps = append(steps, Step{Name: StepAdjustment, Amount: a.Amount, Unit: a.Currency, Closed: &a.Closed, Reason: a.Reason, Of: a.Working})
	}
	if steps[len(steps)-1].Name == StepAdjustment {
		steps = append(steps, Step{Name: StepAll, Amount: sum, Unit: own.Unit})
	}
	return steps
}
