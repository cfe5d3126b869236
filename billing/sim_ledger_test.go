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

// catalog is the configuration of a simulated tenant.
type catalog struct {
	settings   billing.Settings
	meters     []metering.Meter
	prices     map[metering.MeterID][]billing.Price
	connection *billing.Connection
	farSide    *farSide // the connection's provider
	known      []*farSide
	own        bool // its counters charge amounts, and a customer without a subscription gets standalone invoices
	tests      []metering.ConnectionID
	twofold    bool // a customer may have a second subscription beside the first
}

// usageEvent is one ingested event of a meter.
type usageEvent struct {
	at, hour, month time.Time
	ingestedAt      time.Time
	meter           metering.MeterID
	value           metering.Decimal
	values          map[string]string // of its dimensions; nil: its group is unknown
	late            bool              // it arrived after its period was closed
	gone            bool              // retention has deleted it, so no later meter version counts it
	lost            bool              // it was gone before the current version of its meter was created
}

// ledger is Odometer's stored state of one billing schedule of a customer.
type ledger struct {
	*catalog
	*account
	stream     int
	periods    []billing.Period
	reports    []*storedReport
	series     int // number of series when the reports were last added up
	bookings   []billing.Booking
	through    map[int64]int // number of invoices that each closed period was compared with, by its start
	reconciled []billing.Reconciliation
	ends       []string // text of each closed period, written at its close
}

// account is Odometer's stored state of one customer. All of the customer's billing schedules share it.
type account struct {
	name         string
	customer     billing.Customer
	createdIn    time.Time // start of the month in which the customer was created
	providerID   string    // customer id at the provider; "": the customer is not linked
	side         *billing.Side
	sideOf       string         // link for which side was read
	streams      []*ledger      // by number, from 0
	feeds        []billing.Feed // in ascending order of time
	following    []billing.Followed
	subscribedTo map[metering.ConnectionID]string // subscription of billing schedule 0 at each connection; only with two subscriptions
	events       []usageEvent
	runs         map[string]billing.Run   // by subscription id
	invoices     []storedInvoice          // final invoices that Odometer has read
	filledFrom   map[metering.MeterID]int // index of the first event that a backfilling meter has counted
	number       int64                    // of the last report
	epoch        int64                    // of the last restore; 0: never restored
	epochs       []int64                  // of all restores that the ledger knows
	knownUntil   time.Time                // restores may have lost reports made after this time
	readIn       map[string]int64         // epoch in which the provider's totals were last read, by link
	replanAt     time.Time                // time of the next re-evaluation, from the last plan; zero: at once
}

// storedInvoice is a final invoice, with the usage scales at the time at which Odometer read it.
type storedInvoice struct {
	billing.Invoice
	scales map[metering.MeterID]int32
}

// inTest reports whether the current connection is in test mode, in which no customer is charged.
func (c *catalog) inTest() bool {
	return c.connection != nil && slices.Contains(c.tests, c.connection.ID)
}

// markInvoiced sets Invoiced on the periods that have a final invoice of the current mode, and stores the
// invoice's usage scales.
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

// inMode reports whether the invoice is of the current connection's mode.
func (l *ledger) inMode(i storedInvoice) bool {
	return slices.Contains(l.tests, i.Connection) == l.inTest()
}

// unreconciled returns the final invoices of periods that are not complete, or not yet compared with all of their
// invoices. It also returns all invoices of each period that shares one of these invoices.
func (l *ledger) unreconciled() (all []storedInvoice) {
	wanted, read := make([]bool, len(l.periods)), make([]bool, len(l.invoices))
	for n, p := range l.periods {
		since := l.invoices[l.through[p.Start.UnixMicro()]:]
		wanted[n] = !p.Complete || slices.ContainsFunc(since, func(i storedInvoice) bool { return l.concerns(i, p) })
	}
	for more := true; more; {
		more = false
		for n, p := range l.periods {
			for i, in := range l.invoices {
				if wanted[n] != read[i] && l.concerns(in, p) {
					wanted[n], read[i], more = true, true, true
				}
			}
		}
	}
	for i, in := range l.invoices {
		if read[i] {
			all = append(all, in)
		}
	}
	return all
}

// invoicesOfStreams returns the invoices that the facts of any of the customer's billing schedules contain.
func (l *ledger) invoicesOfStreams() (all []storedInvoice) {
	for _, of := range l.streams {
		if of.stream == l.stream {
			of = l // l may be a clone of it
		}
		all = append(all, of.unreconciled()...)
	}
	return all
}

// concerns reports whether an invoice can bill a period.
func (l *ledger) concerns(i storedInvoice, p billing.Period) bool {
	return l.inMode(i) && !i.Period.Intersect(p.Range).Empty() && (i.Ended && l.endedIn(p, i) || !i.Ended && l.billsStream(p, i))
}

