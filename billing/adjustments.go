package billing

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// openPeriod returns the first open period of periods, which are sorted by start. Late usage of closed periods is
// billed with this period, unless a closed period's standalone invoice bills it.
func openPeriod(periods []Period) (p Period, found bool) {
	i := slices.IndexFunc(periods, func(p Period) bool { return p.ClosedAt == nil })
	if i < 0 {
		return Period{}, false
	}
	return periods[i], true
}

// adjustments returns the lines with which a series of reports, the target, bills closed periods. The lines contain
// late usage, and usage that was not reported before the invoice of its period was final. Amounts already reported to
// other targets are deducted. target.Window must be the target period: the oldest open period, or the period of the
// standalone invoice. Otherwise there are no lines. repeated holds the lines already reported to this target. Such a
// line is returned even if its quantity and amount are 0 now.
func (b *Books) adjustments(periods []Period, target Series, repeated []Line) []Line {
	return linesOf(b.lateCalculations(periods, target, repeated))
}

// lateCalculations returns the calculations of the lines that adjustments returns.
func (b *Books) lateCalculations(periods []Period, target Series, repeated []Line) (all []calculation) {
	into, _ := openPeriod(periods)
	if i := slices.IndexFunc(periods, func(p Period) bool { return p.IsStandalone() && p.Range == target.Window }); i >= 0 && target.Target == b.ownInvoice() {
		into = periods[i]
	}
	if into.Range != target.Window {
		return nil
	}
	for _, closed := range periods {
		if into.ClosedAt == nil || closed.Start.Before(into.Start) {
			all = append(all, b.lateCalculationsOf(closed, target, repeated)...)
		}
	}
	for i := range all {
		all[i].noCredit = into.Bills == metering.BillsAmounts && target.Kind != StatementReport
	}
	return all
}

// adjustable reports whether the total of a closed period may differ from the total billed with it, in any of these
// cases:
//   - Late usage exists in a month that overlaps the period, or is stored in a billed line.
//   - The meter of a billed line no longer counts late usage as it did when the usage arrived.
//   - An adjustment of the period is accepted or outstanding.
//   - The units or the charge of a billed line differ from those billed with the period.
func (b *Books) adjustable(p Period) bool {
	if p.ClosedAt == nil {
		return false
	}
	late := slices.ContainsFunc(b.LateMonths, func(month metering.Range) bool { return !month.Intersect(p.Range).Empty() })
	carried := containsAny(b.Reported, func(r *Reported) bool { return r.Late && r.about(p) && r.Standing.Any })
	return late || carried || containsAny(p.Closed, func(l *ClosedLine) bool {
		return b.bills(l) && (l.unreported() || l.LateEvents != nil && *l.LateEvents > 0 || !l.LateDifference.isZero())
	})
}

// unreported reports whether the units or the charge billed with the period differ from those of the line. It returns
// false if no provider bills the line.
func (l *ClosedLine) unreported() bool {
	return l.Billed && !(l.ownUnits().Equal(l.billedUnits()) && l.Charge.Equal(l.billedCharge()))
}

// lateOf returns a late calculation for each billed meter of a closed period. It skips meters during their first
// backfill, and returns none if the period is not adjustable. Adjustments that were already reported are not deducted.
func (b *Books) lateOf(closed Period) (all []calculation) {
	if !b.adjustable(closed) {
		return nil
	}
	for _, m := range b.Meters {
		then := closed.line(m.ID)
		if then != nil && b.bills(then) && m.Version.Status != metering.Backfilling {
			all = append(all, b.lateCalculation(closed, m, then))
		}
	}
	return all
}

// lateCalculationsOf returns the part of lateCalculations that adjusts one closed period.
func (b *Books) lateCalculationsOf(closed Period, target Series, repeated []Line) (all []calculation) {
	late := b.lateOf(closed)
	if len(late) == 0 {
		return nil
	}
	toOther := func(r *Reported) bool { return r.Late && !r.sameTarget(target) }
	most, least := b.billed(closed, toOther), b.atLeast().billed(closed, toOther)
	for _, c := range late {
		c.others = most[c.meter.ID]
		b.excludeOnlyReported(&c)
		reported := Line{MeterID: c.meter.ID, Closed: closed.Start}
		i := slices.IndexFunc(repeated, reported.about)
		if i >= 0 {
			reported = repeated[i]
		}
		c.limitUnknown(least[c.meter.ID], reported)
		if !c.quantity().IsZero() || !c.amount().IsZero() || i >= 0 {
			all = append(all, c)
		}
	}
	return all
}

