package db

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// BackfillStuckAfter is the time without progress after which a backfill needs attention.
const BackfillStuckAfter = time.Hour

// Attention lists the items of a tenant's billing that an operator must act on, or that have made no
// progress for a while.
type Attention struct{ pool *pg.Pool }

// AttentionKind is the kind of an AttentionItem.
type AttentionKind string

const (
	// FailedSync is the kind of a customer's last sync that has failed.
	FailedSync AttentionKind = "sync_failed"

	disputedReconciliation = AttentionKind(outbox.DisputedReconciliation)
	usageDiscrepancy       = AttentionKind(outbox.UsageDiscrepancy)
)

// Values returns all kinds, the most urgent one first.
func (AttentionKind) Values() (kinds []AttentionKind) {
	for _, source := range attentionSources {
		kinds = append(kinds, source.kind)
	}
	return kinds
}

// Action returns the instruction to an operator about items of the kind.
func (k AttentionKind) Action() string {
	for _, source := range attentionSources {
		if source.kind == k {
			return source.action
		}
	}
	return ""
}

// attentionSource is a kind and the SQL of its items.
type attentionSource struct {
	kind   AttentionKind
	action string
	// items selects id, reference, customer_id, cause, since, until and url. customer_id is 0 if an item
	// concerns no customer.
	items string
	// amounts selects amount and currency of an item i; "": the kind concerns no money.
	amounts string
}

