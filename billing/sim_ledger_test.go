package billing_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// catalog is what a simulated tenant has set.
type catalog struct {
	settings   billing.Settings
	meters     []metering.Meter
	prices     map[metering.MeterID][]billing.Price
	connection *billing.Connection
	farSide    *farSide // behind the connection
	known      []*farSide
	own        bool // its counters charge amounts, and who has no subscription gets invoices of ours
	tests      []metering.ConnectionID
	twofold    bool // who has a subscription may have a second one beside it
}

// usageEvent is one unit of a meter's usage.
type usageEvent struct {
	at, hour, month time.Time
	ingestedAt      time.Time
	meter           metering.MeterID
	value           metering.Decimal
	values          map[string]string // of its dimensions; nil: its group is not known
	late            bool              // its period was closed when it came
	gone            bool              // retention has taken it: nothing counts it again
	lost            bool              // it was gone when the meter got its present version
}

// ledger is what is stored of one of a customer's streams.
type ledger struct {
	*catalog
	*account
	stream     int
	periods    []billing.Period
	reports    []*storedReport
	series     int // that these were of when they were added up last
	bookings   []billing.Booking
	through    map[int64]int // by a closed period's start, how many invoices it was compared with
	reconciled []billing.Reconciliation
	ends       []string // how closed periods were when they closed
}

// account is what is stored of one customer.
type account struct {
	name         string
	customer     billing.Customer
	createdIn    time.Time // the start of the month that the customer was made in
	providerID   string    // the customer's at the provider; "": it is linked to none
	side         *billing.Side
	sideOf       string         // whom side was read for
	streams      []*ledger      // by number
	feeds        []billing.Feed // ascending
	following    []followed
	subscribedTo map[metering.ConnectionID]string // whose periods are stream 0's, as it was read last; of a life with two
	events       []usageEvent
	runs         map[string]billing.Run   // of subscriptions, by their names
	invoices     []storedInvoice          // that are final, as they were heard of
	filledFrom   map[metering.MeterID]int // the first event that a backfilling meter has counted
	number       int64                    // of the last report
	epoch        int64                    // when it was restored last; 0: never
	epochs       []int64                  // all that it knows of
	knownUntil   time.Time                // what was reported later was lost then
	readIn       map[string]int64         // by whom it was read for, the epoch in which what was added up was
	lookAgain    time.Time                // as the last plan said; zero: at once
}

// storedInvoice is a final invoice, and the usage scales when it was heard of.
type storedInvoice struct {
	billing.Invoice
	scales map[metering.MeterID]int32
}

// inTest says whether nobody is charged for what is reported now.
func (c *catalog) inTest() bool {
	return c.connection != nil && slices.Contains(c.tests, c.connection.ID)
}

// markInvoiced notes in the periods which have a final invoice of the present mode.
func (l *ledger) markInvoiced() {
	for i := range l.periods {
		s := &l.periods[i].Subscription
		s.Invoiced, s.Scales = false, nil
		for _, invoice := range l.invoices {
			if l.inMode(invoice) && invoice.Renewal && !invoice.Ended && !s.Invoiced && invoice.Subscription == s.ID && s.Start.Before(invoice.Period.End) && !invoice.Period.Intersect(l.periods[i].Range).Empty() {
				s.Invoiced, s.Scales = true, invoice.scales
			}
		}
	}
}

// inMode says whether the invoice is of the present connection's mode.
func (l *ledger) inMode(i storedInvoice) bool {
	return slices.Contains(l.tests, i.Connection) == l.inTest()
}

// unreconciled are the final invoices of periods that are not complete, or not
// compared with all of theirs yet, and all those of periods that these touch.
func (l *ledger) unreconciled() (all []billing.Invoice) {
	about := func(p billing.Period, i storedInvoice) bool {
		return l.inMode(i) && !i.Period.Intersect(p.Range).Empty() && (i.Ended && l.endedIn(p, i) || !i.Ended && l.billsStream(p, i))
	}
	wanted, read := make([]bool, len(l.periods)), make([]bool, len(l.invoices))
	for n, p := range l.periods {
		since := l.invoices[l.through[p.Start.UnixMicro()]:]
		wanted[n] = !p.Complete || slices.ContainsFunc(since, func(i storedInvoice) bool { return about(p, i) })
	}
	for more := true; more; {
		more = false
		for n, p := range l.periods {
			for i, in := range l.invoices {
				if wanted[n] != read[i] && about(p, in) {
					wanted[n], read[i], more = true, true, true
				}
			}
		}
	}
	for i, in := range l.invoices {
		if read[i] {
			all = append(all, in.Invoice)
		}
	}
	return all
}

