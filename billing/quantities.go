package billing

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// Units returns the quantity of a cumulative total, rounded half to even to scale decimals.
func Units(total metering.Decimal, scale int32) metering.Decimal { return total.Round(scale) }

// UnitsBetween returns the difference between the quantities of two cumulative totals. It rounds the totals before it
// subtracts them, so that no remainder is lost or reported twice.
func UnitsBetween(from, to metering.Decimal, scale int32) metering.Decimal {
	return Units(to, scale).Sub(Units(from, scale))
}

// undecided reports whether the series has an outstanding report. It returns false if the outcome of the report is
// unknown (InDoubt), and final invoices show the billed units of the series.
func (r *Reported) undecided() bool {
	return r.Outstanding && (r.State != InDoubt || r.Invoiced == nil)
}

// providerTotal returns the provider's total of the series: the units on final invoices or, before these are known, the
// total of the accepted reports.
func (r *Reported) providerTotal() metering.Decimal {
	if r.Invoiced != nil {
		return *r.Invoiced
	}
	return r.Taken.counted(r.Counting)
}

// reportUnits plans the next reports of a position in units. It plans no windows for a closed period if the hourly
// usage no longer adds up to the usage at the close, because the meter now counts the hours in another way.
func (m *position) reportUnits() {
	switch {
	case m.destination.Window == "":
		m.reportOne(m.line(), m.part)
	case m.closed == nil || m.usage.Equal(sum(m.hours())):
		m.reportWindows()
	}
}

// sum returns the total usage of the hours.
func sum(hours []HourUsage) (total metering.Decimal) {
	for _, h := range hours {
		total = total.Add(h.Total)
	}
	return total
}

// earlierQuantity returns the quantity that the destination has from earlier billing periods in the same subscription
// period. With Counting Latest, the provider bills only the last quantity of the subscription period, so each quantity
// includes the earlier ones. With any other Counting, earlierQuantity returns 0.
func (m *position) earlierQuantity() (earlier metering.Decimal) {
	if m.destination.Counting != Latest {
		return earlier
	}
	for n := range m.Reported {
		s := &m.Reported[n]
		same := !s.Late && s.MeterID == m.meter.ID && m.here(s.Series) && s.Customer == m.Side.Customer &&
			s.Target == m.destination.Target && s.Method == m.destination.Method
		if same && !s.about(m.period) && (metering.Range{Start: m.period.Subscription.Start, End: m.part.Start}).Contains(s.Window.Start) {
			earlier = earlier.Add(s.providerTotal())
		}
	}
	return earlier
}

// reportOne plans the next report of the window's series if the quantity has changed, or if a restore may have lost a
// later report that the provider does not add up. It plans none if a report of the series is outstanding, or if the
// series already has a report of this pass.
func (m *position) reportOne(l Line, window metering.Range) {
	s := m.ownIn(window)
	changed, quantity := !l.Quantity.Equal(s.providerTotal()), l.Quantity
	if m.destination.Counting != Adds {
		changed = changed || m.mayLackReports(s)
	}
	switch m.destination.Counting {
	case Adds:
		quantity = l.Quantity.Sub(s.providerTotal())
	case Latest:
		quantity = l.Quantity.Add(m.earlierQuantity())
		if s.Last != uuid.Nil { // an earlier period can change the sum, or offset a change of this one
			changed = changed || !quantity.Equal(s.Taken.Quantity)
		}
	}
	if !m.shouldReport(s, changed) {
		return
	}
	m.plan.Reports = append(m.plan.Reports, Report{
		Series: Series{
			Kind: QuantityReport, Connection: m.Connection.ID, Customer: m.Side.Customer, Target: m.destination.Target,
			Method: m.destination.Method, Counting: m.destination.Counting, Period: m.period.Start, Window: window,
		},
		Destination: m.destination, To: m.invoicedBy(), Lines: []Line{l}, Quantity: quantity, Of: m.period.Range, Former: s.Timestamp,
		Deadline: m.period.Deadline(m.Settings.Grace),
	})
}

// invoicedBy returns the subscription period that invoices the quantities reported now.
func (m *position) invoicedBy() InvoicedBy {
	return InvoicedBy{m.period.Subscription.ID, m.period.Subscription.Start}
}

// ownIn returns the series that reports the window. The series is empty if the window has no report yet.
func (m *position) ownIn(window metering.Range) *Reported {
	for _, s := range slices.Backward(m.own) {
		if s.Window.Start.Equal(window.Start) {
			return s
		}
	}
	return &Reported{}
}

