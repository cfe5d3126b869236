package ledger

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Reconciliations compares the totals of closed periods with the amounts that the provider's final invoices
// bill for them, by meter.
type Reconciliations struct{ pool *pg.Pool }

// Reconciled is a meter's total of a closed period, with the provider's figures for the same usage.
type Reconciled struct {
	CustomerID   metering.CustomerID
	ExternalID   string
	CustomerName string
	PeriodID     metering.PeriodID
	Period       metering.Range
	MeterSlug    string

	Usage    metering.Decimal // the total with which the period closed
	Charge   metering.Decimal // charge for Usage
	Currency string           // currency of Charge
	Bills    metering.Bills   // whether the period was billed in quantities or amounts; amounts: the reconciliation is in money

	Accepted metering.Decimal // sum over the series of the last report that the provider accepted; in money if Bills is amounts, otherwise in units
	Counted  metering.Decimal // sum over the series of the last report that the provider has counted; in money if Bills is amounts, otherwise in units

	billing.Reconciliation                   // the current state; if it is open, it covers only the invoices so far
	InvoicedAmount         *metering.Decimal // amount on final, non-void invoices; nil if none, or several currencies
	InvoicedCurrency       string            // currency of InvoicedAmount
	Invoices               []ReconciledInvoice

	Actor     metering.Actor // the actor that decided the reconciliation; "" if the rules decided it
	Note      string         // the actor's reason, in the actor's words
	DecidedAt *time.Time     // nil if the reconciliation is open
}

// ReconciledInvoice is an invoice for the billing period.
type ReconciledInvoice struct {
	ID          string                `json:"id"`
	Connection  metering.ConnectionID `json:"connection"`
	Status      string                `json:"status"`
	Void        bool                  `json:"void"`
	Renewal     bool                  `json:"renewal"`
	Quantity    metering.Decimal      `json:"quantity"`
	Amount      metering.Decimal      `json:"amount"`
	Currency    string                `json:"currency"`
	FinalizedAt *time.Time            `json:"finalized_at"`
}

// ReconciliationKey identifies a reconciliation within a tenant.
type ReconciliationKey struct {
	Period metering.PeriodID `json:"period"`
	Meter  metering.MeterID  `json:"meter"`
}

// Key returns the key of the reconciliation.
func (r Reconciled) Key() ReconciliationKey { return ReconciliationKey{r.PeriodID, r.MeterID} }

// ReconciliationFilter selects reconciliations. Zero fields do not restrict.
type ReconciliationFilter struct {
	Customer metering.CustomerID
	Period   metering.PeriodID
	State    billing.ReconciliationState
	Before   ReconciliationKey // the last reconciliation of the previous page
}

// List returns up to limit reconciliations, newest periods first.
func (s Reconciliations) List(ctx context.Context, tenant metering.TenantID, f ReconciliationFilter, limit int) (page pg.Page[Reconciled], err error) {
	if f.Before == (ReconciliationKey{}) {
		f.Before = ReconciliationKey{math.MaxInt64, math.MaxInt64}
	}
	rows, err := s.pool.Query(ctx, selectReconciled(f), pgx.NamedArgs{
		"tenant": tenant, "customer": f.Customer, "period": f.Period, "state": f.State,
		"before_period": f.Before.Period, "before_meter": f.Before.Meter, "limit": limit + 1,
	})
	if err != nil {
		return page, fmt.Errorf("list reconciliations: %w", pg.Coded(err))
	}
	page, err = pg.ReadPage(ctx, rows, limit, scanReconciled)
	if err != nil {
		return page, fmt.Errorf("list reconciliations: %w", pg.Coded(err))
	}
	return page, nil
}

func readReconciled(ctx context.Context, q pg.Querier, sql string, args pgx.NamedArgs) ([]Reconciled, error) {
	rows, err := q.Query(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanReconciled)
}

// sameMode is the SQL condition that connection k has the mode, test or live, in which total t was closed.
const sameMode = `(k.livemode is false) = t.test`