// billsStream reports whether an invoice can bill usage of the billing schedule in period p. The invoice is of
// the period's subscription, or bills a meter that feeds the schedule at the invoice's end, or is of a subscription to
// which the period was reported.
func (l *ledger) billsStream(p billing.Period, i storedInvoice) bool {
	bills := func(line billing.InvoiceLine) bool { return l.isFed(line.MeterID, i.Period.End.Add(-time.Microsecond)) }
	return i.Subscription == p.Subscription.ID || slices.ContainsFunc(i.Lines, bills) || l.wasReported(p, i, func(r *storedReport) bool {
		return i.Period.Contains(r.timestamp) && slices.Contains(l.runs[i.Subscription].Targets, r.Target)
	})
}

// endedIn reports whether the ended subscription of i is the period's, received usage of the period, or ran at
// the timestamp of a report of the period.
func (l *ledger) endedIn(p billing.Period, i storedInvoice) bool {
	return i.Subscription == p.Subscription.ID || l.wasReported(p, i, func(r *storedReport) bool { return i.Period.Contains(r.timestamp) })
}

// wasReported reports whether a quantity of the period was reported to the subscription of i, or in a report that
// landed there.
func (l *ledger) wasReported(p billing.Period, i storedInvoice, landed func(*storedReport) bool) bool {
	return slices.ContainsFunc(l.reports, func(r *storedReport) bool {
		quantity := r.Kind == billing.QuantityReport && r.isOf(p.Place()) && r.Connection == i.Connection && r.Customer == i.Customer
		return quantity && (r.To.Subscription == i.Subscription || landed(r))
	})
}

// storedReport is a report as the ledger stores it.
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
	closed    string // its content when it was stored
	arrived   bool   // the provider has it; only the simulation knows this
	epoch     int64
	lost      bool // a restore removed it from the ledger
	made      time.Time
	stream    int
}

func (r *storedReport) bytes() string {
	lines := slices.Clone(r.Lines)
	for i := range lines {
		lines[i].Working = nil // Working contains pointers
	}
	return fmt.Sprint(r.Kind, r.Connection, r.Customer, r.Target, r.number, r.Quantity, r.Currency, r.Of, r.timestamp, lines)
}