// attentionSources lists all kinds that need attention, the most urgent first. The query of each source reads
// an index that contains few rows besides its items.
var attentionSources = []attentionSource{
	{
		kind:   "hold_disagrees",
		action: "Compare the invoice with the reported usage, and release the invoice before its deadline.",
		items: `
		  select 'hld_' || h.id, h.invoice_id, h.customer_id, coalesce(replace(h.reasons -> 0 ->> 'code', '_', ' '), 'the invoice differs from the reported usage'),
		    coalesce(h.looked_at, h.recorded_at), h.deadline, '/v1/billing/holds/hld_' || h.id
		  from billing_holds h
		  where h.tenant_id = @tenant
		    and h.state = 'disagrees'
		    and h.ended_at is null`,
		amounts: `
		  select v.total, v.currency
		  from billing_holds h
		  join billing_invoices v on v.tenant_id = h.tenant_id and v.connection_id = h.connection_id and v.invoice_id = h.invoice_id
		  where h.tenant_id = @tenant
		    and h.id = substr(i.id, 5)::bigint`,
	},
	{
		kind:   FailedSync,
		action: "Fix the cause, then sync the customer again. If a report is in state in_doubt, you can also resolve it with POST /v1/billing/reports/{id}/resolve.",
		items: `
		  select s.id::text, '', s.customer_id, s.error, s.failing_since, null::timestamptz, '/v1/billing/syncs/' || s.id
		  from billing_syncs s
		  where s.tenant_id = @tenant
		    and s.failing_since is not null`,
		amounts: `
		  select sum(case when l.late then l.amount else l.charge end), l.currency
		  from billing_sync_reports x
		  join billing_reports r on r.tenant_id = x.tenant_id and r.id = x.report_id and r.state not in ('accepted', 'counted')
		  join billing_report_lines l on l.tenant_id = r.tenant_id and l.report_id = r.id and l.currency <> ''
		  where x.tenant_id = @tenant
		    and x.sync_id = i.id::uuid
		  group by l.currency`,
	},
	{
		kind:   disputedReconciliation,
		action: "Compare the invoices with the closed period, and decide on the difference.",
		items: `
		  select 'per_' || r.period_id || '/mtr_' || r.meter_id, m.slug, r.customer_id, coalesce(@reconciliation_reasons::jsonb ->> r.reason, r.reason), r.recorded_at, null::timestamptz,
		    '/v1/billing/reconciliation?state=disputed&period=per_' || r.period_id
		  from billing_reconciliations r
		  left join meters m on m.tenant_id = r.tenant_id and m.id = r.meter_id and r.component = 'usage'
		  where r.tenant_id = @tenant
		    and r.state = 'disputed'
		    and ` + ledger.StandsLast,
		amounts: `
		  select t.charge, t.currency
		  from billing_period_totals t
		  where t.tenant_id = @tenant
		    and t.period_id = substr(split_part(i.id, '/', 1), 5)::bigint
		    and t.meter_key = substr(split_part(i.id, '/', 2), 5)::bigint
		    and t.component = 'usage'`,
	},
	{
		kind:   usageDiscrepancy,
		action: "Inform the operator of the service that totals and events differ.",
		items: `
		  select d.day || '/' || case d.customer_id when 0 then 'all' else 'cus_' || d.customer_id end || '/mtr_' || d.meter_id, m.slug, d.customer_id,
		    'totals differ from the events', d.found_at, null::timestamptz, '/v1/billing/discrepancies'
		  from usage_discrepancies d
		  join meters m on m.tenant_id = d.tenant_id and m.id = d.meter_id
		  where d.tenant_id = @tenant`,
	},
	{
		kind:   "unrated_usage",
		action: "Find the usage with GET /v1/billing/unrated, and follow the next step of each line.",
		items: `
		  select id, customers, 0, cause, since, null::timestamptz, '/v1/billing/unrated'
		  from unnest(@unrated::text[], @unrated_customers::text[], @unrated_causes::text[], @unrated_since::timestamptz[]) u (id, customers, cause, since)`,
		amounts: `
		  select u.amount, u.currency
		  from unnest(@unrated::text[], @unrated_amounts::text[]::numeric[], @unrated_currencies::text[]) u (id, amount, currency)
		  where u.id = i.id
		    and u.currency <> ''`,
	},
	{
		kind:   "event_conflict",
		action: "Send the events that should count again with new idempotency keys, then dismiss the conflicts.",
		items: `
		  select 'cus_' || c.customer_id, count(*) || case count(*) when 1 then ' event' else ' events' end, c.customer_id,
		    'an idempotency_key was reused with other content', min(c.received_at), null::timestamptz, '/v1/events/conflicts'
		  from event_conflicts c
		  where c.tenant_id = @tenant
		  group by c.customer_id`,
	},
	{
		kind:   "webhook_disabled",
		action: "Repair the receiver, then enable the webhook. Messages from the time while it was disabled are not sent.",
		items: `
		  select 'whk_' || w.id, w.url, 0, case w.disabled_because when 'gone' then 'the receiver answered 410' else 'no delivery succeeded for days' end,
		    w.disabled_at, null::timestamptz, '/v1/webhooks/whk_' || w.id
		  from webhook_endpoints w
		  where w.tenant_id = @tenant
		    and w.disabled_because in ('gone', 'failing')`,
	},
	{
		kind:   "webhook_failing",
		action: "Repair the receiver before the webhook is disabled. Failed deliveries are retried automatically.",
		items: `
		  select 'whk_' || w.id, w.url, 0, 'deliveries fail', w.failing_since, null::timestamptz, '/v1/webhooks/whk_' || w.id
		  from webhook_endpoints w
		  where w.tenant_id = @tenant
		    and w.disabled_at is null
		    and w.failing_since is not null`,
	},
	{
		kind:   "sync_delayed",
		action: "If the customer is paused, resume it. Otherwise check whether the provider and the workers respond.",
		items: `
		  select s.id::text, '', s.customer_id, s.cause, s.requested_at, null::timestamptz, '/v1/billing/syncs/' || s.id
		  from (` + ledger.DelayedSyncs("s.tenant_id = @tenant") + `) s`,
	},
	{
		kind: "backfill_stuck",
		action: "If the backfill is paused, give the workers more memory and resume it, archive the meter, or change how it counts. " +
			"Otherwise check whether the workers run and the database responds. The meter's usage cannot be read until its past events are counted.",
		items: `
		  select 'mtr_' || m.id, m.slug, 0,
		    case when g.paused then 'paused: workers were killed while they counted its past events' else 'none of its past events was counted for an hour' end,
		    g.since, null::timestamptz, '/v1/meters/' || m.slug
		  from meters m
		  join lateral (
		    select greatest(g.created_at, max(h.counted_at)) as since, g.interruptions >= @interruptions as paused
		    from meter_versions g
		    left join backfill_hours h on h.tenant_id = g.tenant_id and h.meter_version_id = g.id
		    where g.tenant_id = m.tenant_id
		      and g.meter_id = m.id
		      and g.status = 'backfilling'
		    group by g.id, g.created_at, g.interruptions) g on true
		  where m.tenant_id = @tenant
		    and m.archived_at is null
		    and (g.since < @stuck or g.paused)`,
	},
	{
		kind:   "alert_triggered",
		action: "Decide whether the usage is expected, and act on it or change the alert. The item disappears when the period ends or, for silence, with the customer's next event.",
		items: `
		  select 'alt_' || f.alert_id || '/fir_' || f.id,
		    concat_ws(' ', trim_scale(f.threshold), case f.type when 'quota' then '%' when 'silence' then 'minutes' when 'spend' then f.currency else nullif(m.unit, '') end),
		    f.customer_id, f.name, f.fired_at, null::timestamptz, '/v1/alerts/alt_' || f.alert_id || '/firings'
		  from (
		    select distinct on (f.alert_id, f.customer_id, f.quota_id, f.stream) f.*, a.type, a.name, a.currency, a.meter_id
		    from alert_firings f
		    join alerts a on a.tenant_id = f.tenant_id and a.id = f.alert_id and a.enabled and (a.type = 'silence' or f.threshold = any(a.thresholds))
		    where f.tenant_id = @tenant
		      and f.period_end > @watched
		    order by f.alert_id, f.customer_id, f.quota_id, f.stream, f.period_start desc, f.threshold desc) f
		  left join meters m on m.tenant_id = @tenant and m.id = f.meter_id
		  where case f.type
		    when 'silence' then not exists (
		      select
		      from events e
		      where e.tenant_id = @tenant
		        and e.customer_id = f.customer_id
		        and e.ts > f.period_start)
		    when 'quota' then f.period_end > @now and exists (
		      select
		      from quotas q
		      where q.tenant_id = @tenant
		        and q.id = f.quota_id)
		    else f.period_end > @now end`,
		amounts: `
		  select f.value, a.currency
		  from alert_firings f
		  join alerts a on a.tenant_id = f.tenant_id and a.id = f.alert_id and a.type = 'spend'
		  where f.tenant_id = @tenant
		    and f.id = substr(split_part(i.id, '/', 2), 5)::bigint`,
	},
}