// reportedUnits is the SQL that sums the last accepted and the last counted report of each series of a
// total t. The sums are money if the period was billed in amounts.
const reportedUnits = `
	  select sum(x.accepted) as accepted, sum(x.counted) as counted
	  from billing_series s
	  join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
	  join billing_connections k on k.tenant_id = d.tenant_id and k.id = d.connection_id and ` + sameMode + `
	  cross join lateral (
	    select (array_agg(b.value order by r.number desc))[1] as accepted,
	      (array_agg(b.value order by r.number desc) filter (where r.state = 'counted'))[1] as counted
	    from billing_reports r
	    join billing_report_lines l on l.tenant_id = r.tenant_id and l.report_id = r.id and l.meter_id is not distinct from t.meter_id and l.component = t.component
	    cross join lateral (select case t.bills when 'amounts' then l.amount else l.quantity end as value) b
	    where r.tenant_id = s.tenant_id
	      and r.series_id = s.id
	      and r.period_id = s.period_id
	      and r.state in ('accepted', 'counted')) x
	  where s.tenant_id = @tenant
	    and s.period_id = t.period_id
	    and ` + reportsLine

// isOfLine and reportsLine are SQL conditions of a series s and a total t of the same period: that s has the meter and
// the component of t, and that s reports t itself, not late usage.
const (
	isOfLine    = `s.meter_key = t.meter_key and s.component = t.component`
	reportsLine = isOfLine + ` and (s.kind = 'quantity' or s.kind = 'charge' and not s.late)`
)

// invoicedUnits is the SQL of the invoices of total t, as last read, and of the units that they bill. Only
// final invoices that are not void add to the sums. If the period was billed in amounts, the sum of units is
// the money on the lines that reports of the period created.
var invoicedUnits = `
	  select sum(i.quantity) filter (where i.stands) as quantity, min(i.currency) filter (where i.stands and i.billed) as currency,
	    case count(distinct i.currency) filter (where i.stands and i.billed) when 1 then sum(i.amount) filter (where i.stands) end as amount,
	    jsonb_agg(jsonb_build_object('id', i.invoice_id, 'connection', i.connection_id, 'status', i.status, 'void', i.void, 'renewal', i.renewal,
	      'quantity', i.quantity, 'amount', i.amount, 'currency', i.currency, 'finalized_at', i.finalized_at) order by i.created_at, i.invoice_id) as invoices
	  from (
	    select i.*, i.finalized_at is not null and not i.void as stands, l.lines > 0 as billed,
	      coalesce(l.quantity, 0) as quantity, coalesce(l.amount, 0) as amount
	    from billing_invoices i
	    join billing_connections k on k.tenant_id = i.tenant_id and k.id = i.connection_id and ` + sameMode + `
	    cross join lateral (
	      select sum(case t.bills when 'amounts' then l.amount else l.quantity end) as quantity, sum(l.amount) as amount, count(*) as lines
	      from billing_invoice_lines l
	      where l.tenant_id = i.tenant_id
	        and l.connection_id = i.connection_id
	        and l.invoice_id = i.invoice_id
	        and l.version = i.version
	        and case t.bills when 'amounts' then l.report_id in (
	          select r.id
	          from billing_series s
	          join billing_reports r on r.tenant_id = s.tenant_id and r.series_id = s.id
	          where s.tenant_id = @tenant
	            and s.period_id = t.period_id
	            and ` + isOfLine + `
	            and s.kind = 'charge'
	            and not s.late) else l.meter_id = t.meter_id end
	        and not l.proration) l
	    where i.tenant_id = @tenant
	      and i.customer_id = t.customer_id
	      and ` + aboutPeriod("t", "t.period_id") + `) i`

