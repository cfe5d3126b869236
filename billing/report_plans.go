package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// reportsAtOnce bounds what one plan has written down; the next one has the rest.
const reportsAtOnce = 200

// planner makes a plan.
type planner struct {
	*Books
	periods []Period
	plan    ReportPlan
	leaves  []metering.MeterID // meters that an operator excludes from this plan

	open  bool // the provider does not know all of the period, or was not seen to
	lines int  // of ours, that the period's invoice gets
}

// Plan decides what is to be reported next, and which periods are to close. It
// is empty where the provider knows everything.
func (b Books) Plan() ReportPlan {
	p := planner{Books: &b, periods: Periods(b.Facts), leaves: b.Excluded}
	p.plan.Periods, p.plan.HeadOpenUntil, p.plan.Resolved, p.plan.Bookings = p.periods, p.headOpenUntil(), b.Resolved, p.bookings()
	p.plan.Complete, p.plan.PartlyKnown = b.complete(), b.partlyKnown()
	switch {
	case b.MayClose:
		p.close()
	case b.Connection == nil:
	case b.Connection.Statements:
		p.leaveFormer()
		p.statements()
	case b.Side == nil, p.lacksCharges():
		p.plan.ReadFirst = true
	default:
		p.leaveFormer()
		p.quantities()
	}
	p.plan.Reconciled = slices.Concat(b.Reconciled, p.plan.Reconciled)
	p.lookAtBorders()
	return p.plan
}

// uncountedAfter is how long an accepted report may be missing in the provider's count before the
// customer is re-evaluated.
const uncountedAfter = 24 * time.Hour

// lookAtBorders sets LookAgain to the next instant at which the plan can change: a period ends or
// closes, a meter begins to feed another stream, or a day has passed since the provider accepted a
// report without counting it. It is now if the last known period has ended.
func (p *planner) lookAtBorders() {
	for _, period := range p.periods {
		if period.ClosedAt == nil {
			p.lookAt(period.End)
			p.lookAt(period.Deadline(p.Settings.Grace))
		}
	}
	for _, feed := range p.Feeds {
		p.lookAt(feed.From)
	}
	if n := len(p.periods); n == 0 {
		p.lookAt(p.first().Start)
	} else if !p.periods[n-1].End.After(p.Now) {
		p.lookFrom(p.Now) // the provider determines the next period
	}
	if p.plan.HeadOpenUntil != nil {
		p.lookAt(*p.plan.HeadOpenUntil)
	}
	for n := range p.Facts.Reported {
		r := &p.Facts.Reported[n]
		if p.looksForCounted(r) {
			p.lookFrom(r.TakenAt.Add(uncountedAfter))
		}
		if p.isInNext(r) {
			p.lookFrom(p.Now)
		}
	}
}

// isInNext reports whether a report of the series was sent with a time in a subscription that has
// replaced the previous one. Once the period is known to lie in it, the report counts there, unless
// the previous subscription continues.
func (p *planner) isInNext(r *Reported) bool {
	if r.Kind != QuantityReport || r.Counting == Replaces || !p.here(r.Series) || r.Timestamp == nil || r.Invoiced != nil {
		return false
	}
	return slices.ContainsFunc(p.periods, func(period Period) bool {
		part := period.Intersect(period.Subscription.Range).Start
		known := slices.ContainsFunc(p.Stored, func(s Period) bool {
			return s.Start.Equal(period.Start) && s.Subscription.ID == period.Subscription.ID && s.Subscription.Start.Equal(period.Subscription.Start)
		})
		return !known && r.about(period) && p.connectedTo(period.Subscription.Connection) && r.Window.Start.Before(part) && !r.Timestamp.Before(part)
	})
}

