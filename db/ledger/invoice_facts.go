package ledger

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// SQL conditions on an invoice i, its connection k and a billing period p.
const (
	// inPresentMode is the condition that the connection has the mode (test or live) of the tenant's
	// active connection.
	inPresentMode = `(k.livemode is false) = exists (
	    select
	    from billing_connections present
	    where present.tenant_id = k.tenant_id
	      and present.retired_at is null
	      and present.livemode is false)`

	// lastOfPeriod is the condition that the invoice is final, and is the renewal invoice of the
	// subscription period that p lies in.
	lastOfPeriod = `i.tenant_id = p.tenant_id
	  and i.customer_id = p.customer_id
	  and i.subscription = p.subscription
	  and i.renewal
	  and i.finalized_at is not null
	  and p.subscription_start < i.period_end
	  and p.starts_at < i.period_end
	  and p.ends_at > i.period_start`

	// finalInvoices is the SQL of the FROM and WHERE clauses that select the final renewal invoices of p in the mode of
	// the tenant's active connection.
	finalInvoices = `
	from billing_invoices i
	join billing_connections k on k.tenant_id = i.tenant_id and k.id = i.connection_id
	where ` + lastOfPeriod + `
	  and ` + inPresentMode
)

// aboutPeriod returns the SQL condition that an invoice i of a subscription concerns a billing period. p is the
// SQL alias of the period, and id is the SQL of its ID. Invoice and period must overlap in time, and one of
// these must hold:
//   - The invoice is of the subscription that the period follows.
//   - Usage of the period was reported to the subscription (reportedTo).
//   - The invoice bills a meter that is in the period's billing schedule at the invoice's end.
func aboutPeriod(p, id string) string {
	return `i.subscription <> ''
	  and ` + p + `.starts_at < i.period_end
	  and ` + p + `.ends_at > i.period_start
	  and (i.subscription = ` + p + `.subscription or ` + reportedTo(id) + ` or exists (
	    select
	    from billing_invoice_lines l
	    where l.tenant_id = i.tenant_id
	      and l.connection_id = i.connection_id
	      and l.invoice_id = i.invoice_id
	      and l.version = i.version
	      and l.meter_id is not null
	      and not l.proration
	      and ` + usage.StreamAt("i.tenant_id", "i.customer_id", "l.meter_id", "i.period_end - interval '1 microsecond'") + ` = ` + p + `.stream))`
}

// endedInPeriod is the SQL condition that an ended subscription i concerns a billing period p. p must overlap
// the last period of i, and one of these must hold: p follows i, usage of p was reported to i, or usage of p
// was reported with a time in i's last period. By now, p may follow a subscription other than i, and part of
// its usage may have been reported to that subscription.
var endedInPeriod = `p.starts_at < i.period_end
	  and p.ends_at > i.period_start
	  and (i.subscription = p.subscription or ` + reportExists("p.id", `(r.subscription = i.subscription or r.provider_time >= i.period_start and r.provider_time < i.period_end)`) + `)`

// reportedTo returns the SQL condition that usage of a period was reported to the subscription of an invoice i.
// period is the SQL of the period's ID. The condition also holds if the usage was reported to a target that the
// subscription bills, with a time in the invoice's period.
func reportedTo(period string) string {
	return reportExists(period, `(r.subscription = i.subscription or r.provider_time >= i.period_start and r.provider_time < i.period_end and exists (
	        select
	        from billing_subscriptions b
	        where b.tenant_id = i.tenant_id
	          and b.customer_id = i.customer_id
	          and b.connection_id = i.connection_id
	          and b.subscription = i.subscription
	          and s.target = any(b.targets)))`)
}

// reportExists returns the SQL condition that a report r of usage of a period meets a condition. The SQL itself
// restricts r to reports to the connection and the provider's customer of i, which is an invoice or an ended
// subscription. period is the SQL of the period's ID. The condition can refer to r and to its series s.
func reportExists(period, condition string) string {
	return `exists (
	    select
	    from billing_series s
	    join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
	    join billing_reports r on r.tenant_id = s.tenant_id and r.series_id = s.id
	    where s.tenant_id = i.tenant_id
	      and s.period_id = ` + period + `
	      and s.kind = 'quantity'
	      and ` + condition + `
	      and d.connection_id = i.connection_id
	      and d.provider_customer = i.provider_customer)`
}

