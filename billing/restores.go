package billing

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// A ledger that was restored from a backup does not know what was reported since
// that was made. What overwrites is put right by being reported again. What
// adds up is read from the far side, once it has surely counted everything, and
// taken as reported.

// restoredAt is when the ledger was restored last; long ago, if never.
func (f *Facts) restoredAt() time.Time { return time.Unix(f.Epoch, 0) }

// forgotten says whether the far side may have been reported something else of
// a series since the backup was made.
func (p *planner) forgotten(s *Reported) bool {
	return s.Taken.Any && s.Epoch < p.Epoch
}

// stands says whether the statement of a closed period is the last one that the
// receiver has of it. Another one may have been sent since the backup was made of
// the first restore that followed it, if the period was open in that; or it was on
// its way, and the restore has withdrawn it without knowing whether it arrived.
func (f *Facts) stands(s Sent, p Period) bool {
	i := slices.IndexFunc(f.Epochs, func(epoch int64) bool { return epoch > s.Epoch })
	if i < 0 {
		return true
	}
	withdrawn := slices.ContainsFunc(f.Statements, func(later Sent) bool {
		return later.Period.Equal(p.Start) && later.State == Rejected && later.Number > s.Number
	})
	return !withdrawn && p.ClosedAt != nil && p.ClosedAt.Before(time.Unix(f.Epochs[i], 0))
}

// lastStands says whether it is known what the receiver has of a closed period: the
// last statement of it stands, or there is none, and no restore has forgotten or
// withdrawn one.
func (f *Facts) lastStands(p Period) bool {
	if last := f.lastStatement(p, State.Taken); last.Number > 0 {
		return f.stands(last, p)
	}
	withdrawn := slices.ContainsFunc(f.Statements, func(s Sent) bool {
		return s.Period.Equal(p.Start) && s.State == Rejected && s.Epoch < f.Epoch
	})
	return !withdrawn && !slices.ContainsFunc(f.Epochs, func(epoch int64) bool {
		restored := time.Unix(epoch, 0)
		return p.Start.Before(restored) && !p.ClosedAt.Before(restored)
	})
}

// isReadFirst says whether what was on its way may be in what is to be read: it
// does not overwrite what arrived of it.
func (p *planner) isReadFirst(o Open) bool {
	return !containsAny(p.Facts.Reported, func(r *Reported) bool {
		return r.Last == o.ID && r.Kind == QuantityReport && r.Counting != Adds
	})
}

// waitForReading leaves a meter out until what the far side has added up is read.
func (p *planner) waitForReading(m metering.Meter) {
	p.open = true
	p.exclude(Exclusion{m.ID, m.Slug, ExcludedRestored})
	p.lookFrom(p.Now.Add(time.Hour))
}

// AddedUp is where usage of one meter is added up.
type AddedUp struct {
	MeterID metering.MeterID
	Series
}

// AddedUp are the places that the far side adds up of the periods that are
// reported, while they have to be read.
func (b *Books) AddedUp() (all []AddedUp) {
	if !b.Unread || b.Side == nil {
		return nil
	}
	b.eachAddedUp(func(m *position, at AddedUp) { all = append(all, at) })
	return all
}

func (b *Books) eachAddedUp(do func(m *position, at AddedUp)) {
	p := planner{Books: b, periods: Periods(b.Facts)}
	for _, period := range p.periods {
		for _, m := range p.positionsOf(period) {
			meter := m.meter
			elsewhere := m.part.Empty() || !period.Subscription.isAt(b.Connection.ID)
			if m.inMoney() || m.isCompared() || m.destination.Counting != Adds || m.destination.Excluded != "" || elsewhere {
				continue
			}
			do(m, AddedUp{meter.ID, Series{
				Kind: QuantityReport, Connection: b.Connection.ID, Customer: b.Side.Customer, Target: m.destination.Target,
				Method: m.destination.Method, Counting: Adds, Period: period.Start, Window: m.part,
			}})
		}
	}
}

