package db

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// readFacts reads everything that is known about the customer's billing, in as
// many statements whatever the number of meters, periods and windows. In a
// transaction that sees one state of the database it is what was known at one
// instant. CodeNotFound where there is no such customer.
func readFacts(ctx context.Context, q batcher, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (*factReader, error) {
	r := &factReader{ctx: ctx, q: q, tenant: tenant, customer: customer}
	r.facts.Now = metering.Instant(now)
	if err := r.customerAndSide(); err != nil {
		return nil, err
	}
	if err := r.catalogAndLedger(); err != nil {
		return nil, err
	}
	return r, r.usageOf(billing.UsageRanges(r.facts))
}

// batcher reads several statements in one round trip.
type batcher interface {
	querier
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

type factReader struct {
	ctx      context.Context
	q        batcher
	tenant   metering.TenantID
	customer metering.CustomerID
	facts    billing.Facts
	provider metering.ProviderID // 0: there is none
	kind     metering.ProviderKind
}

// customerAndSide reads whose billing it is, where it is billed, and what the
// customer is there. The earliest event is looked for only where it may still
// bring the first period forward.
func (r *factReader) customerAndSide() error {
	f, side := &r.facts, billing.Side{}
	var (
		zone                string
		statements          bool
		account, atProvider *string
		mapping             map[string]string
		start, end          *time.Time
		products            []metering.ProductID
		since               []time.Time
	)
	f.Customer.ID = r.customer
	err := r.q.QueryRow(r.ctx, `
		select c.external_id, c.created_at, c.billing_starts_at, t.timezone, t.currency, t.grace, t.late_policy,
		  coalesce(r.id, 0), coalesce(r.kind, ''), coalesce(r.statements, false), r.account, r.mapping, l.provider_customer, coalesce(l.subscription, ''), l.period_start, l.period_end, l.items,
		  a.products, a.since,
		  case when not exists (select from billing_periods p where p.tenant_id = c.tenant_id and p.customer_id = c.id)
		      or @now < c.created_at + t.grace + interval '1 day'
		    then (select min(e.ts) from events e where e.tenant_id = c.tenant_id and e.customer_id = c.id) end
		from customers c
		join tenants t on t.id = c.tenant_id
		left join billing_providers r on r.tenant_id = c.tenant_id and r.retired_at is null
		left join billing_links l on l.tenant_id = c.tenant_id and l.customer_id = c.id
		  and l.provider_account = r.account and l.provider_customer = coalesce(c.billing_provider_id, '')
		left join lateral (
		  select array_agg(coalesce(a.product_id, 0) order by a.effective_from, a.id) as products, array_agg(a.effective_from order by a.effective_from, a.id) as since
		  from customer_products a
		  where a.tenant_id = c.tenant_id
		    and a.customer_id = c.id) a on true
		where c.tenant_id = @tenant
		  and c.id = @customer`, pgx.NamedArgs{"tenant": r.tenant, "customer": r.customer, "now": f.Now},
	).Scan(&f.Customer.ExternalID, &f.Customer.CreatedAt, &f.Customer.BillingStartsAt, &zone, &f.Settings.Currency, &f.Settings.Grace, &f.Settings.LatePolicy,
		&r.provider, &r.kind, &statements, &account, &mapping, &atProvider, &side.Subscription, &start, &end, &side.Destinations, &products, &since, &f.Customer.EarliestEvent)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Errorf(metering.CodeNotFound, "there is no such customer")
	}
	if err != nil {
		return err
	}
	f.Settings.Timezone = metering.Location(zone)
	for i := range products {
		f.Customer.Products = append(f.Customer.Products, billing.Assignment{ProductID: products[i], EffectiveFrom: since[i]})
	}
	if account != nil {
		f.Connection = &billing.Connection{Account: *account, Statements: statements, Mapping: mapping}
	}
	if atProvider != nil {
		side.Customer = *atProvider
		if side.Subscription != "" {
			side.Period = metering.Range{Start: *start, End: *end}
		}
		f.Side = &side
	}
	return nil
}

// stateOf is the state of a report that a snapshot or an entry is.
var stateOf = map[string]billing.State{
	"": "", "prepared": billing.Planned, "sent": billing.Sending, "ambiguous": billing.InDoubt, "acknowledged": billing.Accepted,
	"confirmed": billing.Counted, "rejected": billing.Rejected,
}

// catalogAndLedger reads meters and prices, the customer's periods, and what
// providers were reported of them, in one round trip.
func (r *factReader) catalogAndLedger() error {
	f := &r.facts
	args := pgx.NamedArgs{"tenant": r.tenant, "customer": r.customer, "account": ""}
	if f.Connection != nil {
		args["account"] = f.Connection.Account
	}
	f.Prices = make(map[metering.MeterID][]billing.Price)
	var batch pgx.Batch
	read(&batch, selectMeters+`order by m.id`, []any{r.tenant}, scanMeter, func(m metering.Meter) { f.Meters = append(f.Meters, m) })
	read(&batch, selectPrices+`order by meter_id, version`, []any{r.tenant}, scanPrice, func(p billing.Price) {
		f.Prices[p.MeterID] = append(f.Prices[p.MeterID], p)
	})
	read(&batch, selectBillingPeriods, []any{args}, scanBillingPeriod, func(p billing.Period) { f.Stored = append(f.Stored, p) })
	read(&batch, selectClosedLines, []any{args}, scanClosedLine, r.addClosedLine)
	read(&batch, selectLateMonths, []any{args}, scanMonth, func(month metering.Range) { f.LateMonths = append(f.LateMonths, month) })
	read(&batch, selectReported, []any{args}, scanReported, func(s billing.Reported) { f.Reported = append(f.Reported, s) })
	read(&batch, selectSentLines, []any{args}, scanSentLine, r.addSentLine)
	read(&batch, selectOpen, []any{args}, scanOpen, func(o billing.Open) { f.Open = append(f.Open, o) })
	return r.q.SendBatch(r.ctx, &batch).Close()
}

// read queues a statement and gives each of its rows to add.
func read[T any](batch *pgx.Batch, sql string, args []any, scan pgx.RowToFunc[T], add func(T)) {
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		all, err := pgx.CollectRows(rows, scan)
		for _, one := range all {
			add(one)
		}
		return err
	})
}

