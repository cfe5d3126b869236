package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Caveat goes with every revenue figure.
const Caveat = "Estimates: invoiced amounts may differ because of proration, discounts or credits at the provider."

// Statement is a billing period with what it came to so far, or, once it is
// closed, what it came to and what has arrived since.
type Statement struct {
	Period
	ClosesAt time.Time
	Lines    []StatementLine
}

// StatementLine is one meter of a statement.
type StatementLine struct {
	MeterID      metering.MeterID
	MeterSlug    string
	Usage        metering.Decimal // of a closed period: what it was closed at
	Events       int64
	Charge       metering.Decimal // rounded to the currency's minor unit
	Currency     string
	PriceVersion int              // 0: none
	Billed       bool             // the provider was reported it
	Amount       metering.Decimal // the charge less what is billed elsewhere, and the adjustments that an open period carries
	Working      []Step           // of the amount
	LateUsage    metering.Decimal // what arrived once it was closed
	LateCharge   metering.Decimal // what the charge would grow by
	LateWorking  []Step           // of that
}

// StatementOf is what one of the periods of ExpectedPeriods comes to.
func StatementOf(f Facts, period Period) Statement {
	s := Statement{Period: period, ClosesAt: period.Deadline(f.Settings.Grace)}
	if period.ClosedAt == nil {
		s.Lines = f.openLines(period)
	} else {
		s.Lines = f.closedLines(period)
	}
	return s
}

func (f Facts) openLines(period Period) (lines []StatementLine) {
	carried := f.carriedBy(period)
	for _, c := range f.shown(period) {
		l := stated(c)
		l.Working = adjusted(l.Working, slices.DeleteFunc(slices.Clone(carried), func(o calculation) bool { return o.meter.ID != c.meter.ID }))
		l.Amount = l.Working[len(l.Working)-1].Amount
		lines = append(lines, l)
	}
	return lines
}

func (f Facts) closedLines(period Period) (lines []StatementLine) {
	for _, m := range f.Meters {
		then, known := period.line(m.ID)
		if !known {
			continue // the meter was made later
		}
		l, late := stated(f.closedCalculation(m, then)), f.lateCalculation(period, m, then, elsewhere{})
		l.Charge, l.Billed = then.Charge, f.bills(then)
		l.LateUsage, l.LateCharge, l.LateWorking = late.late.usage, late.amount(), late.steps()
		lines = append(lines, l)
	}
	return lines
}

// stated is the line of a calculation.
func stated(c calculation) StatementLine {
	return StatementLine{
		MeterID: c.meter.ID, MeterSlug: c.meter.Slug, Usage: c.usage, Events: c.events, Charge: c.charge(), Currency: c.currency,
		PriceVersion: c.price.Version, Amount: c.amount(), Working: c.steps(),
	}
}