// selectReconciled returns the SQL of a page of reconciliations. It reads the page from an index of the totals,
// of the customer's periods or, for a stored state, of the reconciliations. The page is empty if no provider
// with invoices bills the tenant.
func selectReconciled(f ReconciliationFilter) string {
	where := []string{`(k.period_id, k.meter_key) < (@before_period, @before_meter)`, `exists (select from billing_connections where tenant_id = @tenant and invoices)`}
	if f.Customer != 0 {
		where = append(where, `p.customer_id = @customer`)
	}
	if f.Period != 0 {
		where = append(where, `k.period_id = @period`)
	}
	switch f.State {
	case "":
		return reconciledOf(`billing_period_totals`, lastReconciliation, append(where, isOrWillBeReconciled)...)
	case billing.ReconciliationOpen:
		return reconciledOf(`billing_period_totals`, lastReconciliation, append(where, `k.unreconciled`, reconcilable)...)
	}
	return reconciledOf(`billing_reconciliations`, `join billing_reconciliations r on r.tenant_id = k.tenant_id and r.id = k.id`, append(where, `k.state = @state`, `k.id = (
	      select max(r.id)
	      from billing_reconciliations r
	      where r.tenant_id = k.tenant_id
	        and r.customer_id = k.customer_id
	        and r.period_id = k.period_id
	        and r.meter_key = k.meter_key
	        and r.component = k.component)`)...)
}

// selectOneReconciled reads the reconciliation of a period and a meter.
var selectOneReconciled = reconciledOf(`billing_period_totals`, lastReconciliation, `k.period_id = @period`, `k.meter_key = @meter`, `k.component = 'usage'`, isOrWillBeReconciled)

// These constants are SQL. lastReconciliation joins the latest reconciliation r of a period p and its total t.
// reconcilable is the condition that a provider with invoices bills total t. isOrWillBeReconciled is the condition
// that the total is or will be reconciled.
const (
	lastReconciliation = `left join lateral (
	    select *
	    from billing_reconciliations r
	    where r.tenant_id = p.tenant_id
	      and r.customer_id = p.customer_id
	      and r.period_id = p.id
	      and r.meter_key = t.meter_key
	      and r.component = t.component
	    order by r.id desc
	    limit 1) r on true`

	reconcilable = `t.billed and exists (
	      select
	      from billing_series s
	      join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
	      join billing_connections k on k.tenant_id = d.tenant_id and k.id = d.connection_id and k.invoices
	      where s.tenant_id = t.tenant_id
	        and s.period_id = t.period_id
	        and ` + reportsLine + `)`

	isOrWillBeReconciled = `(r.id is not null or t.unreconciled and ` + reconcilable + `)`
)

// reconciledOf returns the SQL of the reconciliations that meet all conditions, newest first. keys is the table k from
// which their keys are read, and last is the SQL that joins the reconciliation r. Reading a line without a meter fails.
func reconciledOf(keys, last string, conditions ...string) string {
	return `
	with t as (
	  select k.period_id, k.meter_key, k.component, k.meter_id, p.customer_id, p.stream, p.starts_at, p.ends_at, p.subscription, t.usage, t.charge, t.currency, t.test, coalesce(nullif(p.bills, ''), 'quantities') as bills,
	    coalesce(r.units, 0) as units, coalesce(r.reported, 0) as reported, r.invoiced,
	    coalesce(r.unexplained, 0) as unexplained, coalesce(r.elsewhere, 0) as elsewhere, coalesce(r.billed, 0) as billed,
	    coalesce(r.state, 'open') as state, coalesce(r.reason, '') as reason,
	    coalesce(r.actor, '') as actor, coalesce(r.note, '') as note, r.recorded_at
	  from ` + keys + ` k
	  join billing_periods p on p.tenant_id = k.tenant_id and p.id = k.period_id and p.closed_at is not null
	  join billing_period_totals t on t.tenant_id = k.tenant_id and t.period_id = k.period_id and t.meter_key = k.meter_key and t.component = k.component
	  ` + last + `
	  where k.tenant_id = @tenant
	    and ` + strings.Join(conditions, `
	    and `) + `
	  order by k.period_id desc, k.meter_key desc
	  limit @limit)
	select t.customer_id, c.external_id, c.name, t.period_id, t.starts_at, t.ends_at, t.meter_id, m.slug, t.usage, t.charge, t.currency, t.bills,
	  coalesce(s.accepted, 0), coalesce(s.counted, 0), t.units, t.reported, coalesce(t.invoiced, i.quantity, 0), t.unexplained, t.elsewhere, t.billed, t.state, t.reason,
	  i.amount, case when i.amount is null then '' else i.currency end, coalesce(i.invoices, '[]'), t.actor, t.note, t.recorded_at
	from t
	join customers c on c.tenant_id = @tenant and c.id = t.customer_id
	left join meters m on m.tenant_id = @tenant and m.id = t.meter_id and t.component = 'usage'
	left join lateral (` + reportedUnits + `) s on true
	left join lateral (` + invoicedUnits + `) i on true
	order by t.period_id desc, t.meter_key desc`
}

