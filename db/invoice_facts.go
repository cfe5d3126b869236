package db

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
)

// What is said of an invoice i, whose connection is k, and a period p, as SQL.
const (
	inPresentMode = `(k.livemode is false) = exists (
	    select
	    from billing_connections present
	    where present.tenant_id = k.tenant_id
	      and present.retired_at is null
	      and present.livemode is false)`

	// lastOfPeriod says that the invoice is final, and the last one of the
	// subscription's period that p lies in.
	lastOfPeriod = `i.tenant_id = p.tenant_id
	  and i.customer_id = p.customer_id
	  and i.subscription = p.subscription
	  and i.renewal
	  and i.finalized_at is not null
	  and p.subscription_start < i.period_end
	  and p.starts_at < i.period_end
	  and p.ends_at > i.period_start`

	// finalInvoices are those that have billed a period p for good, in the mode of
	// the tenant's present connection.
	finalInvoices = `
	from billing_invoices i
	join billing_connections k on k.tenant_id = i.tenant_id and k.id = i.connection_id
	where ` + lastOfPeriod + `
	  and ` + inPresentMode
)

// aboutPeriod says that an invoice i of a subscription's is about a period p, or
// one of that alias and id: it is of the subscription that the period lies in, or bills
// usage of our meters at that time, which have fed the period's stream up to the
// invoice's end, or usage of the period was reported to it, or landed there. Another subscription's
// says nothing about it.
// As SQL.
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
	      and ` + streamAt("i.tenant_id", "i.customer_id", "l.meter_id", "i.period_end - interval '1 microsecond'") + ` = ` + p + `.stream))`
}

// endedInPeriod says that a subscription i that has ended, none of whose invoices
// follows, was reported usage of a period p, or ran at the time with which usage of
// it went out, as SQL. By now p may lie in another one, to which a part of it was
// reported.
var endedInPeriod = `p.starts_at < i.period_end
	  and p.ends_at > i.period_start
	  and (i.subscription = p.subscription or ` + reported("p.id", `(r.subscription = i.subscription or r.provider_time >= i.period_start and r.provider_time < i.period_end)`) + `)`

// reportedTo says that usage of the period of an id was reported to the subscription
// of an invoice i, or went out with a time in the invoice's period to where that
// bills it, as SQL.
func reportedTo(period string) string {
	return reported(period, `(r.subscription = i.subscription or r.provider_time >= i.period_start and r.provider_time < i.period_end and exists (
	        select
	        from billing_subscriptions b
	        where b.tenant_id = i.tenant_id
	          and b.customer_id = i.customer_id
	          and b.connection_id = i.connection_id
	          and b.subscription = i.subscription
	          and s.target = any(b.targets)))`)
}

// reported says that a report r for which something holds has usage of the period of
// an id, and went to the customer of a subscription i, as SQL.
func reported(period, holds string) string {
	return `exists (
	    select
	    from billing_series s
	    join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
	    join billing_reports r on r.tenant_id = s.tenant_id and r.series_id = s.id
	    where s.tenant_id = i.tenant_id
	      and s.period_id = ` + period + `
	      and s.kind = 'quantity'
	      and ` + holds + `
	      and d.connection_id = i.connection_id
	      and d.provider_customer = i.provider_customer)`
}

// invoicesWithPeriods are the final invoices of a customer's subscriptions, in
// the mode of the present connection, that bill usage of a period which is not
// complete, or not reconciled with all of its invoices; those subscriptions that
// have ended and make none any more; those periods of the customer's that they
// touch; and all invoices of these in turn, since only all of a period's say what
// is billed of it. As SQL that is to be completed.
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
	  select i.connection_id, i.invoice_id, i.ended, p.id as period_id,
	    not p.complete or max(i.sequence) over (partition by p.id) > p.reconciled_through as wanted
	  from final i
	  join billing_periods p on p.tenant_id = @tenant and p.customer_id = ` + customer + ` and p.stream = @stream and (
	    not i.ended and ` + aboutPeriod("p", "p.id") + ` or i.ended and ` + endedInPeriod + `)),
	reached as (
	  select period_id
	  from touched
	  where wanted
	  union
	  select o.period_id
	  from reached r
	  join touched t on t.period_id = r.period_id
	  join touched o on o.connection_id = t.connection_id and o.invoice_id = t.invoice_id and o.ended = t.ended),
	wanted as (
	  select distinct t.connection_id, t.invoice_id, t.ended
	  from touched t
	  join reached r on r.period_id = t.period_id)`
}