// limitUnknown limits the effect of outstanding reports to other targets. The parameter least holds the lowest totals
// that these targets may have billed, and c.others the highest. reported is the line already reported to this target.
// The calculation keeps the quantity and the amount of this line if they lie between the results of the possible
// outcomes. Otherwise it takes the nearest result. Thus no unknown outcome leads to a charge or a credit.
func (c *calculation) limitUnknown(least seriesTotals, reported Line) {
	sure := *c
	sure.others = least
	quantity, amount := c.quantity(), c.amount()
	more := seriesPart{
		quantity: quantity.Sub(clamp(quantity, reported.Quantity, sure.quantity())),
		amount:   amount.Sub(clamp(amount, reported.Amount, sure.amount())),
		currency: c.currency,
	}
	if more.quantity.IsZero() && more.amount.IsZero() {
		return
	}
	more.series = c.others.parts[len(c.others.parts)-1].series
	c.others.quantity, c.others.parts = c.others.quantity.Add(more.quantity), append(slices.Clone(c.others.parts), more)
}

// sameTarget reports whether two series of late usage have the same connection, customer, target, kind of report and
// target period.
func (s Series) sameTarget(o Series) bool {
	return s.Connection == o.Connection && s.Customer == o.Customer && s.Target == o.Target && s.Kind == o.Kind && s.Window.Start.Equal(o.Window.Start)
}

// Line returns the closed line of the meter. known is false if the period has none. An open period has no closed lines.
func (p Period) Line(meter metering.MeterID) (l ClosedLine, known bool) {
	if l := p.line(meter); l != nil {
		return *l, true
	}
	return ClosedLine{}, false
}

// line returns the closed line of the meter, or nil if the period has none.
func (p *Period) line(meter metering.MeterID) *ClosedLine {
	for i := range p.Closed {
		if p.Closed[i].MeterID == meter {
			return &p.Closed[i]
		}
	}
	return nil
}

// late returns the late usage of a closed line, and the booking that stands. Without a booking, or if more events are
// counted than the last booking has, it returns the counted late usage and nil. Otherwise it also returns the last
// booking, because booked usage stays booked, even if its events are no longer counted or have other units now. If the
// counted events or units then differ from the booking, the late usage is the booking less the usage at the close.
func (f *Facts) late(closed Period, then *ClosedLine) (late Measured, standing *Booked) {
	late = then.CountLate(f.usage(then.MeterID, closed))
	b, known := f.bookedOf(then.MeterID, closed.Start)
	if !known || then.Events+late.Events > b.Events {
		return late, nil
	}
	counted := ClosedLine{Usage: then.Usage.Add(late.Units), Scale: then.Scale}
	if then.Events+late.Events == b.Events && counted.ownUnits().Equal(b.Units) {
		return late, &b
	}
	return Measured{b.Units, b.Events, b.Dimensions}.Sub(Measured{then.Usage, then.Events, then.Dimensions}), &b
}

// CountLate returns the late usage of the line. This is the stored late usage or, before it is stored, the counted late
// usage in u plus LateDifference. u must be the usage of the line's meter in the line's period.
func (l *ClosedLine) CountLate(u Usage) Measured {
	if l.LateEvents != nil {
		return Measured{*l.LateUsage, *l.LateEvents, l.LateDimensions}
	}
	return Measured{u.Late, u.LateEvents, u.LateDimensions}.Add(l.LateDifference)
}

// lateTarget returns the series that bills late usage with the target period. The charges are on the subscription's
// next invoice or, without a subscription that accepts charges, on the period's standalone invoice. Without such a
// subscription, takes is false unless the period's standalone invoice bills late usage.
func (b *Books) lateTarget(periods []Period, target Period) (at Series, takes bool) {
	at = Series{
		Kind: ChargeReport, Connection: b.Connection.ID, Customer: b.Side.Customer, Target: b.Side.Subscription,
		Counting: Adds, Window: target.Range, Late: true,
	}
	if b.subscribed() && !b.Side.Ended {
		return at, true
	}
	at.Target = b.ownInvoice()
	return at, b.billsLateOnStandalone(periods, target)
}

// planLateCharges plans the charges that the target period bills for late usage, one for each closed period and meter.
// If the target period is billed in amounts, a report sets an invoice line to the whole charge. Otherwise, a report
// adds the change of the charge to the next invoice. A charge that cannot be reported stays booked.
func (p *planner) planLateCharges(target Period) {
	at, takes := p.lateTarget(p.periods, target)
	if !takes {
		return
	}
	if p.Unread {
		p.open = true
		return
	}
	if target.Bills == metering.BillsAmounts {
		at.Counting = Replaces
	}
	for l, s := range p.lateLines(at) {
		r, changed := p.lateCharge(at, l, s, target)
		if reason := p.excludedCharge(r, s, target); changed && reason.Code != "" {
			p.exclude(Exclusion{l.MeterID, l.MeterSlug, reason})
			changed = false
		}
		if !p.shouldReport(s, changed) {
			continue
		}
		if r.Counting == Replaces && !s.Standing.Any {
			p.lines++
		}
		p.plan.Reports = append(p.plan.Reports, r)
	}
}

