package billing

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// Units is the quantity of a cumulative total in so many decimals, half to even.
func Units(total metering.Decimal, scale int32) metering.Decimal { return total.Round(scale) }

// UnitsBetween is what brings a quantity from one cumulative total to the
// next. Totals are rounded, never differences, so that no remainder is lost or
// reported twice.
func UnitsBetween(from, to metering.Decimal, scale int32) metering.Decimal {
	return Units(to, scale).Sub(Units(from, scale))
}

// quantityPlanner is one meter in one period.
type quantityPlanner struct {
	*planner
	period      Period
	part        metering.Range // of the period, in the subscription's
	destination Destination
	meter       metering.Meter
	usage       Usage
	closed      *ClosedLine // nil: the period is open
	own         []*Reported // series of this destination
	others      elsewhere   // billed at other ones
}

// quantityOf parts the meter's series from those of another account, customer,
// destination, method or subscription period: those have ended. So has one that
// is added up and began after this subscription's period did, which counts it.
func (p *planner) quantityOf(period Period, meter metering.Meter) *quantityPlanner {
	m := &quantityPlanner{
		planner: p, period: period, part: period.Intersect(period.Subscription.Range), destination: p.destination(meter.ID),
		meter: meter, usage: p.Facts.usage(meter.ID, period),
	}
	if l := period.line(meter.ID); l != nil {
		m.closed, m.usage = l, Usage{Total: l.Usage, Events: l.Events, Dimensions: l.Dimensions}
	}
	for n := range p.Reported {
		switch s := &p.Reported[n]; {
		case s.Late || s.MeterID != meter.ID || !s.about(period) || !p.counts(s.Connection):
		case m.owns(s):
			m.own = append(m.own, s)
		default:
			m.others.add(s, p.priceIn(meter.ID, period))
			m.open = m.open || s.undecided() && p.here(s.Series) && s.State != InDoubt // what it comes to changes what is left
		}
	}
	return m
}

// undecided says whether a report is on its way of which neither an answer nor a
// final invoice has shown what it comes to.
func (r *Reported) undecided() bool {
	return r.Outstanding && (r.State != InDoubt || r.Invoiced == nil)
}

func (m *quantityPlanner) owns(s *Reported) bool {
	ended := s.Window.Start.Before(m.part.Start) || s.Counting == Adds && s.Window.Start.After(m.part.Start)
	return m.here(s.Series) && s.Customer == m.Side.Customer && s.Target == m.destination.Target && s.Method == m.destination.Method && !ended
}

// taken is what the far side has of the series: what final invoices bill, else
// what it has accepted.
func (r *Reported) taken() metering.Decimal {
	if r.Invoiced != nil {
		return *r.Invoiced
	}
	return r.Taken.counted(r.Counting)
}

// isReported says whether there is anything to report of the meter: of a closed
// period only what that closed at, and as long as no invoices were compared with it.
func (m *quantityPlanner) isReported() bool {
	return m.period.ClosedAt == nil || m.closed != nil && m.stated(m.closed)
}

// leaveOut says why the meter is left out, of open periods alone, and of one
// that feeds another stream by now only if that leaves out usage.
func (m *quantityPlanner) leaveOut(reason string) {
	if m.period.ClosedAt == nil && (m.feeds(m.meter.ID) || !m.usage.Total.IsZero()) {
		m.exclude(Exclusion{m.meter.ID, m.meter.Slug, reason})
	}
}

// excluded says why the meter is not reported, if it is not.
func (m *quantityPlanner) excluded(taken bool) string {
	switch {
	case m.meter.Version.Status == metering.Backfilling:
		return ExcludedBackfilling
	case m.destination.Excluded != "":
		return m.destination.Excluded
	case taken:
		return ExcludedShared
	case slices.Contains(m.leaves, m.meter.ID):
		return ExcludedByOperator
	}
	return ""
}

// over says why nothing more is reported of the period, if nothing is.
func (m *quantityPlanner) over() string {
	switch sub := m.period.Subscription; {
	case sub.ID == "" || sub.ID != m.Side.Subscription || m.part.Empty():
		return ExcludedEarlier
	case sub.Invoiced:
		return ExcludedInvoiced
	case m.closed != nil && m.isCarried(m.period, m.closed):
		return ExcludedCarried
	case m.isPricedSince():
		return ExcludedUnpriced
	case m.destination.OnlyWhileRun && !m.part.End.After(m.Side.Period.Start):
		return ExcludedOver
	case m.destination.Window != "" && firstWindowEnd(m.part, m.destination.Window).After(m.part.End):
		return ExcludedWindow
	}
	return ""
}

// isPricedSince says whether nobody knew a price of the closed line, and the provider
// has one by now: at that nothing is billed that it was not reported before. What the
// invoices lack of it would be carried at the price that the line closed at, for nothing.
func (m *quantityPlanner) isPricedSince() bool {
	l := m.closed
	return l != nil && l.PriceVersion == 0 && l.Price == nil && m.Connection.Invoices && m.destination.Price != nil && len(m.own) == 0
}