// periodsOfInvoices are the periods of a customer that the invoices of its facts
// touch, and those of which they have lines that were set as amounts, as SQL: one
// that was made once the period was over is on the next invoice.
func periodsOfInvoices(customer string) string {
	return invoicesWithPeriods(customer) + `
	select t.period_id
	from touched t
	join wanted using (connection_id, invoice_id, ended)
	union
	select s.period_id
	from final i
	join wanted using (connection_id, invoice_id, ended)
	join billing_invoice_lines l on l.tenant_id = i.tenant_id and l.connection_id = i.connection_id and l.invoice_id = i.invoice_id and l.version = i.version
	join billing_reports r on r.tenant_id = l.tenant_id and r.id = l.report_id and r.customer_id = ` + customer + `
	join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id and not s.late`
}

var selectInvoiceLines = invoicesWithPeriods("@customer") + `
	select i.sequence, i.invoice_id, i.connection_id, i.provider_customer, i.subscription, i.period_start, i.period_end, i.renewal, i.ended, i.void, i.currency,
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
	order by i.finalized_at, i.connection_id, i.invoice_id, l.meter_id`

// invoiceLine is what an invoice bills of one meter; of none, where that is 0.
type invoiceLine struct {
	sequence int64
	invoice  billing.Invoice
	billing.InvoiceLine
}

func scanInvoiceLine(row pgx.CollectableRow) (l invoiceLine, err error) {
	in := &l.invoice
	err = row.Scan(&l.sequence, &in.ID, &in.Connection, &in.Customer, &in.Subscription, &in.Period.Start, &in.Period.End, &in.Renewal, &in.Ended, &in.Void, &l.Currency,
		&l.MeterID, &l.Quantity, &l.Amount, &l.Price, &l.Lines)
	return l, err
}

func (r *factReader) addInvoiceLine(l invoiceLine) {
	r.lastInvoiced = max(r.lastInvoiced, l.sequence)
	all := &r.facts.Invoices
	if n := len(*all); n == 0 || (*all)[n-1].ID != l.invoice.ID || (*all)[n-1].Connection != l.invoice.Connection {
		*all = append(*all, l.invoice)
	}
	if last := &(*all)[len(*all)-1]; l.MeterID != 0 {
		last.Lines = append(last.Lines, l.InvoiceLine)
	}
}

// reconcile writes down what was found out about closed periods, and that all
// invoices that are known by now were looked at. The periods that the plan closes
// are closed before. It sends all that the plan has had written down, and raises
// an alarm where somebody has to look.
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
	w.unreconciled(plan)
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

// unreconciled notes which totals wait for invoices: those of the periods that the
// plan closes, and those that go onto invoices of ours, but for what it has compared
// with them.
func (w *planWriter) unreconciled(plan billing.ReportPlan) {
	var closed []time.Time
	for _, c := range plan.Closings {
		closed = append(closed, c.Period.Start)
	}
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
		if r.Target == billing.OwnInvoice && !r.Late { // of a closed period
			w.batch.Queue(totals+`t.meter_id = $6`, w.tenant, w.customer, []time.Time{r.Period}, true, w.facts.Stream, r.Lines[0].MeterID)
		}
	}
	for _, n := range plan.Reconciled {
		w.batch.Queue(totals+`t.meter_id = $6`, w.tenant, w.customer, []time.Time{n.Period}, false, w.facts.Stream, n.MeterID)
	}
}

// reconciledPeriods are the starts of those that have been compared with the invoices,
// and of which these show all.
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
