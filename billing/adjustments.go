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

// openPeriod is the first of the periods that is not closed, if there is one:
// what late usage adjusts goes into it.
func openPeriod(periods []Period) (p Period, found bool) {
	i := slices.IndexFunc(periods, func(p Period) bool { return p.ClosedAt == nil })
	if i < 0 {
		return Period{}, false
	}
	return periods[i], true
}

// adjustments works out what late usage adds to the closed periods, and what
// the provider could not be reported of them before its invoice was final. The
// target's window is the oldest open period; what earlier targets were reported
// already is not reported again. repeated is what the target was reported so
// far: it stays even if it comes to nothing now.
func (b *Books) adjustments(periods []Period, target Series, repeated []Line) []Line {
	return linesOf(b.lateCalculations(periods, target, repeated))
}

func (b *Books) lateCalculations(periods []Period, target Series, repeated []Line) (all []calculation) {
	into, _ := openPeriod(periods)
	if i := slices.IndexFunc(periods, func(p Period) bool { return p.Own() && p.Range == target.Window }); i >= 0 && target.Target == OwnInvoice {
		into = periods[i]
	}
	if into.Range != target.Window {
		return nil
	}
	for _, closed := range periods {
		if into.ClosedAt == nil || closed.Start.Before(into.Start) {
			all = append(all, b.adjust(closed, target, repeated)...)
		}
	}
	for i := range all {
		all[i].noCredit = into.Bills == metering.BillsAmounts && target.Kind != StatementReport
	}
	return all
}

// adjustable says whether a closed period may come to something else than is
// billed with it: a month with late usage touches it, it was adjusted before, or
// the provider was not reported all of it.
func (b *Books) adjustable(p Period) bool {
	if p.ClosedAt == nil {
		return false
	}
	late := slices.ContainsFunc(b.LateMonths, func(month metering.Range) bool { return !month.Intersect(p.Range).Empty() })
	carried := containsAny(b.Reported, func(r *Reported) bool { return r.Late && r.about(p) && r.Standing.Any })
	return late || carried || containsAny(p.Closed, func(l *ClosedLine) bool {
		return b.bills(l) && (l.unreported() || l.LateEvents != nil && *l.LateEvents > 0)
	})
}

// unreported says whether something else is billed with the period than what it
// came to.
func (l *ClosedLine) unreported() bool {
	return l.Billed && !(l.ownUnits().Equal(l.billedUnits()) && l.Charge.Equal(l.billedCharge()))
}

// lateOf is what each meter of a closed period has come to since, where that may
// be something else than it was closed at, whoever has billed it.
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

func (b *Books) adjust(closed Period, target Series, repeated []Line) (all []calculation) {
	late := b.lateOf(closed)
	if len(late) == 0 {
		return nil
	}
	elsewhere := func(r *Reported) bool { return r.Late && !r.sameTarget(target) }
	most, least := b.billed(closed, elsewhere), b.atLeast().billed(closed, elsewhere)
	for _, c := range late {
		c.others = most[c.meter.ID]
		b.leaveOnlyReported(&c)
		so := Line{MeterID: c.meter.ID, Closed: closed.Start}
		i := slices.IndexFunc(repeated, so.about)
		if i >= 0 {
			so = repeated[i]
		}
		c.leaveInDoubt(least[c.meter.ID], so)
		if !c.quantity().IsZero() || !c.amount().IsZero() || i >= 0 {
			all = append(all, c)
		}
	}
	return all
}

// leaveInDoubt keeps what the target was reported so far, as far as what others
// have billed, from the least to the most, leaves that open: as long as nobody knows
// what came of a report, nothing is charged, or given back, because of it.
func (c *calculation) leaveInDoubt(least elsewhere, so Line) {
	sure := *c
	sure.others = least
	quantity, amount := c.quantity(), c.amount()
	more := elsewherePart{
		quantity: quantity.Sub(between(quantity, so.Quantity, sure.quantity())), amount: amount.Sub(between(amount, so.Amount, sure.amount())), currency: c.currency,
	}
	if more.quantity.IsZero() && more.amount.IsZero() {
		return
	}
	more.series = c.others.parts[len(c.others.parts)-1].series
	c.others.quantity, c.others.parts = c.others.quantity.Add(more.quantity), append(slices.Clone(c.others.parts), more)
}

