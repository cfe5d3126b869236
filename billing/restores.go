package billing

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// A ledger that was restored from a backup lacks the reports that were made after the backup. If each report of a
// series replaces the previous one, the next report corrects the provider. If the provider adds up a series, Odometer
// waits until the provider must have counted every report. Odometer then reads the total, and records the difference
// as reported.

// restoredAt returns the time of the ledger's last restore, or the year 1970 if there was none.
func (f *Facts) restoredAt() time.Time { return time.Unix(f.Epoch, 0) }

// mayLackReports reports whether the ledger may lack a later report of the series, because the last accepted one was
// made before the last restore.
func (p *planner) mayLackReports(s *Reported) bool {
	return s.Taken.Any && s.Epoch < p.Epoch
}

// isLastSent reports whether the accepted statement s is certainly the receiver's last one of the closed period. Without
// a restore after s, it is. Otherwise, it is only if the ledger has no newer statement of the period, and if the period
// was closed and the outcome of s was known before the first such restore. In all other cases, Odometer may have sent a
// newer statement after that backup.
func (f *Facts) isLastSent(s Sent, p Period) bool {
	i := slices.IndexFunc(f.Epochs, func(epoch int64) bool { return epoch > s.Epoch })
	if i < 0 {
		return true
	}
	restored := time.Unix(f.Epochs[i], 0)
	last := f.lastStatement(p, func(State) bool { return true })
	return last.Number == s.Number && s.DecidedAt.Before(restored) && p.ClosedAt != nil && p.ClosedAt.Before(restored)
}

// knowsLastSent reports whether the receiver's last statement of a closed period is known. This holds if isLastSent
// returns true for the last accepted statement. Without an accepted statement, it holds if no restore can have lost one
// that arrived: no statement of the period was made before the last restore, and no restore fell into the time from the
// period's start to its close.
func (f *Facts) knowsLastSent(p Period) bool {
	if last := f.lastStatement(p, State.Taken); last.Number > 0 {
		return f.isLastSent(last, p)
	}
	before := slices.ContainsFunc(f.Statements, func(s Sent) bool { return s.Period.Equal(p.Start) && s.Epoch < f.Epoch })
	return !before && !slices.ContainsFunc(f.Epochs, func(epoch int64) bool {
		restored := time.Unix(epoch, 0)
		return p.Start.Before(restored) && !p.ClosedAt.Before(restored)
	})
}

// isReadFirst reports whether the totals of the report's destination have to be read before the report is sent again:
// the report precedes a restore, and the totals may include it. The totals include a quantity only if the provider adds
// it up. The totals of a previous customer at the provider are not read, so reports to that customer are not sent again.
func (p *planner) isReadFirst(o Open) bool {
	return o.Unread && o.Epoch < p.Epoch && !containsAny(p.Facts.Reported, func(r *Reported) bool {
		return r.Last == o.ID && r.Kind == QuantityReport && r.Counting != Adds
	})
}

// waitForReading excludes a meter from the plan, because the provider's totals must be read first. It sets open, and
// requires the next plan within an hour.
func (p *planner) waitForReading(m metering.Meter) {
	p.open = true
	p.exclude(Exclusion{m.ID, m.Slug, ExclusionReason{Code: ExcludedRestored}})
	p.replanAt(p.Now.Add(time.Hour))
}

// AddedUp is a destination at which the provider adds up the usage of one meter.
type AddedUp struct {
	MeterID metering.MeterID
	Series
}

// AddedUp returns the destinations with totals that must be read after a restore, for all periods that are reported.
// It returns nil if the totals are already read, or if the customer has to be read at the provider first.
func (b *Books) AddedUp() (all []AddedUp) {
	if !b.Unread || b.Side == nil {
		return nil
	}
	b.eachAddedUp(func(m *position, at AddedUp) { all = append(all, at) })
	return all
}

// eachAddedUp calls do for each position in units with an open phase (see phase.isOpen) and a destination that accepts
// reports and adds them up. It skips positions outside the customer's subscription.
func (b *Books) eachAddedUp(do func(m *position, at AddedUp)) {
	p := planner{Books: b, periods: Periods(b.Facts)}
	for _, period := range p.periods {
		for _, m := range p.positionsOf(period) {
			meter := m.meter
			isOutside := m.part.Empty() || !period.Subscription.isAt(b.Connection.ID)
			if m.inMoney() || !m.phase.isOpen() || m.destination.Counting != Adds || !m.destination.takes() || isOutside {
				continue
			}
			do(m, AddedUp{meter.ID, Series{
				Kind: QuantityReport, Connection: b.Connection.ID, Customer: b.Side.Customer, Target: m.destination.Target,
				Method: m.destination.Method, Counting: Adds, Period: period.Start, Window: m.part,
			}})
		}
	}
}