// awaitsLateCharge reports whether a charge for late usage is being sent. Its outcome changes the remaining charges.
func (p *planner) awaitsLateCharge() bool {
	return containsAny(p.Reported, func(r *Reported) bool {
		return r.Late && r.undecided() && p.here(r.Series) && r.State != InDoubt
	})
}

// lateCharge returns the next report of a charge for late usage. changed reports whether the report is needed: the
// charge differs from the accepted one, or a restore may have lost a later report that set the line. A line on a final
// invoice is not set again.
func (p *planner) lateCharge(at Series, l Line, s *Reported, target Period) (r Report, changed bool) {
	r = Report{
		Series: at, Lines: []Line{l}, Quantity: l.Amount.Sub(s.Taken.Added), Currency: l.Currency, Of: p.period(l.Closed).Range,
		Deadline: target.Deadline(p.Settings.Grace),
	}
	r.Period = l.Closed
	if r.Counting == Adds {
		return r, !r.Quantity.IsZero()
	}
	r.Quantity, r.Destination = l.Amount, p.destinationIn(target, l.MeterID)
	r.Method = r.Destination.Method
	return r, s.Line == nil && (!l.Amount.Equal(s.Taken.Amount) || p.mayLackReports(s))
}

// excludedCharge returns the reason why the target period cannot bill a charge for late usage. The code of the reason
// is "" if the period can bill the charge.
func (p *planner) excludedCharge(r Report, s *Reported, target Period) ExclusionReason {
	switch {
	case !r.Destination.takes():
		return r.Destination.Excluded
	case r.Counting == Replaces && !s.Standing.Any && p.lines >= linesAtMost:
		return ExclusionReason{Code: ExcludedTooManyLines}
	}
	return ExclusionReason{Code: p.excludedIn(r.Currency, r.Target, target)}
}

// lateLines iterates over the adjustments that the target bills, each with the series in which it was reported. The
// series is empty for an adjustment that was not reported yet. Meters that an operator excludes are skipped.
func (p *planner) lateLines(at Series) iter.Seq2[Line, *Reported] {
	var known []*Reported
	var lines []Line
	for n := range p.Reported {
		r := &p.Reported[n]
		if !r.Late || !r.sameTarget(at) {
			continue
		}
		reported := Line{MeterID: r.MeterID, Closed: r.Period, Quantity: r.Taken.Value, Amount: r.Taken.Amount}
		if at.Counting == Adds {
			reported.Amount = r.Taken.Added
		}
		known, lines = append(known, r), append(lines, reported)
	}
	return func(yield func(Line, *Reported) bool) {
		for _, l := range p.adjustments(p.periods, at, lines) {
			s := &Reported{}
			if i := slices.IndexFunc(lines, l.about); i >= 0 {
				s = known[i]
			}
			if !slices.Contains(p.excludedMeters, l.MeterID) && !yield(l, s) {
				return
			}
		}
	}
}

// excludedIn returns ExcludedLateCurrency if the invoice's currency differs from the amount's, else "". The invoice is
// the period's standalone invoice if target is ownInvoice, else the subscription's next invoice. If its currency is
// unknown, excludedIn returns "".
func (b *Books) excludedIn(currency, target string, period Period) ExclusionCode {
	if b.Side == nil {
		return ""
	}
	in := b.Side.Currency
	if target == b.ownInvoice() {
		in = b.standaloneCurrency(period)
	}
	if in == "" || in == currency {
		return ""
	}
	return ExcludedLateCurrency
}

// period returns the period of the plan that begins at start. It panics if there is none.
func (p *planner) period(start time.Time) Period {
	i := slices.IndexFunc(p.periods, func(period Period) bool { return period.Start.Equal(start) })
	return p.periods[i]
}

// Description returns the text of an invoice line that charges a meter's usage in a range. The text names the first and
// last day of the range in the time zone. If late is true, it adds that the usage was reported late.
func Description(m metering.Meter, of metering.Range, timezone *time.Location, late bool) string {
	last := of.End.Add(-time.Microsecond)
	text := fmt.Sprintf("%s: usage from %s to %s", cmp.Or(m.Name, m.Slug),
		of.Start.In(timezone).Format(time.DateOnly), last.In(timezone).Format(time.DateOnly))
	if late {
		text += " that was reported late"
	}
	return text
}