// looksForCounted reports whether the provider still has to count an accepted report: the report is
// of a period that is not complete, and of the part of the period in the subscription's range.
func (p *planner) looksForCounted(r *Reported) bool {
	if r.Kind != QuantityReport || !p.here(r.Series) || r.TakenAt.IsZero() {
		return false
	}
	return slices.ContainsFunc(p.periods, func(period Period) bool {
		ended := r.Window.Start.Before(period.Start) || r.Window.Start.Before(period.Subscription.Start)
		return r.about(period) && !period.Complete && !ended
	})
}

// lookAt sets LookAgain to t if t is in the future and before LookAgain.
func (p *planner) lookAt(t time.Time) {
	if t.After(p.Now) {
		p.lookFrom(t)
	}
}

// lookFrom sets LookAgain to t if t is before LookAgain, or if that is unset.
func (p *planner) lookFrom(t time.Time) {
	if p.plan.LookAgain.IsZero() || t.Before(p.plan.LookAgain) {
		p.plan.LookAgain = t
	}
}

// UsageRanges returns the periods with usage that a plan depends on: the incomplete ones, and the
// closed ones that late usage can adjust.
func (b *Books) UsageRanges() []metering.Range {
	var ranges []metering.Range
	for _, p := range ExpectedPeriods(b.Facts) {
		if !p.Complete || b.adjustable(p) {
			ranges = append(ranges, p.Range)
		}
	}
	return ranges
}

// WindowedMeters returns the meters with usage that is reported by the provider's windows.
func WindowedMeters(f Facts) []metering.MeterID {
	var meters []metering.MeterID
	if f.Side != nil {
		for _, d := range f.Side.Destinations {
			if d.Window != "" {
				meters = append(meters, d.MeterID)
			}
		}
	}
	return meters
}

// leaveFormer plans the open reports:
//   - to the current connection: resumed, or withdrawn if they were made for a previous subscription
//     and never sent.
//   - to a previous connection: withdrawn if they were never sent, else of unknown outcome unless
//     they are being sent. They count as billed there until the outcome is known.
//
// No provider knows a withdrawn report, even if the tenant returns to the previous connection.
func (p *planner) leaveFormer() {
	for _, o := range p.Open {
		p.resume(o)
	}
	p.plan.More = len(p.plan.Resume) > 0
	for _, period := range p.periods {
		if len(p.plan.Withdraw) > 0 && period.ClosedAt == nil {
			p.knows(period, Watermark{})
		}
	}
}

// resume plans what happens with one open report. A quantity of unknown outcome whose period is over, or is on final
// invoices, is left to operators.
func (p *planner) resume(o Open) {
	leased := o.LeaseUntil != nil && o.LeaseUntil.After(p.Now)
	switch {
	case o.Kind == QuantityReport && o.State == InDoubt && (p.isOver(o.Period) || p.isInvoiced(o)):
	case p.Unread && o.Epoch < p.Epoch && p.isReadFirst(o):
	case p.leavesSubscription(o):
		p.plan.Withdraw = append(p.plan.Withdraw, o.ID)
	case p.connectedTo(o.Connection):
		p.plan.Resume = append(p.plan.Resume, o.ID)
	case o.State == Planned:
		p.plan.Withdraw = append(p.plan.Withdraw, o.ID)
	case o.State == Sending && leased:
		p.lookAt(*o.LeaseUntil)
	case o.State == Sending:
		p.plan.Doubt = append(p.plan.Doubt, o.ID)
	}
}

// isOver says whether nothing more is reported of the period that began then.
func (p *planner) isOver(start time.Time) bool {
	completes := slices.ContainsFunc(p.plan.Complete, func(period Period) bool { return period.Start.Equal(start) })
	return completes || slices.ContainsFunc(p.periods, func(period Period) bool {
		return period.Start.Equal(start) && period.ClosedAt != nil && (period.Complete || period.Subscription.Invoiced)
	})
}

// isInvoiced says whether final invoices show what is billed of the report's series,
// although not what came of the report.
func (b *Books) isInvoiced(o Open) bool {
	return containsAny(b.Reported, func(r *Reported) bool { return r.Last == o.ID && r.Invoiced != nil })
}

