package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// reportsAtOnce limits the reports of one plan. With this many reports to resume or create, a plan creates no more. The
// next plan creates the rest.
const reportsAtOnce = 200

// planner computes a ReportPlan.
type planner struct {
	*Books
	periods        []Period
	plan           ReportPlan
	excludedMeters []metering.MeterID // meters that an operator excludes from this plan

	open  bool // the provider lacks part of the period, or may lack it
	lines int  // number of Odometer's lines on the period's invoice, including planned ones
}

// Plan plans the next reports of the billing schedule. If MayClose is set, it plans the periods to close instead of new
// reports. If nothing is left to do, the plan is empty (see ReportPlan.Empty).
func (b Books) Plan() ReportPlan {
	p := planner{Books: &b, periods: Periods(b.Facts), excludedMeters: b.Excluded}
	p.plan.Periods, p.plan.HeadOpenUntil, p.plan.Resolved, p.plan.Bookings = p.periods, p.headOpenUntil(), b.Resolved, p.bookings()
	p.plan.Complete, p.plan.PartlyKnown = b.complete(), b.partlyKnown()
	switch {
	case b.MayClose:
		p.planClosings()
	case b.Connection == nil:
	case b.Connection.Statements:
		p.planOutstanding()
		p.planStatements()
	case b.Side == nil, p.lacksCharges():
		p.plan.ReadFirst = true
	default:
		p.planOutstanding()
		p.planQuantities()
	}
	p.plan.Reconciled = slices.Concat(b.Reconciled, p.plan.Reconciled)
	p.scheduleReplan()
	return p.plan
}

// uncountedAfter is how long an accepted report may be missing in the provider's count before the
// customer is re-evaluated.
const uncountedAfter = 24 * time.Hour

// scheduleReplan sets ReplanAt to the next instant at which the plan can change, unless an earlier one is already set:
//   - An open period ends, or is due to close.
//   - A meter moves to another billing schedule.
//   - The first period begins, or its start becomes final.
//   - The time uncountedAfter has passed since the provider accepted a report without counting it.
//
// If the last known period has ended, or if the plan gives a stored period another subscription, ReplanAt is Now or
// earlier.
func (p *planner) scheduleReplan() {
	for _, period := range p.periods {
		if period.ClosedAt == nil {
			p.replanAfterNow(period.End)
			p.replanAfterNow(period.Deadline(p.Settings.Grace))
		}
	}
	for _, feed := range p.Feeds {
		p.replanAfterNow(feed.From)
	}
	if n := len(p.periods); n == 0 {
		p.replanAfterNow(p.first().Start)
	} else if !p.periods[n-1].End.After(p.Now) {
		p.replanAt(p.Now) // the provider determines the next period
	}
	if p.changesSubscription() {
		p.replanAt(p.Now)
	}
	if p.plan.HeadOpenUntil != nil {
		p.replanAfterNow(*p.plan.HeadOpenUntil)
	}
	for n := range p.Facts.Reported {
		r := &p.Facts.Reported[n]
		if p.awaitsCount(r) {
			p.replanAt(r.TakenAt.Add(uncountedAfter))
		}
	}
}

// changesSubscription reports whether the plan gives a stored period another subscription. Once the plan is stored,
// invoices of the new subscription can bill the reports of the period.
func (p *planner) changesSubscription() bool {
	return slices.ContainsFunc(p.Stored, func(s Period) bool {
		return slices.ContainsFunc(p.periods, func(period Period) bool {
			planned, stored := period.Subscription, s.Subscription
			return s.Start.Equal(period.Start) && (planned.ID != stored.ID || !planned.Start.Equal(stored.Start))
		})
	})
}

// awaitsCount reports whether the provider has accepted a report of the series and still has to count it. The
// report's period must be incomplete. The report's window must not begin before that period or before the
// subscription's period.
func (p *planner) awaitsCount(r *Reported) bool {
	if r.Kind != QuantityReport || !p.here(r.Series) || r.TakenAt.IsZero() {
		return false
	}
	return slices.ContainsFunc(p.periods, func(period Period) bool {
		ended := r.Window.Start.Before(period.Start) || r.Window.Start.Before(period.Subscription.Start)
		return r.about(period) && !period.Complete && !ended
	})
}

