package ledger

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// readStreams reads all billing facts of a customer. It returns a reader per billing schedule, ordered by
// schedule number. For a customer with one schedule, the number of statements does not depend on the number of
// meters, periods or windows. In a transaction with one snapshot, all facts are of one instant. It returns
// CodeNotFound if the customer does not exist.
func readStreams(ctx context.Context, q pg.Batcher, read ReadPrice, tenant metering.TenantID, customer metering.CustomerID, now time.Time) ([]*factReader, error) {
	all, err := newStreamReaders(ctx, q, read, tenant, customer, now)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if err := r.catalogAndLedger(); err != nil {
			return nil, err
		}
	}
	for i, r := range all {
		for _, other := range slices.Concat(all[:i], all[i+1:]) {
			r.facts.Beside = append(r.facts.Beside, other.facts.Reported...)
		}
	}
	for _, r := range all {
		r.facts.Reconcile()
		if err := r.usageOf(billing.UsageRanges(r.facts)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ReadSchedules reads only the facts that determine the start and end of the customers' billing periods. It
// returns the facts of each customer's billing schedules, ordered by schedule number. The number of statements
// depends on the maximum number of schedules per customer, not on the number of customers.
func ReadSchedules(ctx context.Context, q pg.Batcher, price ReadPrice, tenant metering.TenantID, customers []int64, now time.Time) (map[metering.CustomerID][]billing.Facts, error) {
	readers, err := newFactReaders(ctx, q, price, tenant, customers, now)
	if err != nil {
		return nil, err
	}
	streams, most := make(map[metering.CustomerID][]billing.Facts), 0
	for _, first := range readers {
		most = max(most, first.streams)
		for _, r := range first.eachStream() {
			streams[r.customer] = append(streams[r.customer], r.facts)
		}
	}
	rows, err := q.Query(ctx, selectBillingPeriods+`and p.customer_id = any(@customers) order by p.customer_id, p.starts_at`, pgx.NamedArgs{"tenant": tenant, "customers": customers})
	if err != nil {
		return nil, err
	}
	stored, err := pgx.CollectRows(rows, scanBillingPeriod)
	if err != nil {
		return nil, err
	}
	for _, p := range stored {
		f := &streams[p.customer][p.Stream]
		f.Stored = append(f.Stored, p.Period)
	}
	for number := range most {
		var alike []*billing.Facts
		for _, r := range readers {
			if of := streams[r.customer]; number < len(of) {
				alike = append(alike, &of[number])
			}
		}
		if err := addReported(ctx, q, tenant, number, alike); err != nil {
			return nil, err
		}
	}
	return streams, nil
}

// addReported adds reported quantities to the facts of billing schedules that all have the number stream. It
// skips schedules for which the end of the last stored period does not depend on reports.
func addReported(ctx context.Context, q pg.Querier, tenant metering.TenantID, stream int, all []*billing.Facts) error {
	var customers []int64
	byCustomer := make(map[int64]*billing.Facts)
	args := pgx.NamedArgs{"tenant": tenant, "connection": 0, "stream": stream}
	for _, f := range all {
		if !billing.EndsByReports(*f) {
			continue
		}
		id := int64(f.Customer.ID)
		customers, byCustomer[id] = append(customers, id), f
		if f.Connection != nil {
			args["connection"] = f.Connection.ID
		}
	}
	if len(customers) == 0 {
		return nil
	}
	args["customers"] = customers
	rows, err := q.Query(ctx, `
		select shorter.customer_id, reported.*
		from unnest(@customers::bigint[]) shorter (customer_id)
		cross join lateral (`+reportedOf("shorter.customer_id")+`) reported`, args)
	if err != nil {
		return err
	}
	var customer int64
	var s billing.Reported
	_, err = pgx.ForEachRow(rows, append([]any{&customer}, reportedFields(&s)...), func() error {
		byCustomer[customer].Reported = append(byCustomer[customer].Reported, s)
		return nil
	})
	return err
}

// readStored queues the read of a billing schedule's stored periods, oldest first.
func readStored(batch *pgx.Batch, args pgx.NamedArgs, add func(storedPeriod) error) {
	pg.QueueEach(batch, selectBillingPeriods+`and p.customer_id = @customer and p.stream = @stream order by p.starts_at`, []any{args}, scanBillingPeriod, add)
}

// newStreamReaders returns the readers of a customer's billing schedules, ordered by schedule number. The
// readers already hold the customerFacts of the customer.
func newStreamReaders(ctx context.Context, q pg.Batcher, price ReadPrice, tenant metering.TenantID, customer metering.CustomerID, now time.Time) ([]*factReader, error) {
	first, err := newFactReaders(ctx, q, price, tenant, []int64{int64(customer)}, now)
	if err != nil {
		return nil, err
	}
	if len(first) == 0 {
		return nil, metering.Errorf(metering.CodeNotFound, "there is no such customer")
	}
	return first[0].eachStream(), nil
}

// args returns the arguments of statements about the schedule. @connection is 0 if the tenant has no billing
// connection.
func (r *factReader) args() pgx.NamedArgs {
	args := pgx.NamedArgs{"tenant": r.tenant, "customer": r.customer, "connection": 0, "stream": r.facts.Stream}
	if r.facts.Connection != nil {
		args["connection"] = r.facts.Connection.ID
	}
	return args
}

// readReported queues the read of the schedule's reported quantities.
func (r *factReader) readReported(batch *pgx.Batch, args pgx.NamedArgs) {
	pg.QueueRows(batch, reportedOf("@customer"), []any{args}, scanReported, func(s billing.Reported) { r.facts.Reported = append(r.facts.Reported, s) })
}

type factReader struct {
	ctx       context.Context
	q         pg.Batcher
	readPrice ReadPrice
	tenant    metering.TenantID
	customer  metering.CustomerID
	base      billing.Facts // shared by the customer's billing schedules
	facts     billing.Facts // of this billing schedule
	streams   int           // number of the customer's billing schedules
	kind      metering.ProviderKind
	prices    providerPrices
	by        billing.ByDimension // dimensions by which usage is read, in addition to those of the prices in facts

	lastNumber   int64 // number of the customer's last report
	paused       bool  // an operator has paused reporting
	lastInvoiced int64 // highest sequence of the invoices and ended subscriptions that were read
}

// catalogAndLedger reads the meters, the prices, and the customer's periods with their reports and invoices, in
// one round trip.
func (r *factReader) catalogAndLedger() error {
	f := &r.facts
	args := r.args()
	f.Prices = make(map[metering.MeterID][]billing.Price)
	var batch pgx.Batch
	pg.QueueRows(&batch, catalog.SelectMeters+`order by m.id`, []any{r.tenant}, catalog.ScanMeter, func(m metering.Meter) { f.Meters = append(f.Meters, m) })
	pg.QueueRows(&batch, catalog.SelectPrices+catalog.OfCatalog, []any{r.tenant}, catalog.ScanPrice, func(p billing.Price) {
		f.Prices[p.MeterID] = append(f.Prices[p.MeterID], p)
	})
	readStored(&batch, args, func(p storedPeriod) error {
		period, err := r.prices.period(p, r.readPrice)
		f.Stored = append(f.Stored, period)
		return err
	})
	pg.QueueEach(&batch, selectClosedLines, []any{args}, scanClosedLine, r.addClosedLine)
	pg.QueueRows(&batch, selectInvoiceLines, []any{args}, scanInvoiceLine, r.addInvoiceLine)
	pg.QueueRows(&batch, usage.SelectLateMonths, []any{args}, scanMonth, func(month metering.Range) { f.LateMonths = append(f.LateMonths, month) })
	r.readReported(&batch, args)
	pg.QueueRows(&batch, selectSentLines, []any{args}, scanSentLine, r.addSentLine)
	pg.QueueRows(&batch, selectOpen, []any{args}, scanOpen, r.addOpen)
	return r.q.SendBatch(r.ctx, &batch).Close()
}

var selectBillingPeriods = `
	select p.customer_id, p.stream, p.id, p.starts_at, p.ends_at, p.closed_at, p.complete, p.subscription, p.subscription_start, p.subscription_end, coalesce(p.subscription_connection, 0), p.trial, p.bills, p.prices, ` + namedTerms("p.tenant_id", hashesInPeriod) + `,
	  i.finalized_at is not null, i.decimals, coalesce(p.watermark_events, 0), p.watermark_configuration
	from billing_periods p
	left join lateral (
	  select i.finalized_at, i.decimals
	  ` + finalInvoices + `
	  order by i.finalized_at
	  limit 1) i on true
	where p.tenant_id = @tenant `

type storedPeriod struct {
	customer metering.CustomerID
	billing.Period
	prices map[metering.MeterID]string // hashes
	terms  keptTerms
}

func scanBillingPeriod(row pgx.CollectableRow) (p storedPeriod, err error) {
	var start, end *time.Time
	s := &p.Subscription
	err = row.Scan(&p.customer, &p.Stream, &p.ID, &p.Start, &p.End, &p.ClosedAt, &p.Complete, &s.ID, &start, &end, &s.Connection, &s.Trial, &p.Bills, &p.prices, &p.terms, &s.Invoiced, &s.Scales, &p.Watermark.Events, &p.Watermark.Configuration)
	if start != nil {
		s.Start, s.End = *start, *end
	}
	return p, err
}

var selectClosedLines = `
	select t.period_id, t.meter_id, t.meter_version_id, g.aggregation, t.usage, t.event_count, t.dimensions, t.price_version, ` + catalog.SourceOfPrice + `, case m.schema when 1 then m.terms else '{}' end, case m.schema when 2 then jsonb_build_object(encode(m.hash, 'hex'), m.terms) end, t.charge, t.currency,
	  t.billed, t.test, t.scale, t.trial, p.bills, t.late_usage, t.late_count, t.late_dimensions, p.starts_at, b.event_count, b.units, b.charge, b.dimensions, coalesce(b.only_units, 0), coalesce(b.only_charge, 0),
	  n.units, n.reported, n.invoiced, n.unexplained, n.billed, n.state, n.reason
	from billing_period_totals t
	join billing_periods p on p.tenant_id = t.tenant_id and p.id = t.period_id
	join meter_versions g on g.tenant_id = t.tenant_id and g.id = t.meter_version_id
	left join price_terms m on m.tenant_id = t.tenant_id and m.hash = t.terms
	left join (
	  select a.period_id, a.meter_id,
	    (array_agg(a.event_count order by a.id desc))[1] as event_count, (array_agg(a.units order by a.id desc))[1] as units, (array_agg(a.charge order by a.id desc))[1] as charge, (array_agg(a.dimensions order by a.id desc))[1] as dimensions,
	    coalesce(sum(a.units - a.units_before) filter (where not a.billed), 0) as only_units, coalesce(sum(a.amount) filter (where not a.billed), 0) as only_charge
	  from billing_adjustments a
	  where a.tenant_id = @tenant
	    and a.customer_id = @customer
	  group by 1, 2) b on b.period_id = t.period_id and b.meter_id = t.meter_id
	left join (
	  select distinct on (n.period_id, n.meter_id) *
	  from billing_reconciliations n
	  where n.tenant_id = @tenant
	    and n.customer_id = @customer
	  order by n.period_id, n.meter_id, n.id desc) n on n.period_id = t.period_id and n.meter_id = t.meter_id
	where p.tenant_id = @tenant
	  and p.customer_id = @customer
	  and p.stream = @stream
	order by t.period_id, t.meter_id`

type closedLine struct {
	period metering.PeriodID
	billing.ClosedLine
	price        keptTerms // has at most one entry
	bookedEvents *int64    // nil: nothing is booked
	booked       billing.Booked
}

func scanClosedLine(row pgx.CollectableRow) (l closedLine, err error) {
	var units, charge *metering.Decimal
	var reconciled struct {
		units, reported, invoiced, unexplained, billed *metering.Decimal

		state  *billing.ReconciliationState
		reason *string
	}
	n := &reconciled
	err = row.Scan(&l.period, &l.MeterID, &l.MeterVersion, &l.Aggregation, &l.Usage, &l.Events, &l.Dimensions, &l.PriceVersion, &l.Source, &l.Terms, &l.price, &l.Charge, &l.Currency,
		&l.Billed, &l.Test, &l.Scale, &l.Trial, &l.Bills, &l.LateUsage, &l.LateEvents, &l.LateDimensions,
		&l.booked.Period, &l.bookedEvents, &units, &charge, &l.booked.Dimensions, &l.booked.OnlyReported, &l.booked.OnlyReportedCharge,
		&n.units, &n.reported, &n.invoiced, &n.unexplained, &n.billed, &n.state, &n.reason)
	if l.bookedEvents != nil {
		l.booked.MeterID, l.booked.Events, l.booked.Units, l.booked.Charge = l.MeterID, *l.bookedEvents, *units, *charge
	}
	if n.state != nil {
		l.Reconciled = &billing.Reconciliation{
			Period: l.booked.Period, MeterID: l.MeterID, Units: *n.units, Reported: *n.reported, Invoiced: *n.invoiced, Unexplained: *n.unexplained,
			Billed: *n.billed, State: *n.state, Reason: *n.reason,
		}
	}
	return l, err
}

func (r *factReader) addClosedLine(l closedLine) error {
	if err := r.prices.add(l.price, r.readPrice); err != nil {
		return err
	}
	for hash := range l.price {
		l.Price = r.prices[hash]
	}
	i := slices.IndexFunc(r.facts.Stored, func(p billing.Period) bool { return p.ID == l.period })
	r.facts.Stored[i].Closed = append(r.facts.Stored[i].Closed, l.ClosedLine)
	if l.bookedEvents != nil {
		r.facts.Booked = append(r.facts.Booked, l.booked)
	}
	return nil
}

// scanMonth reads the start of a month. It returns a range of 32 days, which covers every month.
func scanMonth(row pgx.CollectableRow) (r metering.Range, err error) {
	err = row.Scan(&r.Start)
	r.End = r.Start.AddDate(0, 0, 32)
	return r, err
}

// reportedOf returns the SQL of a customer's reported quantities, by series and meter. It selects reports of
// late usage, and the reports about these periods:
//   - periods that are not complete
//   - periods in the same subscription period as an open period
//   - periods of the invoices that are read with the reports (periodsOfInvoices)
//
// Statements to the current connection are needed only for reconciliation. Their usage lines are therefore
// selected only for the periods of invoices. selectSentLines reads the last statements of incomplete periods.
func reportedOf(customer string) string {
	return `
	with said as (
	  select s.kind, s.counting, d.connection_id, d.provider_customer, s.target, s.method, s.period_id, s.window_start, s.window_end, s.late,
	    r.id, r.number, r.ledger_epoch, r.state, r.quantity, r.provider_time, r.decided_at, r.subscription, r.subscription_start, l.meter_id, l.quantity as value, l.amount, l.currency,
	    l.price_version = 0 and l.terms is not null as theirs
	  from billing_destinations d
	  cross join lateral (` + seriesAt + ` and s.kind <> 'statement' offset 0) s
	  join billing_periods p on p.tenant_id = d.tenant_id and p.customer_id = d.customer_id and p.id = s.period_id and p.stream = @stream
	  join billing_reports r on r.tenant_id = d.tenant_id and r.customer_id = d.customer_id and r.series_id = s.id
	  join billing_report_lines l on l.tenant_id = r.tenant_id and l.report_id = r.id
	  where d.tenant_id = @tenant
	    and d.customer_id = ` + customer + `
	    and (s.late or not p.complete or s.window_start >= (
	      select min(o.subscription_start)
	      from billing_periods o
	      where o.tenant_id = @tenant
	        and o.customer_id = ` + customer + `
	        and o.closed_at is null) or p.id = any(array(` + periodsOfInvoices(customer) + `)))
	  union all
	  select s.kind, s.counting, d.connection_id, d.provider_customer, s.target, s.method, l.period_id, t.starts_at, t.ends_at, false,
	    r.id, r.number, r.ledger_epoch, r.state, r.quantity, r.provider_time, r.decided_at, r.subscription, r.subscription_start, l.meter_id, l.quantity, l.amount, l.currency,
	    l.price_version = 0 and l.terms is not null
	  from billing_destinations d
	  cross join lateral (` + seriesAt + ` and s.kind = 'statement' offset 0) s
	  join billing_periods t on t.tenant_id = d.tenant_id and t.customer_id = d.customer_id and t.stream = @stream and (
	    not t.complete and d.connection_id <> @connection or t.id = any(array(` + periodsOfInvoices(customer) + `)))
	  join billing_reports r on r.tenant_id = d.tenant_id and r.customer_id = d.customer_id and r.series_id = s.id and r.period_id = t.id
	  join billing_report_lines l on l.tenant_id = r.tenant_id and l.report_id = r.id and l.component = 'usage'
	  where d.tenant_id = @tenant
	    and d.customer_id = ` + customer + `
	  union all
	  select s.kind, s.counting, d.connection_id, d.provider_customer, s.target, s.method, l.period_id, t.starts_at, t.ends_at, true,
	    r.id, r.number, r.ledger_epoch, r.state, r.quantity, r.provider_time, r.decided_at, r.subscription, r.subscription_start, l.meter_id, l.quantity, l.amount, l.currency,
	    l.price_version = 0 and l.terms is not null
	  from billing_periods c
	  cross join lateral (
	    select *
	    from billing_report_lines l
	    where l.tenant_id = c.tenant_id
	      and l.period_id = c.id
	      and l.component = 'adjustment'
	    offset 0) l
	  join billing_reports r on r.tenant_id = l.tenant_id and r.id = l.report_id
	  join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id and s.kind = 'statement'
	  join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
	  join billing_periods t on t.tenant_id = r.tenant_id and t.id = r.period_id
	  where c.tenant_id = @tenant
	    and c.customer_id = ` + customer + `
	    and c.stream = @stream
	    and c.closed_at is not null)
	select x.kind, x.counting, x.connection_id, x.provider_customer, x.target, x.method, p.starts_at, coalesce(w.starts_at, x.window_start), max(x.window_end), x.late, x.meter_id,
	  ` + lastOf("coalesce(w.subscription, x.subscription)") + `, coalesce(` + lastOf("coalesce(w.began_at, x.subscription_start)") + `, timestamptz '0001-01-01'),
	  ` + sumsOf("x.state in ('accepted', 'counted')") + `,
	  ` + sumsOf("x.state <> 'rejected' and (x.state <> 'planned' or x.connection_id = @connection)") + `,
	  bool_or(x.state in ('planned', 'sending', 'in_doubt')),
	  ` + lastOf("x.id") + `, max(x.number), ` + lastOf("x.state") + `, max(x.provider_time),
	  coalesce(max(x.decided_at) filter (where x.state = 'accepted'), timestamptz '0001-01-01'),
	  coalesce(max(x.ledger_epoch) filter (where x.state in ('accepted', 'counted')), 0), ` + onInvoices + `
	from said x
	join billing_periods p on p.tenant_id = @tenant and p.customer_id = ` + customer + ` and p.id = x.period_id
	left join lateral (` + window + `) w on true
	group by x.kind, x.counting, x.connection_id, x.provider_customer, x.target, x.method, p.starts_at, coalesce(w.starts_at, x.window_start), x.late, x.meter_id`
}

// window is the SQL of the window start and the subscription of a report x about the period p.
//
// A report may be sent before Odometer knows of a new subscription. If the report's provider time is in the new
// subscription, the report belongs to it, unless the report's own subscription still ran at that time. Further
// subscriptions may have run between the two, and any billing schedule may follow them by now.
var window = `
	select o.starts_at, o.subscription, o.began_at
	from (
	  select 1 as rank, greatest(p.starts_at, p.subscription_start) as starts_at, p.subscription, p.subscription_start as began_at
	  where x.connection_id = p.subscription_connection
	    and not ` + ran("p.subscription", "x.target <> all(s.targets)") + `
	  union all
	  select 2, greatest(p.starts_at, s.began_at), s.subscription, s.began_at
	  from billing_subscriptions s
	  where s.tenant_id = p.tenant_id
	    and s.customer_id = p.customer_id
	    and s.connection_id = x.connection_id
	    and s.subscription <> x.subscription
	    and (s.subscription <> p.subscription or p.subscription_connection is distinct from x.connection_id)
	    and (s.ended_at is null or s.ended_at > x.provider_time)
	    and x.target = any(s.targets)) o
	where x.kind = 'quantity'
	  and x.counting <> 'replaces'
	  and x.window_start < o.starts_at
	  and x.provider_time >= o.starts_at
	  and not ` + ran("x.subscription", "s.subscription <> o.subscription and (s.ended_at is null or s.ended_at > x.provider_time)") + `
	order by o.rank, o.began_at desc, o.subscription
	limit 1`

// ran returns the SQL that checks a condition (holds) on a subscription s. The SQL selects s by its ID, among
// the subscriptions of the customer of period p at the connection of report x.
func ran(subscription, holds string) string {
	return `exists (
	      select
	      from billing_subscriptions s
	      where s.tenant_id = p.tenant_id
	        and s.customer_id = p.customer_id
	        and s.connection_id = x.connection_id
	        and s.subscription = ` + subscription + `
	        and ` + holds + `)`
}

// seriesAt is the SQL of the series of a destination d. Callers append "offset 0" to force a lookup by
// destination. Otherwise, a query plan that was cached while the tables were empty would scan all series of the
// tenant.
const seriesAt = `
	    select *
	    from billing_series s
	    where s.tenant_id = d.tenant_id
	      and s.destination_id = d.id`

// onInvoices is the SQL of the totals of final invoice lines that a charge series sets, as last read. The
// totals are the invoiced amount, the amount that Odometer set, and whether one of the invoices needs no
// payment (void or credited in full). The result is null if there are no lines.
const onInvoices = `(
	  select jsonb_build_object('amount', sum(l.amount), 'set', sum(r.quantity), 'currency', min(x.currency), 'void', bool_or(i.void))
	  from billing_reports r
	  join billing_invoice_lines l on l.tenant_id = r.tenant_id and l.report_id = r.id
	  join billing_invoices i on i.tenant_id = l.tenant_id and i.connection_id = l.connection_id and i.invoice_id = l.invoice_id and i.version = l.version
	  where r.tenant_id = @tenant
	    and r.id = any(array_agg(x.id) filter (where x.kind = 'charge' and x.counting = 'replaces'))
	    and i.finalized_at is not null
	  having count(*) > 0)`

// lastOf returns the SQL of a value of the report x with the highest number.
func lastOf(value string) string { return `(array_agg(` + value + ` order by x.number desc))[1]` }

// sumsOf returns the SQL of the totals (billing.Sums) of the reports x that meet a condition.
func sumsOf(condition string) string {
	last := func(column string) string {
		return `(array_agg(` + column + ` order by x.number desc) filter (where ` + condition + `))[1]`
	}
	return `bool_or(` + condition + `), coalesce(` + last("x.value") + `, 0), coalesce(sum(x.quantity) filter (where ` + condition + `), 0),
	  coalesce(` + last("x.quantity") + `, 0), coalesce(` + last("x.amount") + `, 0), coalesce(` + last("x.currency") + `, ''), coalesce(` + last("x.theirs") + `, false)`
}

func scanReported(row pgx.CollectableRow) (s billing.Reported, err error) {
	err = row.Scan(reportedFields(&s)...)
	if s.TakenAt.Year() == 1 {
		s.TakenAt = time.Time{}
	}
	if s.To.Subscription == "" {
		s.To.Start = time.Time{}
	}
	return s, err
}

func reportedFields(s *billing.Reported) []any {
	taken, standing := &s.Taken, &s.Standing
	return []any{
		&s.Kind, &s.Counting, &s.Connection, &s.Customer, &s.Target, &s.Method, &s.Period, &s.Window.Start, &s.Window.End, &s.Late, &s.MeterID, &s.To.Subscription, &s.To.Start,
		&taken.Any, &taken.Value, &taken.Added, &taken.Quantity, &taken.Amount, &taken.Currency, &taken.Theirs,
		&standing.Any, &standing.Value, &standing.Added, &standing.Quantity, &standing.Amount, &standing.Currency, &standing.Theirs,
		&s.Outstanding, &s.Last, &s.Number, &s.State, &s.Timestamp, &s.TakenAt, &s.Epoch, &s.Line,
	}
}

var selectSentLines = `
	select x.id, p.starts_at, x.number, x.ledger_epoch, x.state, l.meter_id, case l.component when 'adjustment' then c.starts_at end,
	  l.usage, l.event_count, l.quantity, l.price_version, l.unit_price, l.charge, l.amount, l.currency
	from billing_destinations d
	cross join lateral (` + seriesAt + ` and s.kind = 'statement' offset 0) s
	join billing_periods p on p.tenant_id = d.tenant_id and p.customer_id = d.customer_id and p.stream = @stream and not p.complete
	cross join lateral (
	  (select r.id, r.number, r.ledger_epoch, r.state
	   from billing_reports r
	   where r.tenant_id = d.tenant_id
	     and r.customer_id = d.customer_id
	     and r.series_id = s.id
	     and r.period_id = p.id
	   order by r.number desc
	   limit 1)
	  union
	  (select r.id, r.number, r.ledger_epoch, r.state
	   from billing_reports r
	   where r.tenant_id = d.tenant_id
	     and r.customer_id = d.customer_id
	     and r.series_id = s.id
	     and r.period_id = p.id
	     and r.state in ('accepted', 'counted')
	   order by r.number desc
	   limit 1)) x
	join billing_report_lines l on l.tenant_id = s.tenant_id and l.report_id = x.id
	join billing_periods c on c.tenant_id = d.tenant_id and c.customer_id = d.customer_id and c.id = l.period_id
	where d.tenant_id = @tenant
	  and d.customer_id = @customer
	  and d.connection_id = @connection
	order by x.number, l.line`

type sentLine struct {
	sent billing.Sent
	billing.Line
}

func scanSentLine(row pgx.CollectableRow) (l sentLine, err error) {
	var closed *time.Time
	err = row.Scan(&l.sent.ID, &l.sent.Period, &l.sent.Number, &l.sent.Epoch, &l.sent.State, &l.MeterID, &closed,
		&l.Usage, &l.Events, &l.Quantity, &l.PriceVersion, &l.UnitPrice, &l.Charge, &l.Amount, &l.Currency)
	if closed != nil {
		l.Closed = *closed
	}
	return l, err
}

func (r *factReader) addSentLine(l sentLine) {
	all := &r.facts.Statements
	if n := len(*all); n == 0 || (*all)[n-1].ID != l.sent.ID {
		*all = append(*all, l.sent)
	}
	last := &(*all)[len(*all)-1]
	last.Lines = append(last.Lines, l.Line)
}

// usageOf reads the usage of the meters in the ranges, and the customer's number of events in each open period.
func (r *factReader) usageOf(ranges []metering.Range) error {
	if err := r.totalsOf(ranges); err != nil {
		return err
	}
	f := &r.facts
	windowed := billing.WindowedMeters(*f)
	meters := slices.DeleteFunc(slices.Clone(f.Meters), func(m metering.Meter) bool { return !slices.Contains(windowed, m.ID) })
	hours, err := r.usedIn(usage.ReadHourlyTotals, meters, ranges)
	if err != nil {
		return err
	}
	for _, h := range hours {
		f.Hours = append(f.Hours, billing.HourUsage{Period: h.Within.Start, MeterID: h.Meter, Start: h.Start, Total: h.Usage.Sub(h.Late)})
	}
	return r.countEvents()
}

func (r *factReader) totalsOf(ranges []metering.Range) error {
	totals, err := r.usedIn(usage.ReadTotals, r.facts.Meters, ranges)
	for _, t := range totals {
		u := billing.Usage{
			Period: t.Within.Start, MeterID: t.Meter, Total: t.Usage, Events: t.Tally.All().Count, Late: t.Late, LateEvents: t.Tally.LateCount,
		}
		counted := cmp.Or(r.closedAggregation(t.Within.Start, t.Meter), t.Aggregation)
		u.Total, u.Late = t.Tally.Total(counted), t.Tally.Late(counted)
		u.Dimensions, u.LateDimensions = t.ByDimension(counted)
		r.facts.Usage = append(r.facts.Usage, u)
	}
	return err
}

// usedIn reads the usage of the meters in disjoint ranges. It skips the usage of a meter while the meter
// belongs to another billing schedule of the customer. It needs one statement if the customer has one schedule.
func (r *factReader) usedIn(read readUsage, meters []metering.Meter, ranges []metering.Range) (all []usage.RangeUsage, err error) {
	by := r.facts.ByDimension().And(r.by)
	if len(r.facts.Feeds) == 0 {
		return read(r.ctx, r.q, r.tenant, r.customer, meters, by, ranges)
	}
	for len(meters) > 0 {
		parts := r.facts.FedIn(meters[0].ID, ranges)
		var alike, others []metering.Meter
		for _, m := range meters {
			if slices.Equal(r.facts.FedIn(m.ID, ranges), parts) {
				alike = append(alike, m)
			} else {
				others = append(others, m)
			}
		}
		if meters = others; len(parts) == 0 {
			continue
		}
		used, err := read(r.ctx, r.q, r.tenant, r.customer, alike, by, parts)
		if err != nil {
			return nil, err
		}
		for _, u := range used {
			u.Within = ranges[slices.IndexFunc(ranges, func(of metering.Range) bool { return of.Contains(u.Within.Start) })]
			all = append(all, u)
		}
	}
	return all, nil
}

// readUsage is usage.ReadTotals or usage.ReadHourlyTotals.
type readUsage func(ctx context.Context, q pg.Querier, tenant metering.TenantID, customer metering.CustomerID, meters []metering.Meter, by billing.ByDimension, ranges []metering.Range) ([]usage.RangeUsage, error)

// closedAggregation returns the aggregation of the meter when the period closed; "" if the period is open.
func (r *factReader) closedAggregation(start time.Time, meter metering.MeterID) metering.Aggregation {
	for _, p := range r.facts.Stored {
		if l, known := p.Line(meter); known && p.Start.Equal(start) {
			return l.Aggregation
		}
	}
	return ""
}

// alsoTotalsOf reads the usage in ranges to display. It skips the ranges of billing.UsageRanges, which
// readStreams has already read for the plan.
func (r *factReader) alsoTotalsOf(ranges ...metering.Range) error {
	planned := billing.UsageRanges(r.facts)
	return r.totalsOf(slices.DeleteFunc(ranges, func(shown metering.Range) bool { return slices.Contains(planned, shown) }))
}

func (r *factReader) countEvents() error {
	f := &r.facts
	var starts, ends []time.Time
	for _, p := range billing.Periods(*f) {
		if p.ClosedAt == nil {
			starts, ends = append(starts, p.Start), append(ends, p.End)
		}
	}
	rows, err := r.q.Query(r.ctx, `
		with added as materialized `+usage.AddedEventsOf+`
		select x.starts_at, `+usage.CountedEvents("added", "@tenant", "@customer", "x.starts_at", "x.ends_at")+`
		from unnest(@starts::timestamptz[], @ends::timestamptz[]) x (starts_at, ends_at)`, pgx.NamedArgs{
		"tenant": r.tenant, "customer": r.customer, "starts": starts, "ends": ends,
	})
	if err != nil {
		return err
	}
	f.Counted, err = pgx.CollectRows(rows, pgx.RowToStructByPos[billing.EventCount])
	return err
}