const selectBillingPeriods = `
	select p.id, p.starts_at, p.ends_at, p.closed_at, p.subscription, p.subscription_start, p.subscription_end,
	  i.finalized_at is not null, i.decimals, coalesce(p.watermark_events, 0), coalesce(p.watermark_configuration, '')
	from billing_periods p
	left join lateral (
	  select i.finalized_at, i.decimals
	  from billing_invoices i
	  where i.tenant_id = p.tenant_id
	    and i.period_id = p.id
	    and i.finalized_at is not null
	  order by i.finalized_at
	  limit 1) i on true
	where p.tenant_id = @tenant
	  and p.customer_id = @customer
	order by p.starts_at`

func scanBillingPeriod(row pgx.CollectableRow) (p billing.Period, err error) {
	var start, end *time.Time
	s := &p.Subscription
	err = row.Scan(&p.ID, &p.Start, &p.End, &p.ClosedAt, &s.ID, &start, &end, &s.Invoiced, &s.Scales, &p.Watermark.Events, &p.Watermark.Configuration)
	if start != nil {
		s.Start, s.End = *start, *end
	}
	return p, err
}

const selectClosedLines = `
	select t.period_id, t.meter_id, t.usage, t.event_count, t.price_version, t.charge, t.currency, t.billed, t.reported, t.reported_scale, t.late_usage, t.late_count
	from billing_period_totals t
	join billing_periods p on p.tenant_id = t.tenant_id and p.id = t.period_id
	where p.tenant_id = @tenant
	  and p.customer_id = @customer`

type closedLine struct {
	period metering.PeriodID
	billing.ClosedLine
}

func scanClosedLine(row pgx.CollectableRow) (l closedLine, err error) {
	return l, row.Scan(&l.period, &l.MeterID, &l.Usage, &l.Events, &l.PriceVersion, &l.Charge, &l.Currency, &l.Billed,
		&l.Reported, &l.ReportedScale, &l.LateUsage, &l.LateEvents)
}