// sameTarget says whether two series of late usage are added up in one place.
func (s Series) sameTarget(o Series) bool {
	return s.Connection == o.Connection && s.Customer == o.Customer && s.Target == o.Target && s.Kind == o.Kind && s.Window.Start.Equal(o.Window.Start)
}

// Line is what the closed period came to for the meter.
func (p Period) Line(meter metering.MeterID) (l ClosedLine, known bool) {
	if l := p.line(meter); l != nil {
		return *l, true
	}
	return ClosedLine{}, false
}

// line returns the closed period's line of the meter; nil: it has none.
func (p *Period) line(meter metering.MeterID) *ClosedLine {
	for i := range p.Closed {
		if p.Closed[i].MeterID == meter {
			return &p.Closed[i]
		}
	}
	return nil
}

// late is what came for the closed period after it was closed, up to when its
// events went: what is booked stays booked, whatever still counts it.
func (f *Facts) late(closed Period, then *ClosedLine) Measured {
	if then.LateEvents != nil {
		return Measured{*then.LateUsage, *then.LateEvents, then.LateDimensions}
	}
	u := f.usage(then.MeterID, closed)
	if b, known := f.bookedOf(then.MeterID, closed.Start); known && then.Events+u.LateEvents < b.Events {
		return Measured{b.Units.Sub(then.ownUnits()), b.Events - then.Events, subtractDimensions(b.Dimensions, then.Dimensions)}
	}
	return Measured{u.Late, u.LateEvents, u.LateDimensions}
}

// lateTarget is where what came late goes with a period: onto the subscription's
// next invoice, or onto the period's own one, if there will be one.
func (b *Books) lateTarget(periods []Period, target Period) (at Series, takes bool) {
	at = Series{
		Kind: ChargeReport, Connection: b.Connection.ID, Customer: b.Side.Customer, Target: b.Side.Subscription,
		Counting: Adds, Window: target.Range, Late: true,
	}
	if b.subscribed() && !b.Side.Ended {
		return at, true
	}
	at.Target = OwnInvoice
	return at, b.takesLate(periods, target)
}

// lateCharges plans the charges that the target period carries for late usage of closed periods, one for each closed
// period and meter. In a target period that is billed in amounts, a line of the invoice is set to the charge. In others,
// what the charge has changed by is added to the next invoice. A charge that cannot be reported stays booked.
func (p *planner) lateCharges(target Period) {
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
		if reason := p.excludedCharge(r, s, target); changed && reason != "" {
			p.exclude(Exclusion{l.MeterID, l.MeterSlug, reason})
			changed = false
		}
		if !p.next(s, changed) {
			continue
		}
		if r.Counting == Replaces && !s.Standing.Any {
			p.lines++
		}
		p.plan.Reports = append(p.plan.Reports, r)
	}
}

// lateCharge returns the next report of a charge for late usage, and whether it says anything new.
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
	return r, s.Line == nil && (!l.Amount.Equal(s.Taken.Amount) || p.forgotten(s))
}

// excludedCharge returns why a charge for late usage is not reported in the target period. "": it is.
func (p *planner) excludedCharge(r Report, s *Reported, target Period) string {
	switch {
	case r.Destination.Excluded != "":
		return r.Destination.Excluded
	case r.Counting == Replaces && !s.Standing.Any && p.lines >= linesAtMost:
		return ExcludedLines
	}
	return p.excludedIn(r.Currency, r.Target, target)
}

// lateLines returns what late usage adds to the closed periods, each with the series that the target
// was reported it in, except for meters that an operator leaves as they were reported.
func (p *planner) lateLines(at Series) iter.Seq2[Line, *Reported] {
	var known []*Reported
	var about []Line
	for n := range p.Reported {
		r := &p.Reported[n]
		if !r.Late || !r.sameTarget(at) {
			continue
		}
		so := Line{MeterID: r.MeterID, Closed: r.Period, Quantity: r.Taken.Value, Amount: r.Taken.Amount}
		if at.Counting == Adds {
			so.Amount = r.Taken.Added
		}
		known, about = append(known, r), append(about, so)
	}
	return func(yield func(Line, *Reported) bool) {
		for _, l := range p.adjustments(p.periods, at, about) {
			s := &Reported{}
			if i := slices.IndexFunc(about, l.about); i >= 0 {
				s = known[i]
			}
			if !slices.Contains(p.leaves, l.MeterID) && !yield(l, s) {
				return
			}
		}
	}
}

