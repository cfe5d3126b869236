package billing_test

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// leaseTime is the duration of a lease. A call is shorter.
const leaseTime = 30 * time.Second

// aggregate adds the next report of a series to the series' totals.
func (l *ledger) aggregate(s *billing.Reported, r *storedReport, line billing.Line) {
	s.Last, s.Number, s.State = r.id, r.number, r.state
	s.Outstanding = s.Outstanding || r.state.Outstanding()
	if !r.timestamp.IsZero() && (s.Timestamp == nil || r.timestamp.After(*s.Timestamp)) {
		s.Timestamp = &r.timestamp
	}
	if r.state.Taken() {
		s.Taken, s.Epoch = next(s.Taken, r, line), r.epoch
	}
	if r.state != billing.Rejected && (r.state != billing.Planned || l.reaches(r)) {
		s.Standing = next(s.Standing, r, line)
	}
	if r.state == billing.Accepted {
		s.TakenAt = r.settledAt
	}
}

// next returns the sums of a series after one more report.
func next(s billing.Sums, r *storedReport, line billing.Line) billing.Sums {
	added := s.Added
	if r.Kind != billing.StatementReport {
		added = added.Add(r.Quantity)
	}
	return billing.Sums{Any: true, Value: line.Quantity, Added: added, Quantity: r.Quantity, Amount: line.Amount, Currency: line.Currency, Theirs: line.Price != nil}
}

// reaches reports whether the report goes to the current connection.
func (l *ledger) reaches(r *storedReport) bool {
	return l.connection != nil && l.connection.ID == r.Connection
}

// statements returns the last statement to the current connection for each incomplete period. If that one was
// not accepted, it also returns the last accepted statement of the period.
func (l *ledger) statements() (sent []billing.Sent) {
	if l.connection == nil {
		return nil
	}
	for _, p := range l.periods {
		if p.Complete {
			continue
		}
		var last, taken *storedReport
		for _, r := range l.reports {
			if r.Kind == billing.StatementReport && l.reaches(r) && r.Period.Equal(p.Start) {
				last = r
				if r.state.Taken() {
					taken = r
				}
			}
		}
		if taken != nil && taken != last {
			sent = append(sent, billing.Sent{ID: taken.id, Period: p.Start, Number: taken.number, Epoch: taken.epoch, State: taken.state, Lines: taken.Lines, DecidedAt: taken.settledAt})
		}
		if last != nil {
			sent = append(sent, billing.Sent{ID: last.id, Period: p.Start, Number: last.number, Epoch: last.epoch, State: last.state, Lines: last.Lines, DecidedAt: last.settledAt})
		}
	}
	return sent
}

// open returns the outstanding reports.
func (l *ledger) open() (open []billing.Open) {
	for _, r := range l.reports {
		if r.state.Outstanding() {
			o := billing.Open{ID: r.id, Kind: r.Kind, Connection: r.Connection, Period: r.Period, State: r.state, Epoch: r.epoch, Unread: r.Kind != billing.StatementReport && l.isUnreadAt(linkTo(r.Connection, r.Customer))}
			if !r.lease.IsZero() {
				o.LeaseUntil = &r.lease
			}
			open = append(open, o)
		}
	}
	return open
}

// write stores a plan and creates the given number of its reports.
func (l *ledger) write(p billing.ReportPlan, now time.Time, reports int) (queue []uuid.UUID) {
	l.store(p, now)
	return l.written(p, now, reports)
}

// written creates the given number of reports of a stored plan. It returns the reports to send, outstanding
// ones first.
func (l *ledger) written(p billing.ReportPlan, now time.Time, reports int) (queue []uuid.UUID) {
	queue = slices.Clone(p.Resume)
	for i := range p.Reports[:min(reports, len(p.Reports))] {
		queue = append(queue, l.add(p.Reports[i], now).id)
	}
	return queue
}

