package billing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Caveat is the note in API responses with revenue or with totals of unrated usage.
const Caveat = "Estimates: invoiced amounts may differ because of proration, discounts or credits at the provider."

// Statement is the bill of one billing period: the charges so far or, for a closed period, the charges at the close and
// the late usage since then.
type Statement struct {
	Period
	State       PeriodState
	ClosesAt    time.Time
	Lines       []StatementLine
	Adjustments []Adjustment // adjustments of closed periods that this period bills, ordered by closed period
}

// PeriodState is the state of a period.
type PeriodState string

const (
	PeriodOpen    PeriodState = "open"
	PeriodInGrace PeriodState = "in_grace" // the period has ended and accepts usage until it is closed
	PeriodClosed  PeriodState = "closed"
)

// Values returns all states of a billing period. PeriodBefore is not one of them.
func (PeriodState) Values() []PeriodState {
	return []PeriodState{PeriodOpen, PeriodInGrace, PeriodClosed}
}

// stateAt returns the state of the billing period at an instant.
func (p Period) stateAt(now time.Time) PeriodState {
	switch {
	case p.ClosedAt != nil:
		return PeriodClosed
	case p.End.After(now):
		return PeriodOpen
	}
	return PeriodInGrace
}

// StatementLine is the line of one meter in a statement.
type StatementLine struct {
	MeterID      metering.MeterID
	MeterSlug    string
	Usage        metering.Decimal // of a closed period: as of the close
	Events       int64
	Charge       metering.Decimal // rounded to the currency's minor unit
	Currency     string
	PriceVersion int              // version of the price in Odometer; 0: no such price is charged
	Source       PriceSource      // level at which that price is set; "": no such price is charged
	Price        ProviderPrice    // provider's own price, if it is charged instead; else nil
	Billed       bool             // a provider bills the line; false for an open period
	Amount       metering.Decimal // charge plus adjustments; open period: less amounts of other series; closed period: only the charge billed with it
	Working      []Step           // breakdown of Amount
	LateUsage    metering.Decimal // usage that arrived after the close
	LateCharge   metering.Decimal // charge for all usage less the charge billed with the closed period
	LateWorking  []Step           // breakdown of LateCharge
}

// Total is the sum of a statement's amounts in one currency.
type Total struct {
	Currency    string
	Amount      metering.Decimal // includes Adjustments
	Adjustments metering.Decimal
}

// StatementOf returns the statement of a period of ExpectedPeriods.
func (b *Books) StatementOf(period Period) Statement {
	if i := slices.IndexFunc(b.Stored, func(p Period) bool { return p.ClosedAt != nil && p.Start.Equal(period.Start) }); i >= 0 {
		period = b.Stored[i]
	}
	s := Statement{Period: period, State: period.stateAt(b.Now), ClosesAt: period.Deadline(b.Settings.Grace), Adjustments: b.billedAdjustments(period)}
	if period.ClosedAt == nil {
		s.Lines = b.openLines(period)
	} else {
		s.Lines = b.closedLines(period)
	}
	for i := range s.Lines {
		l := &s.Lines[i]
		l.Working = adjusted(l.Working, s.adjustmentsOf(l.MeterID))
		l.Amount = l.Working[len(l.Working)-1].Amount
	}
	return s
}

// adjustmentsOf returns the statement's adjustments of the meter.
func (s Statement) adjustmentsOf(meter metering.MeterID) []Adjustment {
	return slices.DeleteFunc(slices.Clone(s.Adjustments), func(a Adjustment) bool { return a.MeterID != meter })
}

// Line returns the line of the meter, if the statement has one.
func (s Statement) Line(meter metering.MeterID) (l StatementLine, known bool) {
	i := slices.IndexFunc(s.Lines, func(l StatementLine) bool { return l.MeterID == meter })
	if i < 0 {
		return StatementLine{}, false
	}
	return s.Lines[i], true
}

// LineOf returns the line with the amount that includes an adjustment: the line of the same meter, if it has the same
// currency.
func (s Statement) LineOf(a Adjustment) (l StatementLine, known bool) {
	l, known = s.Line(a.MeterID)
	return l, known && l.Currency == a.Currency
}

// Totals returns the sums of the statement, one for each currency, ordered by currency.
func (s Statement) Totals() []Total {
	sums := make(map[string]Total)
	add := func(currency string, amount, adjustment metering.Decimal) {
		t := sums[currency]
		sums[currency] = Total{currency, t.Amount.Add(amount), t.Adjustments.Add(adjustment)}
	}
	for _, l := range s.Lines {
		add(l.Currency, l.Amount, metering.Decimal{})
	}
	for _, a := range s.Adjustments {
		amount := a.Amount
		if _, known := s.LineOf(a); known {
			amount = metering.Decimal{} // the line's amount includes the adjustment
		}
		add(a.Currency, amount, a.Amount)
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b Total) int { return cmp.Compare(a.Currency, b.Currency) })
}

// openLines returns the statement lines of an open period.
func (b *Books) openLines(period Period) (lines []StatementLine) {
	for _, c := range b.shown(period) {
		lines = append(lines, statementLineOf(c))
	}
	return lines
}

// closedLines returns the statement lines of a closed period, with the late usage since the close.
func (b *Books) closedLines(period Period) (lines []StatementLine) {
	for _, m := range b.Meters {
		then := period.line(m.ID)
		if then == nil {
			continue // the meter was created later, or did not belong to the billing schedule in the period
		}
		l, late := statementLineOf(closedCalculation(m, then)), b.lateCalculation(period, m, then)
		l.Charge, l.Billed = then.Charge, b.bills(then)
		l.LateUsage, l.LateCharge, l.LateWorking = late.late.usage, late.amount(), late.steps()
		lines = append(lines, l)
	}
	return lines
}

// statementLineOf returns the statement line of a calculation.
func statementLineOf(c calculation) StatementLine {
	return StatementLine{
		MeterID: c.meter.ID, MeterSlug: c.meter.Slug, Usage: c.usage, Events: c.events, Charge: c.charge(), Currency: c.currency,
		PriceVersion: c.price.Version, Source: c.source(), Price: c.theirs, Working: c.steps(),
	}
}