// billsStream says whether an invoice is of the subscription that the period lies
// in, or was reported to, or bills a meter that has fed the stream up to its end.
func (l *ledger) billsStream(p billing.Period, i storedInvoice) bool {
	reported := slices.ContainsFunc(l.reports, func(r *storedReport) bool {
		landed := r.Kind == billing.QuantityReport && r.Connection == i.Connection && i.Period.Contains(r.timestamp) && slices.Contains(l.runs[i.Subscription].Targets, r.Target)
		return r.isOf(p.Place()) && (r.To.Subscription == i.Subscription || landed)
	})
	return i.Subscription == p.Subscription.ID || len(l.feeds) == 0 || reported || slices.ContainsFunc(i.Lines, func(line billing.InvoiceLine) bool {
		return l.isFed(line.MeterID, i.Period.End.Add(-time.Microsecond))
	})
}

// endedIn says whether a subscription that has ended was reported usage of the
// period, or ran at the time with which usage of it went out.
func (l *ledger) endedIn(p billing.Period, i storedInvoice) bool {
	return i.Subscription == p.Subscription.ID || slices.ContainsFunc(l.reports, func(r *storedReport) bool {
		there := r.Kind == billing.QuantityReport && r.Connection == i.Connection && r.Period.Equal(p.Start)
		return there && (r.To.Subscription == i.Subscription || i.Period.Contains(r.timestamp))
	})
}

// storedReport is a report as it is written down.
type storedReport struct {
	billing.Report
	id        uuid.UUID
	number    int64
	state     billing.State
	lease     time.Time
	attempts  int
	key       int // revision of its idempotency key
	firstSent time.Time
	settledAt time.Time
	timestamp time.Time
	closed    string // its bytes, as they were written down
	arrived   bool   // the far side has it, which no ledger knows
	epoch     int64
	lost      bool // with a restore: nobody knows of it
	made      time.Time
	stream    int
}

func (r *storedReport) bytes() string {
	lines := slices.Clone(r.Lines)
	for i := range lines {
		lines[i].Working = nil // it has pointers
	}
	return fmt.Sprint(r.Kind, r.Connection, r.Customer, r.Target, r.number, r.Quantity, r.Currency, r.Of, r.timestamp, lines)
}

// facts are read at one instant.
func (l *ledger) facts(now time.Time, after int64) billing.Facts {
	if l.own || l.twofold {
		l.markInvoiced() // that is read with them
	}
	f := billing.Facts{
		Now: now, After: after, Customer: l.customer, Settings: l.settings, Meters: l.meters, Prices: l.prices, Connection: l.connection, InTest: l.tests,
		Stored: l.periods, Reported: l.reported(), Booked: l.booked(), Epoch: l.epoch, Epochs: l.epochs, Unread: l.unread(),
	}
	f.Customer.EarlyEvents = l.early()
	if l.connection != nil && !l.connection.Statements && l.sideOf == l.link() {
		f.Side = l.side
	}
	f = l.ofStream(f)
	for i, e := range l.events {
		if e.late && l.counts(i) && !slices.ContainsFunc(f.LateMonths, func(r metering.Range) bool { return r.Start.Equal(e.month) }) {
			f.LateMonths = append(f.LateMonths, metering.Range{Start: e.month, End: e.month.AddDate(0, 0, 32)})
		}
	}
	f.Open, f.Invoices, f.Statements = l.open(), l.unreconciled(), l.statements()
	f.Finalized = l.finalized()
	for _, of := range l.streams {
		if of.stream != l.stream {
			f.Beside = append(f.Beside, of.reported()...)
		}
	}
	periods := billing.Periods(f)
	for _, p := range periods {
		f.Counted = append(f.Counted, billing.EventCount{Period: p.Start, Events: l.counted(p.Range)})
	}
	f.Usage = l.usage(billing.NewBooks(f).UsageRanges(), f.ByDimension())
	if windowed := billing.WindowedMeters(f); len(windowed) > 0 {
		f.Hours = l.hours(periods, windowed)
	}
	return f
}

// link is whom the side has to have been read for.
func (l *ledger) link() string {
	if l.connection == nil {
		return ""
	}
	return strconv.FormatInt(int64(l.connection.ID), 10) + " " + l.providerID
}