// surelyAcceptedAt returns the quantity of a meter that a destination has surely accepted. It adds up all series of the
// destination that start in the given window, for any part of the subscription's period that they report.
func (b *Books) surelyAcceptedAt(at AddedUp) (accepted metering.Decimal) {
	for n := range b.Reported {
		r := &b.Reported[n]
		there := r.Kind == QuantityReport && r.Connection == at.Connection && r.Customer == at.Customer && r.Target == at.Target && r.Method == at.Method
		if there && r.MeterID == at.MeterID && at.Window.Contains(r.Window.Start) {
			accepted = accepted.Add(r.surelyAccepted())
		}
	}
	return accepted
}

// surelyAccepted returns the quantity of the series that the provider has surely accepted. While a report is
// outstanding, final invoices may bill more than the accepted reports. That surplus is excluded, because the ledger no
// longer contains it once the report is rejected (see Forgotten). The report that Lost returns then includes the
// surplus.
func (r *Reported) surelyAccepted() metering.Decimal {
	if r.Outstanding {
		return smaller(r.providerTotal(), r.Taken.counted(r.Counting))
	}
	return r.providerTotal()
}

// surelyAcceptedHere returns the quantity of the period that the destination has surely accepted.
func (m *position) surelyAcceptedHere() (accepted metering.Decimal) {
	for _, s := range m.own {
		accepted = accepted.Add(s.surelyAccepted())
	}
	return accepted
}

// Forgotten returns the outstanding reports of previous epochs to the destinations of the given totals. If such a
// report arrived, the total of its destination includes it. If the total is less than the surely accepted quantity, the
// reports to that destination keep their unknown outcome.
func (b *Books) Forgotten(found []Found) (reports []uuid.UUID) {
	if !b.Unread || b.Side == nil {
		return nil
	}
	b.eachAddedUp(func(m *position, at AddedUp) {
		if !slices.ContainsFunc(found, func(there Found) bool { return there.AddedUp == at && there.Counted.Cmp(b.surelyAcceptedAt(at)) >= 0 }) {
			return
		}
		for _, s := range m.own {
			former := func(o Open) bool { return o.ID == s.Last && o.Epoch < b.Epoch }
			if s.Outstanding && slices.ContainsFunc(b.Open, former) {
				reports = append(reports, s.Last)
			}
		}
	})
	return reports
}

// ReportsWithoutLine returns the outstanding reports of previous epochs that set an invoice line, if no charge in found
// names them. A line names the last report that set it. So such a report did not arrive, or a later one replaced it.
func (b *Books) ReportsWithoutLine(found []FoundCharge) (reports []uuid.UUID) {
	if !b.Unread || b.Side == nil {
		return nil
	}
	for _, o := range b.Open {
		sets := containsAny(b.Reported, func(r *Reported) bool {
			return r.Last == o.ID && r.Kind == ChargeReport && r.Counting == Replaces && b.here(r.Series) && r.Customer == b.Side.Customer
		})
		if sets && o.Epoch < b.Epoch && !slices.ContainsFunc(found, func(c FoundCharge) bool { return c.ReportID == o.ID }) {
			reports = append(reports, o.ID)
		}
	}
	return reports
}

// Found is the total that the provider has counted at a destination.
type Found struct {
	AddedUp
	Counted metering.Decimal
}

// Lost returns the reports that the ledger lacks: one for each destination at which the provider has counted more
// than the ledger records. The report contains the whole difference.
func (b *Books) Lost(found []Found) (reports []Report) {
	b.eachAddedUp(func(m *position, at AddedUp) {
		for _, there := range found {
			more := there.Counted.Sub(b.surelyAcceptedAt(at))
			if there.AddedUp != at || more.IsNegative() || more.IsZero() {
				continue
			}
			reports = append(reports, Report{
				Series: at.Series, Destination: m.destination, To: m.invoicedBy(), Lines: []Line{m.lineAt(m.others.quantity.Add(m.surelyAcceptedHere()).Add(more))},
				Quantity: more, Of: m.period.Range, Deadline: m.period.Deadline(m.Settings.Grace),
			})
		}
	})
	return reports
}

