package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// addReported adds reported quantities to the facts of billing schedules that all have the number stream. It
// skips schedules for which the end of the last stored period does not depend on reports.
func addReported(ctx context.Context, q pg.Querier, tenant metering.TenantID, stream int, all []*billing.Facts) error {
	var customers []int64
	byCustomer := make(map[int64]*billing.Facts)
	args := pgx.NamedArgs{"tenant": tenant, "connection": 0, "stream": stream, "subscribed": nil}
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

// readReported queues the read of the schedule's reported quantities.
func (r *factReader) readReported(batch *pgx.Batch, args pgx.NamedArgs) {
	pg.QueueRows(batch, reportedOf("@customer"), []any{args}, scanReported, func(s billing.Reported) { r.facts.Reported = append(r.facts.Reported, s) })
}

// reportedOf returns the SQL of a customer's reported quantities, by series and meter. It selects reports of
// late usage, and the reports about these periods:
//   - periods that are not complete
//   - windows that end after the start of a current subscription period (@subscribed), or of an incomplete period's
//     subscription period. The report of an incomplete period may include the usage of such a window. A window may begin
//     before that start, if its first report was made before Odometer knew of the subscription. Incomplete periods may
//     lack a current subscription, if the customer was not linked to it when they were stored.
//   - periods of the invoices that the facts of any of the customer's schedules contain (periodsOfInvoices)
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
	    and (s.late or not p.complete or s.window_end > least(@subscribed, (
	      select min(o.subscription_start)
	      from billing_periods o
	      where o.tenant_id = @tenant
	        and o.customer_id = ` + customer + `
	        and not o.complete)) or p.id = any(array(` + periodsOfInvoices(customer) + `)))
	  union all
	  select s.kind, s.counting, d.connection_id, d.provider_customer, s.target, s.method, l.period_id, t.starts_at, t.ends_at, false,
	    r.id, r.number, r.ledger_epoch, r.state, r.quantity, r.provider_time, r.decided_at, r.subscription, r.subscription_start, l.meter_id, l.quantity, l.amount, l.currency,
	    l.price_version = 0 and l.terms is not null
	  from billing_destinations d
	  cross join lateral (` + seriesAt + ` and s.kind = 'statement' offset 0) s
	  join billing_periods t on t.tenant_id = d.tenant_id and t.customer_id = d.customer_id and t.stream = @stream and (
	    not t.complete and d.connection_id <> @connection or t.id = any(array(` + periodsOfInvoices(customer) + `)))
	  join billing_reports r on r.tenant_id = d.tenant_id and r.customer_id = d.customer_id and r.series_id = s.id and r.period_id = t.id
	  join billing_report_lines l on l.tenant_id = r.tenant_id and l.report_id = r.id and not l.late
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
	      and l.late
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
	    and not ` + subscriptionExists("p.subscription", "x.target <> all(s.targets)") + `
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
	  and not ` + subscriptionExists("x.subscription", "s.subscription <> o.subscription and (s.ended_at is null or s.ended_at > x.provider_time)") + `
	order by o.rank, o.began_at desc, o.subscription
	limit 1`

// subscriptionExists returns the SQL condition that a subscription s meets a condition. The SQL selects s by its ID,
// among the subscriptions of the customer of period p at the connection of report x.
func subscriptionExists(subscription, condition string) string {
	return `exists (
	      select
	      from billing_subscriptions s
	      where s.tenant_id = p.tenant_id
	        and s.customer_id = p.customer_id
	        and s.connection_id = x.connection_id
	        and s.subscription = ` + subscription + `
	        and ` + condition + `)`
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
	select x.id, p.starts_at, x.number, x.ledger_epoch, x.state, x.decided_at, l.meter_id, coalesce(m.slug, ''), case when l.late then c.starts_at end,
	  l.usage, l.event_count, l.quantity, l.price_version, l.unit_price, l.charge, l.amount, l.currency
	from billing_destinations d
	cross join lateral (` + seriesAt + ` and s.kind = 'statement' offset 0) s
	join billing_periods p on p.tenant_id = d.tenant_id and p.customer_id = d.customer_id and p.stream = @stream and not p.complete
	cross join lateral (
	  (select r.id, r.number, r.ledger_epoch, r.state, r.decided_at
	   from billing_reports r
	   where r.tenant_id = d.tenant_id
	     and r.customer_id = d.customer_id
	     and r.series_id = s.id
	     and r.period_id = p.id
	   order by r.number desc
	   limit 1)
	  union
	  (select r.id, r.number, r.ledger_epoch, r.state, r.decided_at
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
	left join meters m on m.tenant_id = l.tenant_id and m.id = l.meter_id
	where d.tenant_id = @tenant
	  and d.customer_id = @customer
	  and d.connection_id = @connection
	order by x.number, l.line`

type sentLine struct {
	sent billing.Sent
	billing.Line
}

func scanSentLine(row pgx.CollectableRow) (l sentLine, err error) {
	var decided, closed *time.Time
	err = row.Scan(&l.sent.ID, &l.sent.Period, &l.sent.Number, &l.sent.Epoch, &l.sent.State, &decided, &l.MeterID, &l.MeterSlug, &closed,
		&l.Usage, &l.Events, &l.Quantity, &l.PriceVersion, &l.UnitPrice, &l.Charge, &l.Amount, &l.Currency)
	if decided != nil {
		l.sent.DecidedAt = *decided
	}
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