// replanAfterNow calls replanAt if t is in the future.
func (p *planner) replanAfterNow(t time.Time) {
	if t.After(p.Now) {
		p.replanAt(t)
	}
}

// replanAt sets ReplanAt to t if t is before ReplanAt, or if ReplanAt is unset.
func (p *planner) replanAt(t time.Time) {
	if p.plan.ReplanAt.IsZero() || t.Before(p.plan.ReplanAt) {
		p.plan.ReplanAt = t
	}
}

// UsageRanges returns the ranges of the periods with usage that a plan depends on. These are the incomplete periods,
// and the complete periods that may need an adjustment.
func (b *Books) UsageRanges() []metering.Range {
	var ranges []metering.Range
	for _, p := range ExpectedPeriods(b.Facts) {
		if !p.Complete || b.adjustable(p) {
			ranges = append(ranges, p.Range)
		}
	}
	return ranges
}

// WindowedMeters returns the meters that are reported by hour or by day (see Destination.Window). It returns nil if the
// customer's state at the provider is not read yet.
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

// planOutstanding plans the next step of each outstanding report. The first case that applies decides:
//   - No step: only an operator decides the outcome, or the provider's totals must be read first.
//   - A report that was never sent is withdrawn if it was made for a previous subscription.
//   - All other reports to the current connection are resumed.
//   - A report to a previous connection is withdrawn if it was never sent. Otherwise its outcome becomes unknown,
//     unless the report is being sent. The previous connection is treated as billing the report until the outcome is
//     known.
//
// No provider has a withdrawn report, even if the tenant returns to the previous connection. planOutstanding therefore
// resets the watermarks of all open periods if it withdraws a report.
func (p *planner) planOutstanding() {
	for _, o := range p.Open {
		p.planNextStep(o)
	}
	p.plan.More = len(p.plan.Resume) > 0
	for _, period := range p.periods {
		if len(p.plan.Withdraw) > 0 && period.ClosedAt == nil {
			p.addWatermark(period, Watermark{})
		}
	}
}

// planNextStep plans the next step of one outstanding report.
func (p *planner) planNextStep(o Open) {
	leased := o.LeaseUntil != nil && o.LeaseUntil.After(p.Now)
	switch {
	case p.isLeftToOperator(o), p.isReadFirst(o):
	case p.isForPreviousSubscription(o):
		p.plan.Withdraw = append(p.plan.Withdraw, o.ID)
	case p.connectedTo(o.Connection):
		p.plan.Resume = append(p.plan.Resume, o.ID)
	case o.State == Planned:
		p.plan.Withdraw = append(p.plan.Withdraw, o.ID)
	case o.State == Sending && leased:
		p.replanAfterNow(*o.LeaseUntil)
	case o.State == Sending:
		p.plan.Doubt = append(p.plan.Doubt, o.ID)
	}
}

// isLeftToOperator reports whether only an operator decides the outcome of a quantity: the period is over, or final
// invoices show the billed units of the series.
func (p *planner) isLeftToOperator(o Open) bool {
	return o.Kind == QuantityReport && o.State == InDoubt && (p.isOver(o.Period) || p.isInvoiced(o))
}

// isOver reports whether nothing more is reported of the period that begins at start. Such a period is complete, or it
// is closed and its invoice is final.
func (p *planner) isOver(start time.Time) bool {
	completes := slices.ContainsFunc(p.plan.Complete, func(period Period) bool { return period.Start.Equal(start) })
	return completes || slices.ContainsFunc(p.periods, func(period Period) bool {
		return period.Start.Equal(start) && period.ClosedAt != nil && (period.Complete || period.Subscription.Invoiced)
	})
}

// isInvoiced reports whether final invoices show the billed units of the report's series. The outcome of the report
// itself may still be unknown.
func (b *Books) isInvoiced(o Open) bool {
	return containsAny(b.Reported, func(r *Reported) bool { return r.Last == o.ID && r.Invoiced != nil })
}