func (r *factReader) addClosedLine(l closedLine) {
	i := slices.IndexFunc(r.facts.Stored, func(p billing.Period) bool { return p.ID == l.period })
	r.facts.Stored[i].Closed = append(r.facts.Stored[i].Closed, l.ClosedLine)
}

// scanMonth reads the start of a month as a range that no month outlasts.
func scanMonth(row pgx.CollectableRow) (r metering.Range, err error) {
	err = row.Scan(&r.Start)
	r.End = r.Start.AddDate(0, 0, 32)
	return r, err
}

// selectReported reads the series of open periods, those of the subscription's
// periods that open ones lie in, and those of late usage.
const selectReported = `
	select r.kind, r.counting, r.provider_account, r.provider_customer, r.item, r.mechanism, p.starts_at, r.window_start, r.window_end, r.late, r.meter_id,
	  last.taken, coalesce(last.value, 0), coalesce(last.added, 0), coalesce(last.quantity, 0), coalesce(last.amount, 0), coalesce(last.currency, ''),
	  last.outstanding, last.standing, last.id, last.number, last.status, last.timestamp, coalesce(last.taken_at, timestamptz '0001-01-01')
	from billing_series r
	join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id
	cross join lateral (
	  select bool_or(e.status in ('acknowledged', 'confirmed')) as taken,
	    (array_agg(e.value order by e.version desc) filter (where e.status in ('acknowledged', 'confirmed')))[1] as value,
	    sum(e.quantity) filter (where e.status in ('acknowledged', 'confirmed')) as added,
	    (array_agg(e.quantity order by e.version desc) filter (where e.status in ('acknowledged', 'confirmed')))[1] as quantity,
	    (array_agg(e.amount order by e.version desc) filter (where e.status in ('acknowledged', 'confirmed')))[1] as amount,
	    (array_agg(e.currency order by e.version desc) filter (where e.status in ('acknowledged', 'confirmed')))[1] as currency,
	    bool_or(e.status in ('prepared', 'sent', 'ambiguous')) as outstanding,
	    bool_or(e.status <> 'rejected') as standing,
	    (array_agg(e.id order by e.version desc))[1] as id,
	    (array_agg(e.number order by e.version desc))[1] as number,
	    (array_agg(e.status order by e.version desc))[1] as status,
	    max(e.provider_time) as timestamp,
	    min(e.settled_at) filter (where e.status = 'acknowledged') as taken_at
	  from billing_entries e
	  where e.tenant_id = r.tenant_id
	    and e.series_id = r.id
	  having count(*) > 0) last
	where r.tenant_id = @tenant
	  and r.customer_id = @customer
	  and (r.late or p.closed_at is null or r.window_start >= (
	    select min(o.subscription_start)
	    from billing_periods o
	    where o.tenant_id = @tenant
	      and o.customer_id = @customer
	      and o.closed_at is null))`

func scanReported(row pgx.CollectableRow) (s billing.Reported, err error) {
	var status string
	err = row.Scan(&s.Kind, &s.Counting, &s.Account, &s.Customer, &s.Target, &s.Method, &s.Period, &s.Window.Start, &s.Window.End, &s.Late, &s.MeterID,
		&s.Taken, &s.Value, &s.Added, &s.Quantity, &s.Amount, &s.Currency,
		&s.Outstanding, &s.Standing, &s.Last, &s.Number, &status, &s.Timestamp, &s.TakenAt)
	s.State = stateOf[status]
	if s.TakenAt.Year() == 1 {
		s.TakenAt = time.Time{}
	}
	return s, err
}

