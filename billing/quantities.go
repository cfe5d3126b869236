package billing

import (
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

// undecided says whether a report is on its way of which neither an answer nor a
// final invoice has shown what it comes to.
func (r *Reported) undecided() bool {
	return r.Outstanding && (r.State != InDoubt || r.Invoiced == nil)
}

// taken is what the far side has of the series: what final invoices bill, else
// what it has accepted.
func (r *Reported) taken() metering.Decimal {
	if r.Invoiced != nil {
		return *r.Invoiced
	}
	return r.Taken.counted(r.Counting)
}

// reportUnits plans the next reports of a quantity. A closed period is not reported by windows if its hours are counted
// in another way since.
func (m *position) reportUnits() {
	switch {
	case m.destination.Window == "":
		m.reportOne(m.line(), m.part)
	case m.closed == nil || m.usage.Equal(sum(m.hours())):
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
func (m *position) before() (before metering.Decimal) {
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

// reportOne plans the next report of the window's series, if it has none that
// is outstanding or of this pass, and there is something new.
func (m *position) reportOne(l Line, window metering.Range) {
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
func (m *position) to() InvoicedBy {
	return InvoicedBy{m.period.Subscription.ID, m.period.Subscription.Start}
}

// reportWindows plans a report for each of the destination's windows that
// changed. What a window is reported is the difference of two rounded totals,
// so that the windows add up to the period's. An hour of usage goes into the
// window in which it begins.
// Where one of them may have more, since a report is on its way, that usage is
// another window's by now: nothing is planned until it is known.
func (m *position) reportWindows() {
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
func (m *position) mayHaveMore(l windowLine) bool {
	return slices.ContainsFunc(m.own, func(s *Reported) bool {
		return s.Window.Start.Equal(l.place.Start) && s.undecided() && s.Standing.counted(s.Counting).Cmp(l.Quantity) > 0
	})
}

// windowLines are what the destination's windows should have; left says that it is not all usage.
func (m *position) windowLines() (lines []windowLine, left bool) {
	var total metering.Decimal
	var former Line
	upTo, hours := m.lineAt(total), m.hours()
	windows := windowsOf(m.period.Range, m.part, m.destination.Window, m.Now)
	lines = m.emptyWindows(windows)
	for _, w := range windows {
		if more := m.until(w.usage.End, &hours); !more.IsZero() {
			total = total.Add(more)
			upTo = m.lineAt(total)
		}
		if upTo.Quantity.IsZero() {
			upTo.Amount = metering.Decimal{} // so that the base price goes with the first units
		}
		l := upTo
		l.Quantity, l.Amount = upTo.Quantity.Sub(former.Quantity), upTo.Amount.Sub(former.Amount)
		lines = append(lines, windowLine{l, w.place})
		former = upTo
	}
	return lines, !former.Quantity.Equal(m.quantity())
}

// emptyWindows are those that were reported something, and that the period, since it
// has become shorter, no longer has: their usage is in another now.
func (m *position) emptyWindows(windows []window) (lines []windowLine) {
	for _, s := range m.own {
		if !slices.ContainsFunc(windows, func(w window) bool { return w.place.Start.Equal(s.Window.Start) }) {
			nothing := m.lineAt(metering.Decimal{})
			nothing.Quantity, nothing.Amount = metering.Decimal{}, metering.Decimal{}
			lines = append(lines, windowLine{nothing, s.Window})
		}
	}
	return lines
}

// until takes what was used before end from the hours.
func (m *position) until(end time.Time, hours *[]HourUsage) (usage metering.Decimal) {
	for len(*hours) > 0 && (*hours)[0].Start.Before(end) {
		usage = usage.Add((*hours)[0].Total)
		*hours = (*hours)[1:]
	}
	return usage
}

// hours is the meter's usage of the period by hour, oldest first.
func (m *position) hours() (hours []HourUsage) {
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