// planStatements plans one statement at a time, for the oldest period that needs one. A period with lines needs a
// statement if no statement exists, or if the last one was rejected, has other lines or precedes a restore. A period
// with a statement of this pass gets no second one, even if its usage has grown or the statement was rejected. So one
// period does not block the others.
func (p *planner) planStatements() {
	if len(p.plan.Resume) > 0 {
		return
	}
	for i, period := range p.periods {
		if p.planStatement(period) {
			p.plan.More = i < len(p.periods)-1
			return
		}
	}
}

// planStatement plans the statement of a period if the period needs one. planned reports whether it does.
func (p *planner) planStatement(period Period) (planned bool) {
	latest := p.lastStatement(period, func(State) bool { return true })
	lines, late := p.statement(period, latest)
	of, mine := append(slices.Clone(lines), late...), latest.Number > p.After
	taken, same := latest.State.Taken(), latest.Epoch == p.Epoch && sameLines(latest.Lines, of)
	switch {
	case mine && latest.State == Rejected:
		p.open = p.open || len(of) > 0
	case len(of) == 0:
		p.setWatermark(period) // there is nothing to report
	case taken && same:
		p.plan.UpToDate = append(p.plan.UpToDate, latest.ID)
		p.setWatermark(period)
	case taken && mine:
		p.plan.UpToDate = append(p.plan.UpToDate, latest.ID)
		p.open = p.open || period.ClosedAt != nil
	default:
		p.setWatermark(period)
		p.plan.Reports = append(p.plan.Reports, Report{
			Series: Series{Kind: StatementReport, Connection: p.Connection.ID, Counting: Replaces, Period: period.Start, Window: period.Range},
			Lines:  of, Currency: CurrencyOf(lines, p.Settings), Of: period.Range,
			Deadline: period.Deadline(p.Settings.Grace),
		})
		return true
	}
	return false
}

// setWatermark sets the watermark of an open period to its current usage. The receiver has this usage, or gets it with
// the statement that is planned now. If the receiver lacks part of an earlier period, setWatermark resets the watermark
// instead. It ignores closed periods.
func (p *planner) setWatermark(period Period) {
	switch {
	case period.ClosedAt != nil:
	case p.open:
		p.addWatermark(period, Watermark{})
	default:
		p.addWatermark(period, p.watermark(period))
	}
}

// statement returns the lines of the period's next statement, and the late lines that adjust closed periods. For a
// closed period, it returns no lines if the receiver has all of the period. Lines of meters that an operator excludes
// stay as the receiver last accepted them. statement adds the excluded meters of the period to the plan.
func (p *planner) statement(period Period, latest Sent) (lines, late []Line) {
	var excluded []Exclusion
	if period.ClosedAt != nil {
		lines, late = p.lastLines(period)
	} else {
		lines, excluded = p.charges(period)
		target := Series{Kind: StatementReport, Connection: p.Connection.ID, Window: period.Range}
		late = p.adjustments(p.periods, target, latest.Lines)
	}
	if len(p.excludedMeters) > 0 {
		accepted := p.lastStatement(period, State.Taken).Lines
		var more []Exclusion
		lines, more = p.keepAcceptedLines(lines, accepted)
		excluded = append(excluded, more...)
		late, _ = p.keepAcceptedLines(late, accepted)
	}
	slices.SortFunc(excluded, func(a, b Exclusion) int { return int(a.MeterID - b.MeterID) })
	for _, e := range excluded {
		p.exclude(e)
	}
	return lines, late
}

// keepAcceptedLines replaces the lines of meters that an operator excludes with the last accepted lines. It drops a
// line without an accepted one, and returns the line's meter in excluded.
func (p *planner) keepAcceptedLines(lines, accepted []Line) (kept []Line, excluded []Exclusion) {
	for _, l := range lines {
		if !slices.Contains(p.excludedMeters, l.MeterID) {
			kept = append(kept, l)
			continue
		}
		i := slices.IndexFunc(accepted, l.about)
		if i < 0 {
			excluded = append(excluded, Exclusion{l.MeterID, l.MeterSlug, ExclusionReason{Code: ExcludedByOperator}})
			continue
		}
		kept = append(kept, accepted[i])
	}
	return kept, excluded
}