// early are the events before the month in which the customer was made, by month.
func (l *ledger) early() (early []billing.EarlyEvents) {
	var months []time.Time
	for _, e := range l.events {
		if !e.at.Before(l.customer.CreatedAt) || e.month.Equal(l.createdIn) {
			continue
		}
		i := slices.IndexFunc(months, e.month.Equal)
		if i < 0 {
			months, early = append(months, e.month), append(early, billing.EarlyEvents{At: e.at, IngestedAt: e.ingestedAt})
		} else if e.at.Before(early[i].At) {
			early[i].At = e.at
		}
	}
	return early
}

// counts says whether the meter's present version, if there is one, has counted
// the event.
func (l *ledger) counts(i int) bool {
	e := l.events[i]
	made := slices.ContainsFunc(l.meters, func(m metering.Meter) bool { return m.ID == e.meter })
	return made && i >= l.filledFrom[e.meter] && !e.lost
}

// counted is the number of events in the months that a period touches, and of
// the late ones of every month.
func (l *ledger) counted(r metering.Range) (n int64) {
	after := r.Start.AddDate(0, 0, -32)
	for i, e := range l.events {
		touched := e.month.Before(r.End) && e.month.After(after)
		if (touched || e.late) && l.counts(i) {
			n++
		}
	}
	return n
}

func (l *ledger) meter(id metering.MeterID) *metering.Meter {
	i := slices.IndexFunc(l.meters, func(m metering.Meter) bool { return m.ID == id })
	return &l.meters[i]
}

// usage returns the usage of ranges, of the meters in by with the values of their dimensions.
func (l *ledger) usage(ranges []metering.Range, by billing.ByDimension) (all []billing.Usage) {
	all = make([]billing.Usage, 0, len(ranges)*len(l.meters))
	for _, r := range ranges {
		from := len(all)
		aggregations := make([]metering.Aggregation, len(l.meters))
		for i, m := range l.meters {
			all = append(all, billing.Usage{Period: r.Start, MeterID: m.ID})
			aggregations[i] = l.aggregation(m.ID, r.Start)
		}
		for n, e := range l.events {
			if !r.Contains(e.at) || !l.counts(n) || !l.isFed(e.meter, e.at) {
				continue
			}
			for i := range l.meters {
				u := &all[from+i]
				if u.MeterID != e.meter {
					continue
				}
				value := aggregations[i].Usage(e.value, 1)
				if u.Total, u.Events = u.Total.Add(value), u.Events+1; e.late {
					u.Late, u.LateEvents = u.Late.Add(value), u.LateEvents+1
				}
				if properties, wanted := by[e.meter]; wanted {
					key := groupKey(e.values, properties)
					if u.Dimensions = addGroup(u.Dimensions, key, value); e.late {
						u.LateDimensions = addGroup(u.LateDimensions, key, value)
					}
				}
			}
		}
	}
	return all
}

// aggregation is how the meter's usage of the period is counted: as when it closed.
func (l *ledger) aggregation(meter metering.MeterID, start time.Time) metering.Aggregation {
	for _, p := range l.periods {
		if p.Start.Equal(start) {
			if line, known := p.Line(meter); known {
				return line.Aggregation
			}
		}
	}
	return l.meter(meter).Version.Aggregation
}

// booked is what the bookings of each closed period's meter come to.
func (l *ledger) booked() (all []billing.Booked) {
	for _, b := range l.bookings {
		i := slices.IndexFunc(all, func(o billing.Booked) bool { return o.MeterID == b.MeterID && o.Period.Equal(b.Period) })
		if i < 0 {
			i, all = len(all), append(all, billing.Booked{Period: b.Period, MeterID: b.MeterID})
		}
		o := &all[i]
		if o.Events, o.Units, o.Charge, o.Dimensions = b.Events, b.Units, b.Charge, b.Dimensions; !b.Billed {
			o.OnlyReported = o.OnlyReported.Add(b.Units.Sub(b.UnitsBefore))
			o.OnlyReportedCharge = o.OnlyReportedCharge.Add(b.Charge.Sub(b.ChargeBefore))
		}
	}
	return all
}