// invoicesWithPeriods returns the WITH clause of a statement about a customer's final invoices and
// ended subscriptions, in the mode of the active connection:
//   - final: all of these invoices and ended subscriptions.
//   - touched: the periods of all billing schedules that each item of final concerns. A period is wanted if it is
//     not complete, or not reconciled with all of its invoices.
//   - reached: the wanted periods and, recursively, all periods of the same schedule that share an invoice with a
//     reached period. The amount billed for a period is known only from all of its invoices together.
//   - wanted: the invoices and ended subscriptions of the reached periods, by schedule, with these periods.
//   - charged: the periods of the lines of wanted invoices that Odometer set as amounts. A line that is created after the
//     end of its period is on the next invoice.
func invoicesWithPeriods(customer string) string {
	return `
	with recursive final as (
	  select i.tenant_id, i.connection_id, i.invoice_id, i.version, i.provider_customer, i.subscription, i.period_start, i.period_end, i.renewal, i.void, i.currency,
	    i.finalized_at, i.sequence, false as ended, i.customer_id
	  from (
	    select *
	    from billing_invoices i
	    where i.tenant_id = @tenant
	      and i.customer_id = ` + customer + `
	      and i.finalized_at is not null
	      and i.subscription <> ''
	    offset 0) i
	  join billing_connections k on k.tenant_id = i.tenant_id and k.id = i.connection_id and ` + inPresentMode + `
	  union all
	  select i.tenant_id, i.connection_id, i.subscription, 0, i.provider_customer, i.subscription, i.period_start, i.period_end, true, false, '',
	    i.read_at, i.sequence, true, i.customer_id
	  from billing_ended_subscriptions i
	  join billing_connections k on k.tenant_id = i.tenant_id and k.id = i.connection_id and ` + inPresentMode + `
	  where i.tenant_id = @tenant
	    and i.customer_id = ` + customer + `),
	touched as (
	  select i.connection_id, i.invoice_id, i.ended, p.id as period_id, p.stream,
	    not p.complete or max(i.sequence) over (partition by p.id) > p.reconciled_through as wanted
	  from final i
	  join billing_periods p on p.tenant_id = @tenant and p.customer_id = ` + customer + ` and (
	    not i.ended and ` + aboutPeriod("p", "p.id") + ` or i.ended and ` + endedInPeriod + `)),
	reached as (
	  select period_id
	  from touched
	  where wanted
	  union
	  select o.period_id
	  from reached r
	  join touched t on t.period_id = r.period_id
	  join touched o on o.connection_id = t.connection_id and o.invoice_id = t.invoice_id and o.ended = t.ended and o.stream = t.stream),
	wanted as (
	  select t.connection_id, t.invoice_id, t.ended, t.stream, array_agg(t.period_id) as periods
	  from touched t
	  join reached r on r.period_id = t.period_id
	  group by 1, 2, 3, 4),
	charged as (
	  select i.connection_id, i.invoice_id, s.period_id
	  from final i
	  join wanted using (connection_id, invoice_id, ended)
	  join billing_invoice_lines l on l.tenant_id = i.tenant_id and l.connection_id = i.connection_id and l.invoice_id = i.invoice_id and l.version = i.version
	  join billing_reports r on r.tenant_id = l.tenant_id and r.id = l.report_id and r.customer_id = ` + customer + `
	  join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id and not s.late)`
}

// periodsOfInvoices returns the SQL of the IDs of the billing periods that a customer's wanted invoices concern or charge.
// These include periods of the customer's other schedules, because an invoice may bill usage of several schedules.
func periodsOfInvoices(customer string) string {
	return invoicesWithPeriods(customer) + `
	select t.period_id
	from touched t
	join wanted using (connection_id, invoice_id, ended)
	union
	select period_id
	from charged`
}

var selectInvoiceLines = invoicesWithPeriods("@customer") + `
	select i.sequence, i.invoice_id, i.connection_id, i.provider_customer, i.subscription, i.period_start, i.period_end, i.renewal, i.ended, i.void, i.currency,
	  wanted.periods || array(select c.period_id from charged c where c.connection_id = i.connection_id and c.invoice_id = i.invoice_id and not i.ended),
	  coalesce(l.meter_id, 0), coalesce(l.quantity, 0), coalesce(l.amount, 0), coalesce(l.price, ''), coalesce(l.lines, 0)
	from final i
	join wanted using (connection_id, invoice_id, ended)
	left join lateral (
	  select l.meter_id, sum(l.quantity) as quantity, sum(l.amount) as amount,
	    case when min(l.price) = max(l.price) then min(l.price) end as price, count(*) as lines
	  from billing_invoice_lines l
	  where l.tenant_id = i.tenant_id
	    and l.connection_id = i.connection_id
	    and l.invoice_id = i.invoice_id
	    and l.version = i.version
	    and l.meter_id is not null
	    and not l.proration
	  group by 1) l on true
	where wanted.stream = @stream
	order by i.finalized_at, i.connection_id, i.invoice_id, l.meter_id`

// invoiceLine is the part of an invoice that bills one meter. MeterID is 0 if the invoice bills no meter.
type invoiceLine struct {
	sequence int64
	invoice  billing.Invoice
	periods  []metering.PeriodID // that the invoice concerns or charges
	billing.InvoiceLine
}

func scanInvoiceLine(row pgx.CollectableRow) (l invoiceLine, err error) {
	in := &l.invoice
	err = row.Scan(&l.sequence, &in.ID, &in.Connection, &in.Customer, &in.Subscription, &in.Period.Start, &in.Period.End, &in.Renewal, &in.Ended, &in.Void, &l.Currency,
		&l.periods, &l.MeterID, &l.Quantity, &l.Amount, &l.Price, &l.Lines)
	return l, err
}