// lastStatement returns the newest statement of the period that has a matching state, or a zero Sent.
func (f *Facts) lastStatement(period Period, matches func(State) bool) (last Sent) {
	for _, s := range f.Statements {
		if s.Period.Equal(period.Start) && matches(s.State) && s.Number > last.Number {
			last = s
		}
	}
	return last
}

// exclude adds the meter to the plan's excluded meters. If several periods exclude the meter, the plan has the reason
// of the period that is planned first.
func (p *planner) exclude(e Exclusion) {
	if !slices.ContainsFunc(p.plan.Excluded, func(known Exclusion) bool { return known.MeterID == e.MeterID }) {
		p.plan.Excluded = append(p.plan.Excluded, e)
	}
}

// addWatermark adds the period's watermark to the plan if it differs from the stored one.
func (p *planner) addWatermark(period Period, w Watermark) {
	if period.Watermark != w {
		p.plan.Reported = append(p.plan.Reported, PeriodWatermark{period.Start, w})
	}
}

// planQuantities plans the reports of each meter, period by period, newest first. It sets the watermark of an open
// period only if nothing is left to report of that period and of closed periods. If it reports several periods, it
// resets the watermarks of all open periods while mayComeLast is true, because such a report can change another
// period's total.
func (p *planner) planQuantities() {
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
			p.addWatermark(period, known[i])
		}
	}
}

// reportPeriod plans the reports of one period. It sets open if something is left to report, or has an unknown outcome.
func (p *planner) reportPeriod(period Period) {
	p.open, p.lines = false, p.pendingLines(period)
	for _, m := range p.positionsOf(period) {
		m.planReports()
	}
	p.planLateCharges(period)
	p.planFinalization(period)
	p.open = p.open || p.awaitsLateCharge()
}

// mayComeLast reports whether a report with Counting Latest is planned, or outstanding at the current connection.
func (p *planner) mayComeLast() bool {
	return slices.ContainsFunc(p.plan.Reports, func(r Report) bool { return r.Counting == Latest }) ||
		containsAny(p.Reported, func(r *Reported) bool { return r.Counting == Latest && r.Outstanding && p.here(r.Series) })
}

// shouldReport reports whether to plan the next report of a series: its value has changed, no report of the series is
// outstanding, and the series has no report of this pass. It sets open if a change stays unreported, or a report is
// outstanding. If the plan already has reportsAtOnce reports, shouldReport returns false and sets More. It adds an
// accepted last report to UpToDate if the value has not changed, or if the report is of this pass.
func (p *planner) shouldReport(s *Reported, changed bool) bool {
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

// theirPrice returns the provider's own price of a meter's units in the period, or nil if Odometer's price applies. It
// is the price recorded for the period. If none was recorded, as for a meter created later, it is the current price of
// the same subscription. It is nil if the period is billed in amounts, or if the destination accepts reports and has no
// known price now.
func (p *planner) theirPrice(period Period, meter metering.MeterID) ProviderPrice {
	if period.Bills == metering.BillsAmounts {
		return nil
	}
	then := period.Subscription.Prices[meter]
	if p.Side == nil {
		return then // the customer's state at the provider is not read yet
	}
	d := p.destinationIn(period, meter)
	switch {
	case d.takes() && d.Price == nil:
		return nil
	case then == nil && period.Subscription.ID == p.Side.Subscription:
		return d.Price
	}
	return then
}

// Empty reports whether the plan has nothing to read, report, settle, reconcile or close. It ignores the periods,
// watermarks and bookings to store.
func (p ReportPlan) Empty() bool {
	return !p.ReadFirst && len(p.Resolved)+len(p.Reconciled)+len(p.Withdraw)+len(p.Doubt)+len(p.Resume)+len(p.Reports)+len(p.Closings) == 0
}