// reportWindows plans a report for each of the destination's windows with a changed quantity. The quantity of a window
// is the difference of two rounded totals, so the windows add up to the period's quantity. An hour of usage belongs to
// the window in which the hour begins.
//
// While the provider may have more of a window than the quantity of its line, other windows are raised only as long as
// the provider then has at most the position's quantity in total. The surplus now belongs to another window, and the
// provider can refuse to lower the first one.
func (m *position) reportWindows() {
	lines, left := m.windowLines()
	if left {
		m.open = true // the rest of the usage belongs to windows that have not begun
		m.replanAfterNow(m.Now.Add(time.Hour))
	}
	lower, room := slices.ContainsFunc(lines, m.hasSurplus), m.quantity()
	for _, s := range m.own {
		room = room.Sub(s.billed().counted(s.Counting))
	}
	for _, l := range lines {
		own := m.ownIn(l.place)
		if raise := l.Quantity.Sub(own.billed().counted(own.Counting)); lower && raise.Cmp(metering.Decimal{}) > 0 {
			if raise.Cmp(room) > 0 {
				m.open, m.plan.More = true, true
				continue
			}
			room = room.Sub(raise)
		}
		m.reportOne(l.Line, l.place)
	}
}

// windowLine is the line that one of the destination's windows should have.
type windowLine struct {
	Line
	place metering.Range
}

// hasSurplus reports whether the provider may have more of the window, from an earlier report, than the quantity of l.
func (m *position) hasSurplus(l windowLine) bool {
	s := m.ownIn(l.place)
	return slices.ContainsFunc([]Sums{s.Taken, s.Standing}, func(total Sums) bool {
		return total.Any && total.counted(s.Counting).Cmp(l.Quantity) > 0
	})
}

// windowLines returns the lines of the destination's windows. left reports whether the lines lack part of the
// position's quantity.
func (m *position) windowLines() (lines []windowLine, left bool) {
	var total metering.Decimal
	var former Line
	upTo, hours := m.lineAt(total), m.hours()
	windows := windowsOf(m.period.Range, m.part, m.destination.Window, m.Now)
	lines = m.emptyWindows(windows)
	for _, w := range windows {
		if more := m.removeHours(w.usage.End, &hours); !more.IsZero() {
			total = total.Add(more)
			upTo = m.lineAt(total)
		}
		if upTo.Quantity.IsZero() {
			upTo.Amount = metering.Decimal{} // the window with the first units gets the base price
		}
		l := upTo
		l.Quantity, l.Amount = upTo.Quantity.Sub(former.Quantity), upTo.Amount.Sub(former.Amount)
		lines = append(lines, windowLine{l, w.place})
		former = upTo
	}
	return lines, !former.Quantity.Equal(m.quantity())
}

// emptyWindows returns a line of 0 units for each reported window that is not in windows. The period became shorter and
// no longer has such a window. The usage of that window is now in another window.
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

// removeHours removes the hours that begin before end from the list, and returns their usage. The list must be in order
// of time.
func (m *position) removeHours(end time.Time, hours *[]HourUsage) (usage metering.Decimal) {
	for len(*hours) > 0 && (*hours)[0].Start.Before(end) {
		usage = usage.Add((*hours)[0].Total)
		*hours = (*hours)[1:]
	}
	return usage
}

// hours returns the meter's hourly usage in the period, oldest first.
func (m *position) hours() (hours []HourUsage) {
	for _, h := range m.Hours {
		if h.MeterID == m.meter.ID && h.Period.Equal(m.period.Start) {
			hours = append(hours, h)
		}
	}
	slices.SortFunc(hours, func(a, b HourUsage) int { return a.Start.Compare(b.Start) })
	return hours
}

// window is one of the destination's windows (place), with the range of the usage that is reported for it.
type window struct{ place, usage metering.Range }

// windowsOf returns the destination's UTC windows that have begun and end in the part of the period. A window that
// extends beyond the part's end would be billed with the next period. Its usage is therefore reported for the window
// before it. A part that is shorter than its first window has no windows.
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

// widthOf returns the length of a usage window of the granularity.
func widthOf(g metering.Granularity) time.Duration {
	if g == metering.Day {
		return 24 * time.Hour
	}
	return time.Hour
}

// firstWindowEnd returns the end of the first window of the part. If the window would be shorter than leastWindow, it
// is joined with the next one.
func firstWindowEnd(part metering.Range, g metering.Granularity) time.Time {
	end := part.Start.Truncate(widthOf(g)).Add(widthOf(g))
	if end.Sub(part.Start) < leastWindow {
		return end.Add(widthOf(g))
	}
	return end
}

// leastWindow is the minimum length of a window. Such a window contains a whole minute for the timestamp of a report.
const leastWindow = 2 * time.Minute