func (r *factReader) addInvoiceLine(l invoiceLine) {
	r.lastInvoiced = max(r.lastInvoiced, l.sequence)
	all := &r.facts.Invoices
	if n := len(*all); n == 0 || (*all)[n-1].ID != l.invoice.ID || (*all)[n-1].Connection != l.invoice.Connection {
		*all = append(*all, l.invoice)
		r.invoiced = append(r.invoiced, l.periods...)
	}
	if last := &(*all)[len(*all)-1]; l.MeterID != 0 {
		last.Lines = append(last.Lines, l.InvoiceLine)
	}
}

// markOmitted marks the periods of which some invoices or reports are not read: those that no invoice among the facts
// concerns, if they are complete or the current connection gets statements (see reportedOf).
func (r *factReader) markOmitted() {
	f := &r.facts
	statements := f.Connection != nil && f.Connection.Statements
	for n := range f.Stored {
		p := &f.Stored[n]
		p.Omitted = (p.Complete || statements) && !slices.Contains(r.invoiced, p.ID)
	}
}

// reconcile stores the plan's reconciliations of closed periods, and marks these periods as reconciled
// with all invoices that are known now. The caller has queued the closings of the plan. reconcile sends
// the queued statements, and then publishes each disputed reconciliation, which an operator has to resolve.
func (w *planWriter) reconcile(plan billing.ReportPlan) error {
	for _, n := range plan.Reconciled {
		w.batch.Queue(`
			insert into billing_reconciliations (tenant_id, customer_id, period_id, meter_id, units, reported, invoiced, unexplained, elsewhere, billed, state, reason, recorded_at)
			select @tenant, @customer, p.id, @meter, @units, @reported, @invoiced, @unexplained, @elsewhere, @billed, @state, @reason, @now
			from billing_periods p
			where p.tenant_id = @tenant
			  and p.customer_id = @customer
			  and p.stream = @stream
			  and p.starts_at = @period`, pgx.NamedArgs{
			"tenant": w.tenant, "customer": w.customer, "stream": w.facts.Stream, "period": n.Period, "meter": n.MeterID, "units": n.Units, "reported": n.Reported,
			"invoiced": n.Invoiced, "unexplained": n.Unexplained, "elsewhere": n.Elsewhere, "billed": n.Billed, "state": n.State, "reason": n.Reason, "now": w.facts.Now,
		})
	}
	w.markUnreconciled(plan)
	done := w.reconciledPeriods(plan)
	if len(done) > 0 && len(w.facts.Invoices) > 0 {
		w.batch.Queue(`
			update billing_periods
			set reconciled_through = $4
			where tenant_id = $1
			  and customer_id = $2
			  and stream = $5
			  and starts_at = any($3)
			  and reconciled_through < $4`, w.tenant, w.customer, done, w.lastInvoiced, w.facts.Stream)
	}
	if err := w.flush(); err != nil {
		return err
	}
	for _, n := range plan.Reconciled {
		if err := w.alarm(n); err != nil {
			return err
		}
	}
	return nil
}

// markUnreconciled marks the totals that wait for invoices: those of the periods that the plan closes, and
// those that it reports as standalone invoices. It unmarks the totals that the plan has reconciled.
func (w *planWriter) markUnreconciled(plan billing.ReportPlan) {
	var closed []time.Time
	for _, c := range plan.Closings {
		closed = append(closed, c.Period.Start)
	}
	const ofMeter = `t.meter_key = $6 and t.component = 'usage'`
	const totals = `
			update billing_period_totals t
			set unreconciled = $4
			from billing_periods p
			where p.tenant_id = $1
			  and p.customer_id = $2
			  and p.stream = $5
			  and p.starts_at = any($3)
			  and t.tenant_id = p.tenant_id
			  and t.period_id = p.id
			  and `
	if len(closed) > 0 {
		w.batch.Queue(totals+reconcilable, w.tenant, w.customer, closed, true, w.facts.Stream)
	}
	for _, r := range plan.Reports {
		if r.Target == billing.OwnInvoiceOf(w.facts.Stream) && !r.Late { // reports usage of a closed period
			w.batch.Queue(totals+ofMeter, w.tenant, w.customer, []time.Time{r.Period}, true, w.facts.Stream, r.Lines[0].MeterID)
		}
	}
	for _, n := range plan.Reconciled {
		w.batch.Queue(totals+ofMeter, w.tenant, w.customer, []time.Time{n.Period}, false, w.facts.Stream, n.MeterID)
	}
}

// reconciledPeriods returns the starts of the closed periods that the plan has compared with their invoices. It
// excludes periods for which the final invoices show only part of the billed amount (PartlyKnown).
func (w *planWriter) reconciledPeriods(plan billing.ReportPlan) (starts []time.Time) {
	for _, n := range plan.Reconciled {
		starts = append(starts, n.Period)
	}
	for _, p := range w.facts.Stored {
		billed := func(in billing.Invoice) bool { return p.Start.Before(in.Period.End) && p.End.After(in.Period.Start) }
		if p.ClosedAt != nil && slices.ContainsFunc(w.facts.Invoices, billed) {
			starts = append(starts, p.Start)
		}
	}
	return slices.DeleteFunc(starts, func(start time.Time) bool { return slices.ContainsFunc(plan.PartlyKnown, start.Equal) })
}