// Adjustments returns the adjustments of closed periods that the oldest open period bills, as of Now. Amounts that
// other target periods bill are not included. Adjustments are included even if their currency differs from that of the
// period's invoice. There are none without a provider or without an open period.
func (b *Books) Adjustments() []Line { return linesOf(b.pendingAdjustments()) }

// pendingAdjustments returns the calculations of Adjustments.
func (b *Books) pendingAdjustments() []calculation {
	if b.Connection == nil {
		return nil // without a provider nothing is billed
	}
	periods := ExpectedPeriods(b.Facts)
	open, found := openPeriod(periods)
	if !found {
		return nil
	}
	target := Series{Kind: StatementReport, Connection: b.Connection.ID, Window: open.Range}
	if !b.Connection.Statements {
		target.Kind = ChargeReport
		if b.subscribed() {
			target.Customer, target.Target = b.Side.Customer, b.Side.Subscription
		} else if open.IsStandalone() && b.Side != nil {
			target.Customer, target.Target = b.Side.Customer, b.ownInvoice()
		}
	}
	own, _, takes := b.lateStandalone(periods)
	return slices.DeleteFunc(b.lateCalculations(periods, target, nil), func(c calculation) bool {
		return takes && c.late.closed.Start.Before(own.Start) && b.excludedIn(c.currency, b.ownInvoice(), own) == ""
	})
}

// lateStandalone returns the closed period with the standalone invoice that bills late usage of earlier periods, and
// the series of that late usage. takes is false if there is no such period.
func (b *Books) lateStandalone(periods []Period) (own Period, at Series, takes bool) {
	if b.Connection == nil || b.Connection.Statements || b.Side == nil {
		return own, at, false
	}
	for _, own := range periods {
		if at, takes := b.lateTarget(periods, own); takes && at.Target == b.ownInvoice() {
			return own, at, true
		}
	}
	return own, at, false
}

// excludedLate returns the reason why late usage in the currency is not charged with the oldest open period, or "" if
// it is charged. That period may already be in its grace.
func (b *Books) excludedLate(currency string, open Period) ExclusionCode {
	target := ""
	if open.IsStandalone() && !b.subscribed() {
		target = b.ownInvoice()
	}
	return b.excludedIn(currency, target, open)
}

// Adjustment is the correction of one meter in a closed period. A target period bills it.
type Adjustment struct {
	Closed    metering.Range
	MeterID   metering.MeterID
	MeterSlug string
	Quantity  metering.Decimal
	Amount    metering.Decimal
	Currency  string
	Reason    string
	Working   []Step // breakdown of Amount; one step per series if the target period bills no further adjustments
}

// billedAdjustments returns the adjustments that the period bills. If the period is closed and bills no further
// adjustments, they are those that were reported with it.
func (b *Books) billedAdjustments(period Period) (all []Adjustment) {
	periods := ExpectedPeriods(b.Facts)
	open, found := openPeriod(periods)
	own, at, takes := b.lateStandalone(periods)
	switch {
	case takes && own.Start.Equal(period.Start):
		return asAdjustments(b.lateCalculations(periods, at, nil), func(currency string) ExclusionCode { return b.excludedIn(currency, b.ownInvoice(), own) })
	case period.ClosedAt != nil:
		return b.reportedAdjustments(period)
	case found && open.Start.Equal(period.Start):
		return asAdjustments(b.pendingAdjustments(), func(currency string) ExclusionCode { return b.excludedLate(currency, open) })
	}
	return nil
}

// asAdjustments returns the adjustments of the calculations, except those in an excluded currency.
func asAdjustments(late []calculation, excluded func(currency string) ExclusionCode) (all []Adjustment) {
	for _, c := range late {
		if excluded(c.currency) == "" {
			all = append(all, Adjustment{
				Closed: c.late.closed, MeterID: c.meter.ID, MeterSlug: c.meter.Slug, Quantity: c.quantity(), Amount: c.amount(), Currency: c.currency,
				Reason: ReasonLate, Working: c.steps(),
			})
		}
	}
	return all
}

// reportedAdjustments returns the adjustments that were reported with a closed period while it was the target period.
func (b *Books) reportedAdjustments(target Period) (all []Adjustment) {
	for _, closed := range b.Stored {
		reported := b.billed(closed, func(r *Reported) bool { return r.Late && r.Window.Start.Equal(target.Start) })
		for _, m := range b.Meters {
			e := reported[m.ID]
			for _, currency := range slices.Sorted(maps.Keys(e.amounts)) {
				all = append(all, Adjustment{
					Closed: closed.Range, MeterID: m.ID, MeterSlug: m.Slug, Quantity: e.quantity, Amount: e.amounts[currency], Currency: currency,
					Reason: ReasonLate, Working: moneyIn(currency, e.parts),
				})
			}
		}
	}
	return all
}