// takenAt is what is known to have been taken in a place, with whatever part of a
// subscription's period it was reported for.
func (b *Books) takenAt(at AddedUp) (taken metering.Decimal) {
	for n := range b.Reported {
		r := &b.Reported[n]
		there := r.Kind == QuantityReport && r.Connection == at.Connection && r.Customer == at.Customer && r.Target == at.Target && r.Method == at.Method
		if there && r.MeterID == at.MeterID && at.Window.Contains(r.Window.Start) {
			taken = taken.Add(r.surelyTaken())
		}
	}
	return taken
}

// surelyTaken is what is taken of the series but for what final invoices bill of a
// report that is on its way: once that is forgotten, what arrived of it is lost.
func (r *Reported) surelyTaken() metering.Decimal {
	if r.Outstanding {
		return smaller(r.taken(), r.Taken.counted(r.Counting))
	}
	return r.taken()
}

// surelyHere is what this destination is known to have taken of the period.
func (m *position) surelyHere() (taken metering.Decimal) {
	for _, s := range m.own {
		taken = taken.Add(s.surelyTaken())
	}
	return taken
}

// Forgotten are the reports of a former epoch that were on their way to the places
// that were read: what arrived of them is in what was found there. Where that is
// less than is known to have been taken, nobody can tell, and they stay in doubt.
func (b *Books) Forgotten(found []Found) (reports []uuid.UUID) {
	if !b.Unread || b.Side == nil {
		return nil
	}
	b.eachAddedUp(func(m *position, at AddedUp) {
		if !slices.ContainsFunc(found, func(there Found) bool { return there.AddedUp == at && there.Counted.Cmp(b.takenAt(at)) >= 0 }) {
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

// Found is what the far side has added up in a place.
type Found struct {
	AddedUp
	Counted metering.Decimal
}

// Lost are the reports that the ledger lacks, where the far side has more than
// it knows of: one for each place, of all that was reported there since the backup.
func (b *Books) Lost(found []Found) (reports []Report) {
	b.eachAddedUp(func(m *position, at AddedUp) {
		for _, there := range found {
			more := there.Counted.Sub(b.takenAt(at))
			if there.AddedUp != at || more.IsNegative() || more.IsZero() {
				continue
			}
			reports = append(reports, Report{
				Series: at.Series, Destination: m.destination, To: m.to(), Lines: []Line{m.lineAt(m.others.quantity.Add(m.surelyHere()).Add(more))},
				Quantity: more, Of: m.period.Range, Deadline: m.period.Deadline(m.Settings.Grace),
			})
		}
	})
	return reports
}

// ChargedSince is from when on the charges have to be read where what was reported
// after an instant is not known: a line that was made before may have been set since.
func (f Facts) ChargedSince(known time.Time) time.Time {
	for _, p := range Periods(f) {
		if p.Bills == metering.BillsAmounts && !p.Complete && p.Start.Before(known) {
			return p.Start
		}
	}
	return known
}

// FoundCharge is money that the far side was charged with from here.
type FoundCharge struct {
	ReportID     uuid.UUID // in the order in which reports were made; of what is set, the last one
	MeterID      metering.MeterID
	Subscription string
	Object       string    // that is set, in the provider's words; "": it is added up
	Method       Method    // of what is set
	Closed       time.Time // start of the period whose usage it is, in whole seconds
	Target       time.Time // start of the period that carries it, or of the part that it charges, in whole seconds
	Late         bool      // it came once the period was closed
	Units        metering.Decimal
	Amount       metering.Decimal
	Currency     string
}

// LostCharges are the reports that the ledger lacks of charges that it does not
// know: one for each line of a target period. What is set has the name of the
// report that has set it, by which invoices name it.
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

// found is the report of a line as it was set last.
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

func periodAt(periods []Period, second time.Time) (p Period, found bool) {
	i := slices.IndexFunc(periods, func(p Period) bool { return p.Start.Truncate(time.Second).Equal(second) })
	if i < 0 {
		return p, false
	}
	return periods[i], true
}
