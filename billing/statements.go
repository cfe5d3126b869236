package billing

import (
	"cmp"
	"maps"
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
	State       PeriodState
	ClosesAt    time.Time
	Lines       []StatementLine
	Adjustments []Adjustment // that it carries, by closed period
}

// PeriodState is where a period stands.
type PeriodState string

const (
	PeriodOpen    PeriodState = "open"
	PeriodInGrace PeriodState = "in_grace" // it is over, and takes usage until it is closed
	PeriodClosed  PeriodState = "closed"
)

// Values are all states of a period.
func (PeriodState) Values() []PeriodState {
	return []PeriodState{PeriodOpen, PeriodInGrace, PeriodClosed}
}

// stateAt is where the period stands at an instant.
func (p Period) stateAt(now time.Time) PeriodState {
	switch {
	case p.ClosedAt != nil:
		return PeriodClosed
	case p.End.After(now):
		return PeriodOpen
	}
	return PeriodInGrace
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
	Source       PriceSource      // of that version; "": none
	Price        ProviderPrice    // that is charged instead of ours; nil: ours is
	Billed       bool             // the closed period is billed through a provider
	Amount       metering.Decimal // the charge, of an open period less what is billed elsewhere, and the adjustments that the period carries
	Working      []Step           // of the amount
	LateUsage    metering.Decimal // what arrived once it was closed
	LateCharge   metering.Decimal // what the charge would grow by
	LateWorking  []Step           // of that
}

// Total is what a statement comes to in one currency.
type Total struct {
	Currency    string
	Amount      metering.Decimal // with the adjustments
	Adjustments metering.Decimal
}

// StatementOf returns what one of the periods of ExpectedPeriods comes to.
func (b *Books) StatementOf(period Period) Statement {
	if i := slices.IndexFunc(b.Stored, func(p Period) bool { return p.ClosedAt != nil && p.Start.Equal(period.Start) }); i >= 0 {
		period = b.Stored[i]
	}
	s := Statement{Period: period, State: period.stateAt(b.Now), ClosesAt: period.Deadline(b.Settings.Grace), Adjustments: b.carriedBy(period)}
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

func (s Statement) adjustmentsOf(meter metering.MeterID) []Adjustment {
	return slices.DeleteFunc(slices.Clone(s.Adjustments), func(a Adjustment) bool { return a.MeterID != meter })
}

// Line is what the period comes to for the meter.
func (s Statement) Line(meter metering.MeterID) (l StatementLine, known bool) {
	i := slices.IndexFunc(s.Lines, func(l StatementLine) bool { return l.MeterID == meter })
	if i < 0 {
		return StatementLine{}, false
	}
	return s.Lines[i], true
}

// LineOf returns the line that includes an adjustment in its amount: that of the meter, if it has
// the currency of the adjustment.
func (s Statement) LineOf(a Adjustment) (l StatementLine, known bool) {
	l, known = s.Line(a.MeterID)
	return l, known && l.Currency == a.Currency
}

// Totals are what the statement comes to, by currency.
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
			amount = metering.Decimal{} // the line's amount has it
		}
		add(a.Currency, amount, a.Amount)
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b Total) int { return cmp.Compare(a.Currency, b.Currency) })
}

func (b *Books) openLines(period Period) (lines []StatementLine) {
	for _, c := range b.shown(period) {
		lines = append(lines, stated(c))
	}
	return lines
}

func (b *Books) closedLines(period Period) (lines []StatementLine) {
	for _, m := range b.Meters {
		then := period.line(m.ID)
		if then == nil {
			continue // the meter was made later
		}
		l, late := stated(closedCalculation(m, then)), b.lateCalculation(period, m, then)
		l.Charge, l.Billed = then.Charge, b.bills(then)
		l.LateUsage, l.LateCharge, l.LateWorking = late.late.usage, late.amount(), late.steps()
		lines = append(lines, l)
	}
	return lines
}

// stated is the line of a calculation.
func stated(c calculation) StatementLine {
	return StatementLine{
		MeterID: c.meter.ID, MeterSlug: c.meter.Slug, Usage: c.usage, Events: c.events, Charge: c.charge(), Currency: c.currency,
		PriceVersion: c.price.Version, Source: c.source(), Price: c.theirs, Working: c.steps(),
	}
}