func (l *ledger) hours(periods []billing.Period, meters []metering.MeterID) (all []billing.HourUsage) {
	for _, p := range periods {
		if p.Complete {
			continue
		}
		for n, e := range l.events {
			if e.late || !p.Contains(e.at) || !slices.Contains(meters, e.meter) || !l.counts(n) || !l.isFed(e.meter, e.at) {
				continue
			}
			h := billing.HourUsage{Period: p.Start, MeterID: e.meter, Start: e.hour}
			if h.Start.Before(p.Start) {
				h.Start = p.Start
			}
			i := slices.IndexFunc(all, func(o billing.HourUsage) bool {
				return o.Period.Equal(h.Period) && o.MeterID == h.MeterID && o.Start.Equal(h.Start)
			})
			if i < 0 {
				i, all = len(all), append(all, h)
			}
			all[i].Total = all[i].Total.Add(l.meter(e.meter).Version.Aggregation.Usage(e.value, 1))
		}
	}
	return all
}

// seriesKey is what makes a series one, with the meter.
type seriesKey struct {
	kind             billing.Kind
	connection       metering.ConnectionID
	customer, target string
	method           billing.Method
	period, window   int64
	late             bool
	meter            metering.MeterID
}

// reported adds up each series of each meter.
func (l *ledger) reported() (all []billing.Reported) {
	at := make(map[seriesKey]int)
	all = make([]billing.Reported, 0, l.series+1)
	for _, r := range l.reports {
		for _, line := range r.Lines {
			s := r.Series
			if !line.Closed.IsZero() {
				s.Period, s.Late = line.Closed, true
			}
			start, to := l.windowOf(r)
			s.Window.Start = start
			key := seriesKey{s.Kind, s.Connection, s.Customer, s.Target, s.Method, s.Period.UnixMicro(), s.Window.Start.UnixMicro(), s.Late, line.MeterID}
			i, known := at[key]
			if !known {
				i, all = len(all), append(all, billing.Reported{Series: s, MeterID: line.MeterID})
				at[key] = i
			}
			all[i].To = to
			l.aggregate(&all[i], r, line)
		}
	}
	l.series = len(all)
	l.noteLines(all)
	return all
}

// windowOf is where the report's window begins, and whose it is: that of one that
// went out with a time in a subscription of which nobody knew yet is that one's.
func (l *ledger) windowOf(r *storedReport) (start time.Time, to billing.InvoicedBy) {
	if r.Kind != billing.QuantityReport || r.Counting == billing.Replaces {
		return r.Window.Start, r.To
	}
	of := l.period(r.Period)
	there := of.Subscription.Connection == r.Connection
	own, known := l.runs[of.Subscription.ID]
	if there && (!known || slices.Contains(own.Targets, r.Target)) && l.isIn(r, l.part(r).Start, of.Subscription.ID) {
		return l.part(r).Start, billing.InvoicedBy{Subscription: of.Subscription.ID, Start: of.Subscription.Start}
	}
	start, to = r.Window.Start, r.To
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(l.runs))) { // of two that began at once, the first by its id
		run := l.runs[id]
		ran := run.EndedAt == nil || run.EndedAt.After(r.timestamp)
		bills := ran && slices.Contains(run.Targets, r.Target)
		between := id != r.To.Subscription && !(there && id == of.Subscription.ID) && bills
		from := run.BeganAt
		if from.Before(of.Start) {
			from = of.Start
		}
		if between && l.isIn(r, from, id) && !(run.BeganAt.Before(to.Start) && to != r.To) {
			start, to = from, billing.InvoicedBy{Subscription: id, Start: run.BeganAt}
		}
	}
	return start, to
}

// isIn says whether the report went out with a time in a subscription's part of
// its period that begins later than the one that it was made for, which had ended.
func (l *ledger) isIn(r *storedReport, part time.Time, subscription string) bool {
	run, known := l.runs[r.To.Subscription]
	goesOn := known && r.To.Subscription != subscription && (run.EndedAt == nil || run.EndedAt.After(r.timestamp))
	return r.Window.Start.Before(part) && !r.timestamp.Before(part) && !goesOn
}

// place is where the period stands whose report it is.
func (r *storedReport) place() billing.PeriodPlace {
	return billing.PeriodPlace{Start: r.Period, Stream: r.stream}
}

// isOf says whether the report is of the period that stands there.
func (r *storedReport) isOf(p billing.PeriodPlace) bool {
	return r.stream == p.Stream && r.Period.Equal(p.Start)
}

// keepRuns notes when subscriptions run, and all that they ever billed.
func (a *account) keepRuns(read []billing.Run) {
	a.runs = maps.Clone(a.runs) // a backup may have it
	for _, run := range read {
		run.Targets = slices.Concat(run.Targets, a.runs[run.Subscription].Targets)
		slices.Sort(run.Targets)
		run.Targets = slices.Compact(run.Targets)
		a.runs[run.Subscription] = run
	}
}