// statements plans the next statement, one at a time: of the oldest period that
// lacks something, or changed since its last one. One that is of the caller's
// own pass is done with, however its usage has grown since, and also if it was
// refused, so that it does not hold back the others.
func (p *planner) statements() {
	if len(p.plan.Resume) > 0 {
		return
	}
	for i, period := range p.periods {
		latest := p.lastStatement(period, func(State) bool { return true })
		lines, late := p.statement(period, latest)
		of, mine := append(slices.Clone(lines), late...), latest.Number > p.After
		taken, same := latest.State.Taken(), latest.Epoch == p.Epoch && sameLines(latest.Lines, of)
		switch {
		case mine && latest.State == Rejected:
			p.open = p.open || len(of) > 0
		case len(of) == 0:
			p.saidOf(period) // there is nothing to report
		case taken && same:
			p.plan.UpToDate = append(p.plan.UpToDate, latest.ID)
			p.saidOf(period)
		case taken && mine:
			p.plan.UpToDate = append(p.plan.UpToDate, latest.ID)
			p.open = p.open || period.ClosedAt != nil
		default:
			p.plan.More = i < len(p.periods)-1
			p.saidOf(period)
			p.plan.Reports = append(p.plan.Reports, Report{
				Series: Series{Kind: StatementReport, Connection: p.Connection.ID, Counting: Replaces, Period: period.Start, Window: period.Range},
				Lines:  of, Currency: CurrencyOf(lines, p.Settings), Of: period.Range,
				Deadline: period.Deadline(p.Settings.Grace),
			})
			return
		}
	}
}

// saidOf notes that receivers know the open period, unless they do not know all
// of a closed one before it.
func (p *planner) saidOf(period Period) {
	switch {
	case period.ClosedAt != nil:
	case p.open:
		p.knows(period, Watermark{})
	default:
		p.knows(period, p.watermark(period))
	}
}

// statement is what the period comes to, and what late usage adds to closed
// ones; of a closed period, what its receiver does not have. What an operator
// leaves as it is is as it was taken last.
func (p *planner) statement(period Period, latest Sent) (lines, late []Line) {
	var excluded []Exclusion
	if period.ClosedAt != nil {
		lines, late = p.lastLines(period)
	} else {
		lines, excluded = p.charges(period)
		target := Series{Kind: StatementReport, Connection: p.Connection.ID, Window: period.Range}
		late = p.adjustments(p.periods, target, latest.Lines)
	}
	if len(p.leaves) > 0 {
		taken := p.lastStatement(period, State.Taken).Lines
		var more []Exclusion
		lines, more = p.leaveAsTaken(lines, taken)
		excluded = append(excluded, more...)
		late, _ = p.leaveAsTaken(late, taken)
	}
	slices.SortFunc(excluded, func(a, b Exclusion) int { return int(a.MeterID - b.MeterID) })
	for _, e := range excluded {
		p.exclude(e)
	}
	return lines, late
}

// leaveAsTaken puts the lines of excluded meters back to what was taken last;
// one that was never reported is left out.
func (p *planner) leaveAsTaken(lines, taken []Line) (kept []Line, excluded []Exclusion) {
	for _, l := range lines {
		if !slices.Contains(p.leaves, l.MeterID) {
			kept = append(kept, l)
			continue
		}
		i := slices.IndexFunc(taken, l.about)
		if i < 0 {
			excluded = append(excluded, Exclusion{l.MeterID, l.MeterSlug, ExcludedByOperator})
			continue
		}
		before := taken[i]
		before.MeterSlug = l.MeterSlug
		kept = append(kept, before)
	}
	return kept, excluded
}

func (f *Facts) lastStatement(period Period, is func(State) bool) (last Sent) {
	for _, s := range f.Statements {
		if s.Period.Equal(period.Start) && is(s.State) && s.Number > last.Number {
			last = s
		}
	}
	return last
}