// ChargedSince returns the time from which charges must be read if the ledger lacks reports after the given time. It is
// the earliest of these times:
//   - The given time.
//   - The start of each incomplete period that is billed in amounts. A report that the ledger lacks may have changed a
//     line that was created since then.
//   - The start of the window of each outstanding report that sets a line. The line was created since then, and
//     ReportsWithoutLine must find it.
func (f Facts) ChargedSince(known time.Time) time.Time {
	since := known
	for _, p := range Periods(f) {
		if p.Bills == metering.BillsAmounts && !p.Complete && p.Start.Before(since) {
			since = p.Start
		}
	}
	for i := range f.Reported {
		r := &f.Reported[i]
		if r.Outstanding && r.Kind == ChargeReport && r.Counting == Replaces && f.here(r.Series) && r.Window.Start.Before(since) {
			since = r.Window.Start
		}
	}
	return since
}

// FoundCharge is a charge that Odometer has created at the provider.
type FoundCharge struct {
	ReportID     uuid.UUID // IDs ascend in the order of the reports; if reports overwrite the charge, the last report
	MeterID      metering.MeterID
	Subscription string
	Object       string    // the provider's ID of the object that reports overwrite; "": charges are added up
	Method       Method    // if Object is set
	Closed       time.Time // start of the period of the usage, in whole seconds
	Target       time.Time // start of the target period or, unless Late, of the charged part; in whole seconds
	Late         bool      // the usage arrived after its period was closed
	Units        metering.Decimal
	Amount       metering.Decimal
	Currency     string
}

// LostCharges returns the reports that the ledger lacks, for charges without a known report: one for each series and
// meter. If reports overwrite the charge, Lost is the ID of its last report, because invoices name that ID.
func (b *Books) LostCharges(found []FoundCharge) (reports []Report) {
	slices.SortFunc(found, func(a, b FoundCharge) int { return cmp.Compare(a.ReportID.String(), b.ReportID.String()) })
	for _, charge := range found {
		r, known := b.lostCharge(charge)
		if !known {
			continue
		}
		i := slices.IndexFunc(reports, func(o Report) bool { return o.Series == r.Series && o.Lines[0].MeterID == charge.MeterID })
		if i < 0 {
			reports = append(reports, r)
			continue
		}
		before := reports[i]
		r.Quantity = r.Quantity.Add(before.Quantity)
		r.Lines[0].Amount = r.Lines[0].Amount.Add(before.Quantity)
		reports[i] = r
	}
	return reports
}

// lostCharge returns a charge of Odometer at the provider as a report. known is false if no period begins at c.Closed,
// or if the meter does not belong to the billing schedule in that period.
func (b *Books) lostCharge(c FoundCharge) (r Report, known bool) {
	periods := Periods(b.Facts)
	closed, found := periodAt(periods, c.Closed)
	if !found || !slices.ContainsFunc(b.metersIn(closed), func(m metering.Meter) bool { return m.ID == c.MeterID }) {
		return r, false
	}
	target, found := periodAt(periods, c.Target)
	if !found {
		target, _ = openPeriod(periods)
	}
	r = Report{
		Series: Series{
			Kind: ChargeReport, Connection: b.Connection.ID, Customer: b.Side.Customer, Target: c.Subscription,
			Counting: Adds, Period: closed.Start, Window: target.Range, Late: true,
		},
		Quantity: c.Amount, Currency: c.Currency, Of: closed.Range, Deadline: target.Deadline(b.Settings.Grace),
	}
	line := Line{MeterID: c.MeterID, Closed: closed.Start, Quantity: c.Units, Amount: c.Amount, Charge: c.Amount, Currency: c.Currency}
	if c.Object != "" {
		return r.found(c, line, closed), true
	}
	for n := range b.Reported {
		s := &b.Reported[n]
		if s.Late && s.MeterID == c.MeterID && s.about(closed) && s.sameTarget(r.Series) {
			line.Amount = line.Amount.Add(s.Taken.Added)
		}
	}
	r.Lines = []Line{line}
	return r, true
}

// found returns the report r of charge c as the charge was last set, for a charge that reports overwrite. l is the
// report's line, and of is the period of the usage.
func (r Report) found(c FoundCharge, l Line, of Period) Report {
	if r.Lost, r.Method, r.Counting = c.ReportID, c.Method, Replaces; !c.Late {
		r.Late, r.Window, l.Closed = false, of.Intersect(of.Subscription.Range), time.Time{}
		if !r.Window.Start.Truncate(time.Second).Equal(c.Target) {
			r.Window = metering.Range{Start: c.Target, End: of.End}
		}
	}
	r.Lines = []Line{l}
	return r
}

// periodAt returns the period that begins within the second.
func periodAt(periods []Period, second time.Time) (p Period, found bool) {
	i := slices.IndexFunc(periods, func(p Period) bool { return p.Start.Truncate(time.Second).Equal(second) })
	if i < 0 {
		return p, false
	}
	return periods[i], true
}