const selectSentLines = `
	select s.id, p.starts_at, s.sequence, s.status, r.meter_id, c.starts_at,
	  e.cumulative_total, e.event_count, e.value, e.price_version, e.unit_price, e.charge, e.amount, e.currency
	from billing_periods p
	cross join lateral (
	  (select s.id, s.sequence, s.status
	   from billing_snapshots s
	   join billing_providers v on v.tenant_id = s.tenant_id and v.id = s.provider_id
	   where s.tenant_id = p.tenant_id
	     and s.period_id = p.id
	     and v.account = @account
	   order by s.sequence desc
	   limit 1)
	  union
	  (select s.id, s.sequence, s.status
	   from billing_snapshots s
	   join billing_providers v on v.tenant_id = s.tenant_id and v.id = s.provider_id
	   where s.tenant_id = p.tenant_id
	     and s.period_id = p.id
	     and v.account = @account
	     and s.status = 'acknowledged'
	   order by s.sequence desc
	   limit 1)) s
	join billing_entries e on e.tenant_id = p.tenant_id and e.snapshot_id = s.id
	join billing_series r on r.tenant_id = e.tenant_id and r.id = e.series_id
	left join billing_periods c on r.late and c.tenant_id = r.tenant_id and c.id = r.period_id
	where p.tenant_id = @tenant
	  and p.customer_id = @customer
	  and p.closed_at is null
	order by s.sequence, c.starts_at nulls first, r.meter_id`

type sentLine struct {
	sent billing.Sent
	billing.Line
}

func scanSentLine(row pgx.CollectableRow) (l sentLine, err error) {
	var status string
	var closed *time.Time
	err = row.Scan(&l.sent.ID, &l.sent.Period, &l.sent.Number, &status, &l.MeterID, &closed,
		&l.Usage, &l.Events, &l.Quantity, &l.PriceVersion, &l.UnitPrice, &l.Charge, &l.Amount, &l.Currency)
	l.sent.State = stateOf[status]
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

const selectOpen = `
	select s.id, 'statement', v.account, s.lease_until, s.sequence
	from billing_snapshots s
	join billing_providers v on v.tenant_id = s.tenant_id and v.id = s.provider_id
	where s.tenant_id = @tenant
	  and s.customer_id = @customer
	  and s.status in ('prepared', 'sent')
	union all
	select e.id, r.kind, r.provider_account, e.lease_until, e.number
	from billing_entries e
	join billing_series r on r.tenant_id = e.tenant_id and r.id = e.series_id
	where e.tenant_id = @tenant
	  and r.customer_id = @customer
	  and e.snapshot_id is null
	  and e.status in ('prepared', 'sent', 'ambiguous')
	order by 5`

func scanOpen(row pgx.CollectableRow) (o billing.Open, err error) {
	var number int64
	return o, row.Scan(&o.ID, &o.Kind, &o.Account, &o.LeaseUntil, &number)
}

// usageOf reads what the meters have counted in some periods, and how many
// events the customer has in the open ones.
func (r *factReader) usageOf(ranges []metering.Range) error {
	if err := r.totalsOf(ranges); err != nil {
		return err
	}
	f := &r.facts
	windowed := billing.WindowedMeters(*f)
	meters := slices.DeleteFunc(slices.Clone(f.Meters), func(m metering.Meter) bool { return !slices.Contains(windowed, m.ID) })
	hours, err := usageByHour(r.ctx, r.q, r.tenant, r.customer, meters, ranges)
	if err != nil {
		return err
	}
	for _, h := range hours {
		f.Hours = append(f.Hours, billing.HourUsage{Period: h.within.Start, MeterID: h.meter, Start: h.start, Total: h.usage})
	}
	return r.countEvents()
}

func (r *factReader) totalsOf(ranges []metering.Range) error {
	totals, err := usageOver(r.ctx, r.q, r.tenant, r.customer, r.facts.Meters, ranges)
	for _, t := range totals {
		r.facts.Usage = append(r.facts.Usage, billing.Usage{
			Period: t.within.Start, MeterID: t.meter, Total: t.usage, Events: t.events, Late: t.late, LateEvents: t.lateEvents,
		})
	}
	return err
}

// alsoTotalsOf reads what the meters have counted in ranges that are shown
// although no plan depends on them.
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
		select x.starts_at, `+countedEvents("@tenant", "@customer", "x.starts_at", "x.ends_at")+`
		from unnest(@starts::timestamptz[], @ends::timestamptz[]) x (starts_at, ends_at)`, pgx.NamedArgs{
		"tenant": r.tenant, "customer": r.customer, "starts": starts, "ends": ends,
	})
	if err != nil {
		return err
	}
	f.Counted, err = pgx.CollectRows(rows, pgx.RowToStructByPos[billing.EventCount])
	return err
}