// exclude notes why a meter is left out: of several periods, the first one that
// is planned says.
func (p *planner) exclude(e Exclusion) {
	if !slices.ContainsFunc(p.plan.Excluded, func(known Exclusion) bool { return known.MeterID == e.MeterID }) {
		p.plan.Excluded = append(p.plan.Excluded, e)
	}
}

// knows notes what the provider knows of the period, where that has changed.
func (p *planner) knows(period Period, w Watermark) {
	if period.Watermark != w {
		p.plan.Reported = append(p.plan.Reported, PeriodWatermark{period.Start, w})
	}
}

// quantities plans the reports of each meter, period by period from the newest on. The provider knows all of an open
// period only if nothing is left to report of it, of closed periods, and of others whose reports can change it.
func (p *planner) quantities() {
	known := make(map[int]Watermark)
	reported, unreported := 0, false
	for i, period := range slices.Backward(p.periods) {
		if p.isOver(period.Start) {
			continue
		}
		reported++
		p.reportPeriod(period)
		if !p.open && period.ClosedAt == nil {
			known[i] = p.watermark(period)
		}
		unreported = unreported || p.open && period.ClosedAt != nil
	}
	if unreported || reported > 1 && p.mayComeLast() {
		clear(known)
	}
	for i, period := range slices.Backward(p.periods) {
		if period.ClosedAt == nil {
			p.knows(period, known[i])
		}
	}
}

// reportPeriod plans the reports of one period. It sets open if something is left to report, or has an unknown outcome.
func (p *planner) reportPeriod(period Period) {
	p.open, p.lines = false, p.pendingLines(period)
	for _, m := range p.positionsOf(period) {
		m.decide()
	}
	p.lateCharges(period)
	p.finalize(period)
}

// mayComeLast says whether a report of which the last one counts is planned, or
// on its way.
func (p *planner) mayComeLast() bool {
	return slices.ContainsFunc(p.plan.Reports, func(r Report) bool { return r.Counting == Latest }) ||
		containsAny(p.Reported, func(r *Reported) bool { return r.Counting == Latest && r.Outstanding && p.here(r.Series) })
}

// next says whether a series' next report is to be made: there is something
// new, and none is outstanding or of this pass.
func (p *planner) next(s *Reported, changed bool) bool {
	taken, mine := s.State.Taken(), s.Number > p.After
	switch {
	case s.Outstanding, mine && !taken:
		p.open = p.open || s.Outstanding || changed
		return false
	case !changed || mine:
		p.open = p.open || changed
		if taken {
			p.plan.UpToDate = append(p.plan.UpToDate, s.Last)
		}
		return false
	case len(p.plan.Resume)+len(p.plan.Reports) >= reportsAtOnce:
		p.open, p.plan.More = true, true
		return false
	}
	return true
}

// theirPrice is the provider's own price of a meter's units in the period, where
// it has one: as it was while the period ran, or, of a meter that was made later,
// as it is now. Of what is billed in amounts the price is ours.
func (p *planner) theirPrice(period Period, meter metering.MeterID) ProviderPrice {
	if period.Bills == metering.BillsAmounts {
		return nil
	}
	then := period.Subscription.Prices[meter]
	if p.Side == nil {
		return then // nobody has looked what is there
	}
	d := p.destinationIn(period, meter)
	switch {
	case d.Excluded == "" && d.Price == nil:
		return nil
	case then == nil && period.Subscription.ID == p.Side.Subscription:
		return d.Price
	}
	return then
}

// Empty says whether there is nothing to do.
func (p ReportPlan) Empty() bool {
	return !p.ReadFirst && len(p.Resolved)+len(p.Reconciled)+len(p.Withdraw)+len(p.Doubt)+len(p.Resume)+len(p.Reports)+len(p.Closings) == 0
}