// AttentionFilter selects items. Zero fields match every item.
type AttentionFilter struct {
	Kind  AttentionKind
	Cause string
	After *AttentionKey // the last item of the previous page
}

// AttentionKey is the position of the last item of a page.
type AttentionKey struct {
	Rank  int       `json:"rank"`
	Group string    `json:"group"` // digest of the cause
	Since time.Time `json:"since"`
	ID    string    `json:"id"`
}

// AttentionItem is one item of the list that Attention returns.
type AttentionItem struct {
	Kind         AttentionKind
	ID           string // in the format of the API
	Reference    string // an invoice, a meter's slug, a webhook's URL or a threshold; "" if the customer identifies the item
	CustomerID   metering.CustomerID
	ExternalID   string
	CustomerName string
	Cause        string
	Since        time.Time
	Until        *time.Time // the deadline for acting; nil: there is none
	URL          string     // of this API
	Amounts      []Amount
	Syncing      bool // a sync of the customer is open
	key          AttentionKey
}

// Amount is an amount of money in a currency.
type Amount struct {
	Amount   metering.Decimal
	Currency string
}

// Key returns the key that identifies the item within the tenant.
func (i AttentionItem) Key() AttentionKey { return i.key }

// AttentionCause is the number of items of a kind with the same cause.
type AttentionCause struct {
	Kind  AttentionKind
	Cause string
	Items int64
	Since time.Time // of the oldest item
}

// AttentionList is a page of items, with the number of all items.
type AttentionList struct {
	pg.Page[AttentionItem]

	Counts map[AttentionKind]int64 // number of items of each kind
	Causes []AttentionCause        // the most frequent causes of each kind
}

// causesShown bounds the causes of a kind in AttentionList.
const causesShown = 20

// List returns up to limit items, grouped by kind and cause, oldest first. It counts all items in the same
// snapshot. unrated holds the totals of the tenant's unrated usage, which the caller has read.
func (s Attention) List(ctx context.Context, tenant metering.TenantID, f AttentionFilter, unrated []ledger.UnratedTotal, now time.Time, limit int) (l AttentionList, err error) {
	err = pg.AtOneInstant(ctx, s.pool, func(tx pgx.Tx) error {
		args := attentionArgs(tenant, unrated, now)
		if err := l.count(ctx, tx, args); err != nil {
			return err
		}
		l.Page, err = attentionPage(ctx, tx, args, f, limit)
		return err
	})
	if err != nil {
		return AttentionList{}, fmt.Errorf("list attention items: %w", err)
	}
	return l, nil
}

func attentionArgs(tenant metering.TenantID, unrated []ledger.UnratedTotal, now time.Time) pgx.NamedArgs {
	var (
		ids, customers, causes, amounts, currencies []string
		since                                       []time.Time
	)
	for _, u := range unrated {
		id, who := string(u.Reason), fmt.Sprintf("%d customers", u.Customers)
		if u.Currency != "" {
			id += "/" + u.Currency
		}
		switch u.Customers {
		case 0:
			who = ""
		case 1:
			who = "1 customer"
		}
		ids, customers, causes, since = append(ids, id), append(customers, who), append(causes, u.Reason.Text().Message), append(since, u.Since)
		amounts, currencies = append(amounts, u.Estimate.String()), append(currencies, u.Currency)
	}
	reconciliations := make(map[billing.ReconciliationReason]string)
	for _, reason := range billing.ReconciliationReason("").Values() {
		reconciliations[reason] = reason.Text().Message
	}
	return pgx.NamedArgs{
		"tenant": tenant, "now": now, "reconciliation_reasons": reconciliations, "watched": now.Add(-metering.WatchedAfterEvent), "delayed": now.Add(-ledger.SyncDelayedAfter), "stuck": now.Add(-BackfillStuckAfter), "interruptions": usage.InterruptionsAtMost,
		"unrated": ids, "unrated_customers": customers, "unrated_causes": causes, "unrated_since": since, "unrated_amounts": amounts, "unrated_currencies": currencies,
	}
}