// excludedIn says why an amount in the currency is not charged with the period's
// own invoice, or with the subscription's next one, if it is not.
func (b *Books) excludedIn(currency, target string, period Period) string {
	if b.Side == nil {
		return ""
	}
	in := b.Side.Currency
	if target == OwnInvoice {
		in = b.ownCurrency(period)
	}
	if in == "" || in == currency {
		return ""
	}
	return ExcludedCurrency
}

func (p *planner) period(start time.Time) Period {
	i := slices.IndexFunc(p.periods, func(period Period) bool { return period.Start.Equal(start) })
	return p.periods[i]
}

// Description is what the customer reads on the invoice about a charge for a
// meter's usage in a range, or for what came late for it.
func Description(m metering.Meter, of metering.Range, timezone *time.Location, late bool) string {
	last := of.End.Add(-time.Microsecond)
	text := fmt.Sprintf("%s: usage from %s to %s", cmp.Or(m.Name, m.Slug),
		of.Start.In(timezone).Format(time.DateOnly), last.In(timezone).Format(time.DateOnly))
	if late {
		text += " that was reported late"
	}
	return text
}

// Adjustments are what late usage adds to the customer's closed periods, as the
// period that Now lies in will bill it: what earlier ones have billed is not in it.
func (b *Books) Adjustments() []Line { return linesOf(b.carried()) }

// carried are the calculations of Adjustments.
func (b *Books) carried() []calculation {
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
		} else if open.Own() && b.Side != nil {
			target.Customer, target.Target = b.Side.Customer, OwnInvoice
		}
	}
	own, _, takes := b.lateOwn(periods)
	return slices.DeleteFunc(b.lateCalculations(periods, target, nil), func(c calculation) bool {
		return takes && c.late.closed.Start.Before(own.Start) && b.excludedIn(c.currency, OwnInvoice, own) == ""
	})
}

// lateOwn is the closed period whose own invoice takes what came late for earlier
// ones, and where there, if there is one.
func (b *Books) lateOwn(periods []Period) (own Period, at Series, takes bool) {
	if b.Connection == nil || b.Connection.Statements || b.Side == nil {
		return own, at, false
	}
	for _, own := range periods {
		if at, takes := b.lateTarget(periods, own); takes && at.Target == OwnInvoice {
			return own, at, true
		}
	}
	return own, at, false
}

// excludedLate says why late usage in the currency is not charged with the open
// period that carries it, which may be in its grace, if it is not.
func (b *Books) excludedLate(currency string, open Period) string {
	target := ""
	if open.Own() && !b.subscribed() {
		target = OwnInvoice
	}
	return b.excludedIn(currency, target, open)
}

// Adjustment is what late usage adds to a closed period, as its target period
// carries it.
type Adjustment struct {
	Closed    metering.Range
	MeterID   metering.MeterID
	MeterSlug string
	Quantity  metering.Decimal
	Amount    metering.Decimal
	Currency  string
	Reason    string
	Working   []Step // of the amount; of a target period that is closed itself, what each series was reported
}

// carriedBy are those that the period carries, or, of one that carries none any
// more, those that it was reported with.
func (b *Books) carriedBy(period Period) (all []Adjustment) {
	periods := ExpectedPeriods(b.Facts)
	open, found := openPeriod(periods)
	own, at, takes := b.lateOwn(periods)
	switch {
	case takes && own.Start.Equal(period.Start):
		return carriedAs(b.lateCalculations(periods, at, nil), func(currency string) string { return b.excludedIn(currency, OwnInvoice, own) })
	case period.ClosedAt != nil:
		return b.carriedThen(period)
	case found && open.Start.Equal(period.Start):
		return carriedAs(b.carried(), func(currency string) string { return b.excludedLate(currency, open) })
	}
	return nil
}

// carriedAs are the adjustments of some calculations, but those in a currency that
// is excluded.
func carriedAs(late []calculation, excluded func(currency string) string) (all []Adjustment) {
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

// carriedThen are those that a closed period was reported with while it was the
// target period.
func (b *Books) carriedThen(target Period) (all []Adjustment) {
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