// add stores a planned report with the next number.
func (l *ledger) add(r billing.Report, now time.Time) *storedReport {
	stored := &storedReport{Report: r, state: billing.Planned, epoch: l.epoch, made: now, stream: l.stream}
	l.number = max(l.number, l.epoch*numbersOfEpoch) + 1
	if stored.number = l.number; r.Kind != billing.StatementReport {
		stored.timestamp = timestampOf(r, now)
	}
	if binary.BigEndian.PutUint64(stored.id[8:], uint64(l.number)); r.Lost != uuid.Nil {
		stored.id = r.Lost
	}
	for _, former := range l.reports { // a series keeps the window of its first report
		if s := former.Series; s.Window.Start.Equal(r.Window.Start) {
			if s.Window.End = r.Window.End; s == r.Series {
				stored.Window.End = former.Window.End
			}
		}
	}
	stored.id[0] = byte(len(l.name)) // another customer's reports have other IDs
	stored.closed = stored.bytes()
	l.reports = append(l.reports, stored)
	return stored
}

// timestampOf returns the timestamp of a report that is created now.
func timestampOf(r billing.Report, now time.Time) time.Time {
	switch {
	case r.Kind != billing.QuantityReport:
		return now
	case r.Counting == billing.Replaces:
		return r.Window.Start.Add(time.Second)
	case r.Former != nil && now.Before(r.Former.Add(time.Second)) && r.Counting == billing.Latest:
		now = r.Former.Add(time.Second)
	}
	if last := r.Window.End.Add(-time.Second); now.After(last) {
		return last
	}
	if now.Before(r.Window.Start) {
		return r.Window.Start
	}
	return now
}

// period returns the stored period that begins at start. It panics if there is none.
func (l *ledger) period(start time.Time) *billing.Period {
	i := slices.IndexFunc(l.periods, func(p billing.Period) bool { return p.Start.Equal(start) })
	return &l.periods[i]
}

// part returns the part of the report's period that lies in the subscription's period. The part may have
// become shorter since the series' window was stored.
func (l *ledger) part(r *storedReport) metering.Range {
	of := l.period(r.Period)
	return of.Intersect(of.Subscription.Range)
}

// resubscribed reports whether the customer's subscription changed after the report of a quantity was made.
// Odometer no longer reads the count of the previous subscription.
func (l *ledger) resubscribed(r *storedReport) bool {
	return r.Kind == billing.QuantityReport && r.Window.Start.Before(l.part(r).Start)
}

// report returns the stored report with the ID. It panics if there is none.
func (l *ledger) report(id uuid.UUID) *storedReport {
	i := slices.IndexFunc(l.reports, func(r *storedReport) bool { return r.id == id })
	return l.reports[i]
}

// begin leases a report to the caller. ok is false if the report may not be sent now.
func (l *ledger) begin(id uuid.UUID, now time.Time) (r *storedReport, ok bool) {
	r = l.report(id)
	if !r.state.Outstanding() || r.lease.After(now) || !l.reaches(r) {
		return r, false
	}
	r.state, r.lease = billing.Sending, now.Add(leaseTime)
	if r.attempts++; r.firstSent.IsZero() {
		r.firstSent = now
	}
	return r, true
}

// release ends the lease of an attempt without a known outcome. If newKey is set, the next attempt uses a new
// idempotency key.
func (l *ledger) release(r *storedReport, attempt int, newKey bool) {
	if r.attempts == attempt && r.state == billing.Sending {
		if r.lease = (time.Time{}); newKey {
			r.key++
		}
	}
}

// settle stores the outcome of a report. A late acceptance overrides a rejection.
func (l *ledger) settle(id uuid.UUID, outcome billing.State, now time.Time) {
	r := l.report(id)
	late, doubted := r.state == billing.Rejected && outcome == billing.Accepted, r.state == billing.InDoubt
	if !r.state.Outstanding() && !late {
		return
	}
	r.state, r.lease = outcome, time.Time{}
	if outcome != billing.InDoubt {
		r.settledAt = now
	}
	if outcome != billing.Accepted || late || doubted || !l.reaches(r) {
		l.look()
	}
}