// leaveRest says what is left unreported. Whether what is on its way was taken
// in time has to be known first; what is in doubt waits for the final invoice, or
// for people.
func (m *quantityPlanner) leaveRest(reason string) {
	for _, s := range m.own {
		m.open = m.open || s.undecided()
	}
	if !m.value(m.usage.Total).Equal(m.reportedHere()) {
		m.leaveOut(reason)
	}
}

// reportedHere is what this destination has of the period.
func (m *quantityPlanner) reportedHere() (reported metering.Decimal) {
	for _, s := range m.own {
		reported = reported.Add(s.taken())
	}
	return reported
}

// scale is how many decimals of the total this destination is reported. What
// is invoiced keeps those that it had.
func (m *quantityPlanner) scale() int32 {
	switch {
	case m.destination.WholeUnits:
		return 0
	case m.closed != nil && m.closed.Scale != nil:
		return *m.closed.Scale
	case m.period.Subscription.Scales != nil:
		return m.period.Subscription.Scales[m.meter.ID]
	}
	return m.meter.UsageScale
}

// value is what this destination should have counted when the period's usage is total.
func (m *quantityPlanner) value(total metering.Decimal) metering.Decimal {
	c := m.calculation(total)
	return c.quantity()
}

func (m *quantityPlanner) report() {
	switch {
	case m.destination.Window == "":
		m.reportOne(m.line(m.usage.Total), m.part)
	case m.closed == nil || m.usage.Total.Equal(sum(m.hours())): // else it is counted in another way since
		m.reportWindows()
	}
}

func sum(hours []HourUsage) (total metering.Decimal) {
	for _, h := range hours {
		total = total.Add(h.Total)
	}
	return total
}

// before is what this destination was reported with earlier periods of ours
// that lie in the same one of the subscription's, where only what comes last
// counts.
func (m *quantityPlanner) before() (before metering.Decimal) {
	if m.destination.Counting != Latest {
		return before
	}
	for n := range m.Reported {
		s := &m.Reported[n]
		same := !s.Late && s.MeterID == m.meter.ID && m.here(s.Series) && s.Customer == m.Side.Customer &&
			s.Target == m.destination.Target && s.Method == m.destination.Method
		if same && !s.about(m.period) && (metering.Range{Start: m.period.Subscription.Start, End: m.part.Start}).Contains(s.Window.Start) {
			before = before.Add(s.taken())
		}
	}
	return before
}

// line is what this destination should have when the period's usage is total.
func (m *quantityPlanner) line(total metering.Decimal) Line {
	c := m.calculation(total)
	return c.line()
}

// calculation charges what the provider can count.
func (m *quantityPlanner) calculation(total metering.Decimal) calculation {
	price := m.priceIn(m.meter.ID, m.period)
	scale := m.scale()
	c := calculation{
		meter: m.meter, version: m.meter.Version.ID, usage: total, events: m.usage.Events, dimensions: m.usage.Dimensions, price: price, currency: cmp.Or(price.Currency, m.Settings.Currency),
		others: m.others, scale: &scale, notNegative: m.destination.NotNegative,
	}
	c.priceAs(m.theirPrice(m.period, m.meter.ID))
	return c
}

// reportOne plans the next report of the window's series, if it has none that
// is outstanding or of this pass, and there is something new.
func (m *quantityPlanner) reportOne(l Line, window metering.Range) {
	s := &Reported{}
	for _, own := range m.own {
		if own.Window.Start.Equal(window.Start) {
			s = own
		}
	}
	changed, quantity := !l.Quantity.Equal(s.taken()), l.Quantity
	if m.destination.Counting != Adds {
		changed = changed || m.forgotten(s)
	}
	switch m.destination.Counting {
	case Adds:
		quantity = l.Quantity.Sub(s.taken())
	case Latest:
		quantity = l.Quantity.Add(m.before())
		if s.Last != uuid.Nil { // what an earlier period comes to may change it, or hide that this one has
			changed = changed || !quantity.Equal(s.Taken.Quantity)
		}
	}
	if !m.next(s, changed) {
		return
	}
	m.plan.Reports = append(m.plan.Reports, Report{
		Series: Series{
			Kind: QuantityReport, Connection: m.Connection.ID, Customer: m.Side.Customer, Target: m.destination.Target,
			Method: m.destination.Method, Counting: m.destination.Counting, Period: m.period.Start, Window: window,
		},
		Destination: m.destination, To: m.to(), Lines: []Line{l}, Quantity: quantity, Of: m.period.Range, Former: s.Timestamp,
		Deadline: m.period.Deadline(m.Settings.Grace),
	})
}

// to is whose invoices bill what is reported now.
func (m *quantityPlanner) to() InvoicedBy {
	return InvoicedBy{m.period.Subscription.ID, m.period.Subscription.Start}
}