// facts returns the facts of the billing schedule, all read at one instant.
func (l *ledger) facts(now time.Time, after int64) billing.Facts {
	if l.own || l.twofold {
		l.markInvoiced() // the facts include Invoiced of each period
	}
	f := billing.Facts{
		Now: now, After: after, Customer: l.customer, Settings: l.settings, Meters: l.meters, Prices: l.prices, Connection: l.connection, InTest: l.tests,
		Stored: l.periods, Booked: l.booked(), Epoch: l.epoch, Epochs: l.epochs, Unread: l.unread(),
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
	f.Open, f.Statements = l.open(), l.statements()
	own := l.unreconciled()
	for _, i := range own {
		f.Invoices = append(f.Invoices, i.Invoice)
	}
	invoiced, statements := l.invoiced(own), f.Connection != nil && f.Connection.Statements
	f.Stored = slices.Clone(f.Stored)
	for n := range f.Stored {
		p := &f.Stored[n]
		p.Omitted = (p.Complete || statements) && !invoiced[p.Start.UnixMicro()]
	}
	read := l.invoicesOfStreams()
	f.Reported = l.reported(read)
	f.Finalized = l.finalized()
	for _, of := range l.streams {
		if of.stream != l.stream {
			f.Beside = append(f.Beside, of.reported(read)...)
		}
	}
	for _, p := range billing.Periods(f) {
		f.Counted = append(f.Counted, billing.EventCount{Period: p.Start, Events: l.counted(p.Range)})
	}
	ranges := billing.NewBooks(f).UsageRanges()
	f.Usage = l.usage(ranges, f.ByDimension())
	if windowed := billing.WindowedMeters(f); len(windowed) > 0 {
		f.Hours = l.hours(ranges, windowed)
	}
	return f
}

// isRead returns a function that reports whether the facts contain a line of a report. They contain late usage, and the
// lines of the periods that the invoices in read concern. They also contain all other lines of incomplete periods,
// except the lines of statements to the current connection. Other lines of a complete period are read if their window
// ends after the start of a current subscription period, or of the subscription period of an incomplete period of any
// billing schedule.
func (l *ledger) isRead(read []storedInvoice) func(r *storedReport, line billing.Line) bool {
	invoiced, complete := l.invoiced(read), make(map[int64]bool)
	for _, p := range l.periods {
		complete[p.Start.UnixMicro()] = p.Complete
	}
	var subscribed []time.Time
	if l.connection != nil && !l.connection.Statements && l.sideOf == l.link() {
		if since := l.side.SubscribedSince(); since != nil {
			subscribed = append(subscribed, *since)
		}
	}
	for _, p := range l.allPeriods() {
		if !p.Complete && p.Subscription.ID != "" {
			subscribed = append(subscribed, p.Subscription.Start)
		}
	}
	return func(r *storedReport, line billing.Line) bool {
		at := r.Period.UnixMicro()
		switch {
		case r.Late || !line.Closed.IsZero() || invoiced[at]:
			return true
		case r.Kind == billing.StatementReport:
			return !complete[at] && (l.connection == nil || r.Connection != l.connection.ID)
		case !complete[at]:
			return true
		}
		return slices.ContainsFunc(subscribed, func(start time.Time) bool { return r.Window.End.After(start) })
	}
}

// invoiced returns the starts of the periods that the invoices concern, and of the periods of their charges.
func (l *ledger) invoiced(read []storedInvoice) map[int64]bool {
	starts := make(map[int64]bool)
	for _, i := range read {
		for _, p := range l.periods {
			if l.concerns(i, p) {
				starts[p.Start.UnixMicro()] = true
			}
		}
		if i.Ended {
			continue
		}
		for _, it := range l.sideOfConnection(i.Connection).items {
			if it.invoice.Range == i.Period && it.line.contract == i.Subscription && !it.line.late && l.has(it.by) {
				starts[it.line.period] = true
			}
		}
	}
	return starts
}

// link identifies the current connection and the customer there. The stored side is valid only if it was read for
// the same link.
func (l *ledger) link() string {
	if l.connection == nil {
		return ""
	}
	return linkTo(l.connection.ID, l.providerID)
}

func linkTo(connection metering.ConnectionID, customer string) string {
	return strconv.FormatInt(int64(connection), 10) + " " + customer
}

// early returns the first event and the first ingest time of each month before the month of the customer's
// creation.
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

// counts reports whether the current version of the event's meter has counted event i. It is false if the meter
// does not exist.
func (l *ledger) counts(i int) bool {
	e := l.events[i]
	made := slices.ContainsFunc(l.meters, func(m metering.Meter) bool { return m.ID == e.meter })
	return made && i >= l.filledFrom[e.meter] && !e.lost
}

// counted returns the number of events in the months that the range overlaps, plus the late events of all other
// months.
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

// usage returns the usage of each meter in each range. For the meters in by, it includes the usage by dimension.
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

// aggregation returns how the usage of the meter in a period is counted: for a closed period, as when it closed.
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

// booked returns the totals of the bookings of each meter in each closed period.
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

func (l *ledger) hours(ranges []metering.Range, meters []metering.MeterID) (all []billing.HourUsage) {
	for _, p := range ranges {
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

// seriesKey identifies a series of one meter.
type seriesKey struct {
	kind             billing.Kind
	connection       metering.ConnectionID
	customer, target string
	method           billing.Method
	period, window   int64
	late             bool
	meter            metering.MeterID
}

// reported returns the totals of each series of each meter, as the facts with these invoices contain them.
func (l *ledger) reported(invoices []storedInvoice) (all []billing.Reported) {
	at, isRead := make(map[seriesKey]int), l.isRead(invoices)
	all = make([]billing.Reported, 0, l.series+1)
	for _, r := range l.reports {
		for _, line := range r.Lines {
			if !isRead(r, line) {
				continue
			}
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

// windowOf returns the start of the report's window and the subscription that bills it. If the report's timestamp
// lies in a subscription that was unknown when the report was created, that subscription bills it.
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
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(l.runs))) { // backward: of two that began at one instant, the smaller id applies
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

// isIn reports whether a report belongs to a later part of its period than the one that it was made for. The
// later part begins at part, in the given subscription. The report's timestamp does not precede it, and the
// subscription that the report was made for had ended by then.
func (l *ledger) isIn(r *storedReport, part time.Time, subscription string) bool {
	run, known := l.runs[r.To.Subscription]
	goesOn := known && r.To.Subscription != subscription && (run.EndedAt == nil || run.EndedAt.After(r.timestamp))
	return r.Window.Start.Before(part) && !r.timestamp.Before(part) && !goesOn
}

// place identifies the report's period: its start and billing schedule.
func (r *storedReport) place() billing.PeriodPlace {
	return billing.PeriodPlace{Start: r.Period, Stream: r.stream}
}

// isOf reports whether the report is of the period p.
func (r *storedReport) isOf(p billing.PeriodPlace) bool {
	return r.stream == p.Stream && r.Period.Equal(p.Start)
}

// keepRuns stores the runs of subscriptions. Each keeps all targets that it has ever billed.
func (a *account) keepRuns(read []billing.Run) {
	a.runs = maps.Clone(a.runs) // a backup may share the map
	for _, run := range read {
		run.Targets = slices.Concat(run.Targets, a.runs[run.Subscription].Targets)
		slices.Sort(run.Targets)
		run.Targets = slices.Compact(run.Targets)
		a.runs[run.Subscription] = run
	}
}