// look clears the configuration of all open periods' watermarks, which makes the customer out of sync.
func (l *ledger) look() {
	for _, of := range l.streams {
		for i := range of.periods {
			if of.periods[i].ClosedAt == nil {
				of.periods[i].Watermark.Configuration = ""
			}
		}
	}
}

// outOfSync reports whether there may be something new to report, without making a plan.
func (l *ledger) outOfSync(now time.Time) bool {
	if l.connection == nil || l.customer.BillingStartsAt != nil && l.customer.BillingStartsAt.After(now) {
		return false
	}
	if !l.connection.Statements && l.sideOf != l.link() {
		return true
	}
	if !l.replanAt.After(now) {
		return true
	}
	for _, r := range l.allReports() {
		if r.state.Outstanding() && (l.reaches(r) || r.state != billing.InDoubt) {
			return true
		}
	}
	for _, p := range l.allPeriods() {
		if p.ClosedAt != nil {
			continue
		}
		plan := billing.PlanAt(l.customer.Plans, p.Start)
		configuration := billing.Configuration(*l.connection, l.settings.LatePolicy, l.meters, l.prices, plan, p.Start) + billing.OwnVersions(l.customer.Prices, p.Start)
		if p.Watermark.Configuration != configuration || p.Watermark.Events != l.counted(p.Range) {
			return true
		}
	}
	return false
}

// store stores a plan except its new reports: the periods with their watermarks, the bookings, the
// reconciliations and the states of earlier reports.
func (l *ledger) store(p billing.ReportPlan, now time.Time) {
	if l.periods, l.replanAt = slices.Clone(p.Periods), p.ReplanAt; l.stream == 0 {
		l.customer.HeadOpenUntil = p.HeadOpenUntil
	}
	for i := range l.periods {
		l.periods[i].ID = metering.PeriodID(i + 1)
	}
	l.bookings = append(slices.Clone(l.bookings), p.Bookings...)
	l.reconcile(p.Reconciled, p.PartlyKnown)
	for _, w := range p.Reported {
		l.period(w.Start).Watermark = w.Watermark
	}
	for _, of := range p.Complete {
		l.period(of.Start).Complete = true
	}
	for _, r := range p.Resolved {
		l.settle(r.ID, r.State, now)
	}
	for _, id := range p.Withdraw {
		l.report(id).state, l.report(id).settledAt = billing.Rejected, now
	}
	for _, id := range p.Doubt {
		l.report(id).state, l.report(id).lease = billing.InDoubt, time.Time{}
	}
}

// reconcile stores reconciliations with their closed lines. It records that the closed periods were compared
// with all invoices so far. Partly known periods are compared with the same invoices again.
func (l *ledger) reconcile(all []billing.Reconciliation, partlyKnown []time.Time) {
	l.reconciled = append(slices.Clone(l.reconciled), all...)
	for _, r := range all {
		p := l.period(r.Period)
		p.Closed = slices.Clone(p.Closed)
		i := slices.IndexFunc(p.Closed, func(c billing.ClosedLine) bool { return c.MeterID == r.MeterID })
		p.Closed[i].Reconciled = &r
	}
	l.through = maps.Clone(l.through)
	for _, p := range l.periods {
		if p.ClosedAt != nil && !slices.ContainsFunc(partlyKnown, p.Start.Equal) {
			l.through[p.Start.UnixMicro()] = len(l.invoices)
		}
	}
}

// clone returns a copy of the ledger, for a backup or for a plan that must not change the ledger itself.
func (l *ledger) clone() *ledger {
	c, customer := *l, *l.account
	c.account = &customer
	c.periods, c.reports = slices.Clone(l.periods), make([]*storedReport, len(l.reports))
	for i, r := range l.reports {
		copied := *r
		c.reports[i] = &copied
	}
	return &c
}