// reportWindows plans a report for each of the destination's windows that
// changed. What a window is reported is the difference of two rounded totals,
// so that the windows add up to the period's. An hour of usage goes into the
// window in which it begins.
// Where one of them may have more, since a report is on its way, that usage is
// another window's by now: nothing is planned until it is known.
func (m *quantityPlanner) reportWindows() {
	lines, left := m.windowLines()
	if left {
		m.open = true // the rest is for windows that have not begun
		m.lookAt(m.Now.Add(time.Hour))
	}
	if slices.ContainsFunc(lines, m.mayHaveMore) {
		m.open = true
		return
	}
	for _, l := range lines {
		m.reportOne(l.Line, l.place)
	}
}

// windowLine is what one of the destination's windows should have.
type windowLine struct {
	Line
	place metering.Range
}

// mayHaveMore says whether a report is on its way with which the window has more
// than it should.
func (m *quantityPlanner) mayHaveMore(l windowLine) bool {
	return slices.ContainsFunc(m.own, func(s *Reported) bool {
		return s.Window.Start.Equal(l.place.Start) && s.undecided() && s.Standing.counted(s.Counting).Cmp(l.Quantity) > 0
	})
}

// windowLines are what the destination's windows should have; left says that it is not all usage.
func (m *quantityPlanner) windowLines() (lines []windowLine, left bool) {
	var total metering.Decimal
	var former Line
	upTo, hours := m.line(total), m.hours()
	windows := windowsOf(m.period.Range, m.part, m.destination.Window, m.Now)
	lines = m.emptyWindows(windows)
	for _, w := range windows {
		if more := m.until(w.usage.End, &hours); !more.IsZero() {
			total = total.Add(more)
			upTo = m.line(total)
		}
		if upTo.Quantity.IsZero() {
			upTo.Amount = metering.Decimal{} // so that the base price goes with the first units
		}
		l := upTo
		l.Quantity, l.Amount = upTo.Quantity.Sub(former.Quantity), upTo.Amount.Sub(former.Amount)
		lines = append(lines, windowLine{l, w.place})
		former = upTo
	}
	return lines, !former.Quantity.Equal(m.value(m.usage.Total))
}

// emptyWindows are those that were reported something, and that the period, since it
// has become shorter, no longer has: their usage is in another now.
func (m *quantityPlanner) emptyWindows(windows []window) (lines []windowLine) {
	for _, s := range m.own {
		if !slices.ContainsFunc(windows, func(w window) bool { return w.place.Start.Equal(s.Window.Start) }) {
			nothing := m.line(metering.Decimal{})
			nothing.Quantity, nothing.Amount = metering.Decimal{}, metering.Decimal{}
			lines = append(lines, windowLine{nothing, s.Window})
		}
	}
	return lines
}

// until takes what was used before end from the hours.
func (m *quantityPlanner) until(end time.Time, hours *[]HourUsage) (usage metering.Decimal) {
	for len(*hours) > 0 && (*hours)[0].Start.Before(end) {
		usage = usage.Add((*hours)[0].Total)
		*hours = (*hours)[1:]
	}
	return usage
}

// hours is the meter's usage of the period by hour, oldest first.
func (m *quantityPlanner) hours() (hours []HourUsage) {
	for _, h := range m.Hours {
		if h.MeterID == m.meter.ID && h.Period.Equal(m.period.Start) {
			hours = append(hours, h)
		}
	}
	slices.SortFunc(hours, func(a, b HourUsage) int { return a.Start.Compare(b.Start) })
	return hours
}

// window is one of the destination's, and the usage that goes into it.
type window struct{ place, usage metering.Range }

// windowsOf are the destination's windows of UTC that end in the part of the
// period, as far as they have begun. One that the part's end cuts would be
// billed with the next period, so its usage goes into the one before it; there is
// none before it in a part that is shorter than a window.
func windowsOf(period, part metering.Range, g metering.Granularity, now time.Time) []window {
	begin, from := part.Start, period.Start
	var windows []window
	for end := firstWindowEnd(part, g); !end.After(part.End) && !begin.After(now); end = end.Add(widthOf(g)) {
		windows = append(windows, window{metering.Range{Start: begin, End: end}, metering.Range{Start: from, End: end}})
		begin, from = end, end
	}
	if n := len(windows); n > 0 && windows[n-1].place.End.Add(widthOf(g)).After(part.End) {
		windows[n-1].usage.End = period.End
	}
	return windows
}

func widthOf(g metering.Granularity) time.Duration {
	if g == metering.Day {
		return 24 * time.Hour
	}
	return time.Hour
}

// firstWindowEnd is where the first window of the part ends that holds a whole minute.
func firstWindowEnd(part metering.Range, g metering.Granularity) time.Time {
	end := part.Start.Truncate(widthOf(g)).Add(widthOf(g))
	if end.Sub(part.Start) < leastWindow {
		return end.Add(widthOf(g))
	}
	return end
}

// leastWindow holds a whole minute, which a timestamp has to lie in.
const leastWindow = 2 * time.Minute