// attentionItems returns the SQL that selects the items of a kind, or of all kinds if kind is empty.
func attentionItems(kind AttentionKind) string {
	var all []string
	for rank, source := range attentionSources {
		if kind == "" || kind == source.kind {
			all = append(all, fmt.Sprintf(`select %d as rank, '%s' as kind, * from (%s) x (id, reference, customer_id, cause, since, until, url)`, rank, source.kind, source.items))
		}
	}
	return strings.Join(all, `
	union all
	`)
}

// count sets l.Counts and l.Causes.
func (l *AttentionList) count(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) error {
	args["causes"] = causesShown
	rows, err := tx.Query(ctx, `
		select kind, cause, n, since, total
		from (
		  select rank, kind, cause, count(*) as n, min(since) as since,
		    (sum(count(*)) over (partition by rank))::bigint as total,
		    row_number() over (partition by rank order by count(*) desc, cause) as place
		  from (`+attentionItems("")+`) i
		  group by rank, kind, cause) c
		where place <= @causes
		order by rank, place`, args)
	if err != nil {
		return err
	}
	l.Counts = map[AttentionKind]int64{}
	for _, kind := range AttentionKind("").Values() {
		l.Counts[kind] = 0
	}
	var (
		c     AttentionCause
		total int64
	)
	_, err = pgx.ForEachRow(rows, []any{&c.Kind, &c.Cause, &c.Items, &c.Since, &total}, func() error {
		l.Counts[c.Kind] = total
		l.Causes = append(l.Causes, c)
		return nil
	})
	return err
}

func attentionPage(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs, f AttentionFilter, limit int) (page pg.Page[AttentionItem], err error) {
	var after AttentionKey
	if f.After != nil {
		after = *f.After
	}
	var amounts []string
	for rank, source := range attentionSources {
		if source.amounts != "" {
			amounts = append(amounts, fmt.Sprintf(`select a.amount, a.currency from (%s) a (amount, currency) where i.rank = %d`, strings.ReplaceAll(source.amounts, "i.id", fmt.Sprintf("(case i.rank when %d then i.id end)", rank)), rank))
		}
	}
	args["first"], args["limit"], args["cause"] = f.After == nil, limit+1, f.Cause
	args["rank"], args["group"], args["since"], args["id"] = after.Rank, after.Group, after.Since, after.ID
	rows, err := tx.Query(ctx, `
		with i as materialized (
		  select *
		  from (
		    select *, md5(cause) as digest
		    from (`+attentionItems(f.Kind)+`) all_items) i
		  where (@first or (rank, digest, since, id) > (@rank, @group, @since, @id))
		    and (@cause = '' or cause = @cause)
		  order by rank, digest, since, id
		  limit @limit)
		select i.kind, i.id, i.reference, i.customer_id, coalesce(c.external_id, ''), coalesce(c.name, ''), i.cause, i.since, i.until, i.url, i.rank, i.digest,
		  a.amounts, a.currencies, exists (
		    select
		    from billing_syncs s
		    where s.tenant_id = @tenant
		      and s.customer_id = i.customer_id
		      and s.status in ('requested', 'running'))
		from i
		left join customers c on c.tenant_id = @tenant and c.id = i.customer_id
		left join lateral (
		  select coalesce(array_agg(amount order by currency), '{}') as amounts, coalesce(array_agg(currency order by currency), '{}') as currencies
		  from (`+strings.Join(amounts, `
		  union all
		  `)+`) a) a on true
		order by i.rank, i.digest, i.since, i.id`, args)
	if err != nil {
		return page, err
	}
	return pg.ReadPage(ctx, rows, limit, func(row pgx.CollectableRow) (i AttentionItem, err error) {
		var (
			amounts    []metering.Decimal
			currencies []string
		)
		err = row.Scan(&i.Kind, &i.ID, &i.Reference, &i.CustomerID, &i.ExternalID, &i.CustomerName, &i.Cause, &i.Since, &i.Until, &i.URL, &i.key.Rank, &i.key.Group,
			&amounts, &currencies, &i.Syncing)
		i.key.Since, i.key.ID = i.Since, i.ID
		for n, amount := range amounts {
			i.Amounts = append(i.Amounts, Amount{amount, currencies[n]})
		}
		return i, err
	})
}