func scanReconciled(row pgx.CollectableRow) (r Reconciled, err error) {
	err = row.Scan(&r.CustomerID, &r.ExternalID, &r.CustomerName, &r.PeriodID, &r.Period.Start, &r.Period.End, &r.MeterID, &r.MeterSlug, &r.Usage, &r.Charge, &r.Currency, &r.Bills,
		&r.Accepted, &r.Counted, &r.Units, &r.Reported, &r.Invoiced, &r.Unexplained, &r.Elsewhere, &r.Billed, &r.State, &r.Reason,
		&r.InvoicedAmount, &r.InvoicedCurrency, &r.Invoices, &r.Actor, &r.Note, &r.DecidedAt)
	r.Reconciliation.Period = r.Period.Start
	return r, err
}

// alarm publishes a message about a disputed reconciliation, in the transaction that stores it. It publishes
// nothing about a reconciliation in another state. The caller has stored the period.
func (w *planWriter) alarm(r billing.Reconciliation) error {
	if r.State != billing.ReconciliationDisputed {
		return nil
	}
	var (
		period metering.PeriodID
		of     metering.Range
		meter  string
	)
	err := w.tx.QueryRow(w.ctx, `
		select p.id, p.starts_at, p.ends_at, m.slug
		from billing_periods p
		join meters m on m.tenant_id = p.tenant_id and m.id = $4
		where p.tenant_id = $1
		  and p.customer_id = $2
		  and p.stream = $5
		  and p.starts_at = $3`, w.tenant, w.customer, r.Period, r.MeterID, w.facts.Stream).Scan(&period, &of.Start, &of.End, &meter)
	if err != nil {
		return err
	}
	return outbox.Publish(w.ctx, w.tx, w.tenant, w.customer, outbox.ReconciliationDisputed{
		Discrepancy: outbox.DisputedReconciliation,
		Period:      outbox.StoredPeriod{ID: period.String(), MessagePeriod: outbox.PeriodOf(of)}, MeterID: r.MeterID.String(), MeterSlug: meter,
		Units: r.Units, Reported: r.Reported, Invoiced: r.Invoiced, Unexplained: r.Unexplained,
		Reason: r.Reason, Text: r.Reason.Text(),
	}, w.facts.Now)
}

// StandsLast is the SQL condition that no later reconciliation replaces a reconciliation r.
const StandsLast = `not exists (
		        select
		        from billing_reconciliations later
		        where later.tenant_id = r.tenant_id
		          and later.customer_id = r.customer_id
		          and later.period_id = r.period_id
		          and later.meter_key = r.meter_key
		          and later.component = r.component
		          and later.id > r.id)`

// StandingIn returns the SQL that counts the latest reconciliations in a state, over all tenants.
func StandingIn(state string) string {
	return `(
		    select count(*)
		    from billing_reconciliations r
		    where r.state = ` + state + `
		      and ` + StandsLast + `)`
}

// Discrepant returns the states of reconciliations that found a discrepancy.
func Discrepant() []billing.ReconciliationState {
	return slices.DeleteFunc(billing.ReconciliationState("").Values(), func(s billing.ReconciliationState) bool {
		return s == billing.ReconciliationOpen || s == billing.ReconciliationAgreed
	})
}
