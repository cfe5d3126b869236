package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Links stores the customers' state at their billing provider (billing.Side), as it was last read.
type Links struct {
	pool *pg.Pool
	read ReadPrice
}

// Wanted holds the parameters for reading a customer's state at the provider.
type Wanted struct {
	Provider metering.Provider
	Customer string   // the customer's id at the provider; "": none
	Amounts  bool     // whether periods are, or will be, billed in amounts
	Followed string   // the subscription that the customer's periods follow, as last read; "": none
	Streams  []string // the subscriptions that have billing schedules of their own
	Meters   []metering.Meter
}

// followedAt returns the SQL of two columns for a customer c at a connection: the subscription that the
// customer's periods follow, and the subscriptions that have billing schedules of their own.
func followedAt(connection string) string {
	return `coalesce((
		  select l.subscription
		  from billing_links l
		  where l.tenant_id = c.tenant_id
		    and l.customer_id = c.id
		    and l.connection_id = ` + connection + `), ''), array(
		  select s.subscription
		  from billing_streams s
		  where s.tenant_id = c.tenant_id
		    and s.customer_id = c.id
		    and s.connection_id = ` + connection + `)`
}

// Wanted returns the parameters for reading a customer's state at the provider. It returns CodeNoProvider if
// the tenant has no active provider, and CodeNotFound if there is no such customer.
func (l Links) Wanted(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID) (w Wanted, err error) {
	if w.Provider, err = activeProvider(ctx, l.pool, tenant); err != nil {
		return Wanted{}, err
	}
	var named *string
	err = l.pool.QueryRow(ctx, `
		select c.billing_provider_id, exists (
		  select
		  from billing_periods p
		  where p.tenant_id = c.tenant_id
		    and p.customer_id = c.id
		    and not p.complete
		    and p.bills = 'amounts'), `+followedAt("$3")+`
		from customers c
		where c.tenant_id = $1
		  and c.id = $2`, tenant, customer, w.Provider.ID).Scan(&named, &w.Amounts, &w.Followed, &w.Streams)
	if errors.Is(err, pgx.ErrNoRows) {
		return Wanted{}, metering.Errorf(metering.CodeNotFound, "there is no such customer")
	}
	if err != nil {
		return Wanted{}, fmt.Errorf("read customer: %w", pg.Coded(err))
	}
	if named != nil {
		w.Customer = *named
	}
	w.Amounts = w.Amounts || w.Provider.Bills == metering.BillsAmounts || w.Provider.BillsBefore == metering.BillsAmounts
	if w.Meters, err = catalog.CollectMeters(ctx, l.pool, `order by m.id`, tenant); err != nil {
		return Wanted{}, fmt.Errorf("list meters: %w", pg.Coded(err))
	}
	return w, nil
}

// Save stores a customer's state at a connection as it was read at readAt, unless a later state is already
// stored. It also stores the runs of the customer's subscriptions, and queues the customer for the evaluation
// of alerts. A stored run accumulates all targets that the subscription has billed, and keeps the first end
// that was read. If the state or a run has changed, Save marks the customer as out of sync. The next sync then
// plans with the new state, even if the worker crashes after Save.
func (l Links) Save(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, connection metering.ConnectionID, side billing.Side, readAt time.Time) error {
	known := slices.Clone(side.Destinations)
	for _, other := range side.Others {
		known = append(known, other.Destinations...)
	}
	hashes, terms := distinctTerms(known)
	_, err := l.pool.Exec(ctx, `
		with queued as (
		  insert into alert_due (tenant_id, customer_id)
		  select c.tenant_id, c.id
		  from customers c
		  where c.tenant_id = @tenant
		    and c.id = @customer
		    and `+catalog.HasAlerts("c.id")+`),
		terms as (
		  insert into price_terms (tenant_id, hash, schema, terms)
		  select @tenant, x.hash, @schema, x.terms::jsonb
		  from unnest(@hashes::bytea[], @terms::text[]) x (hash, terms)
		  on conflict (tenant_id, hash) do nothing),
		runs as (
		  select x.*
		  from jsonb_to_recordset(@runs::jsonb) x (subscription text, began_at timestamptz, ended_at timestamptz, targets text[])
		  left join billing_subscriptions s on s.tenant_id = @tenant and s.customer_id = @customer and s.connection_id = @connection and s.subscription = x.subscription
		  where s.subscription is null or s.ended_at is null and x.ended_at is not null or not x.targets <@ s.targets),
		ran as (
		  insert into billing_subscriptions as s (tenant_id, customer_id, connection_id, subscription, began_at, ended_at, targets)
		  select @tenant, @customer, @connection, x.subscription, x.began_at, x.ended_at, x.targets
		  from runs x
		  on conflict (tenant_id, customer_id, connection_id, subscription) do update
		  set ended_at = coalesce(s.ended_at, excluded.ended_at), targets = array(select unnest(s.targets) union select unnest(excluded.targets) order by 1)),
		known as (
		  select (l.connection_id, l.provider_customer, l.subscription, l.period_start, l.period_end, l.trial, l.ended, l.currency, l.destinations, l.charges, l.others)
		    is not distinct from (@connection::bigint, @at_provider, @subscription, @start::timestamptz, @end::timestamptz, @trial::boolean, @ended::boolean, @currency, @destinations::jsonb, @charges::jsonb, @others::jsonb)
		    and not exists (select from runs) as same
		  from billing_links l
		  where l.tenant_id = @tenant
		    and l.customer_id = @customer),
		changed as (
		  update billing_periods p
		  set watermark_configuration = ''
		  where p.tenant_id = @tenant
		    and p.customer_id = @customer
		    and p.closed_at is null
		    and p.watermark_configuration <> ''
		    and not coalesce((select same from known), false))
		insert into billing_links as l
		  (tenant_id, customer_id, connection_id, provider_customer, subscription, period_start, period_end, trial, ended, currency, destinations, charges, others, read_at)
		values (@tenant, @customer, @connection, @at_provider, @subscription, @start, @end, @trial, @ended, @currency, @destinations, @charges, @others, @read_at)
		on conflict (tenant_id, customer_id) do update
		set connection_id = excluded.connection_id, provider_customer = excluded.provider_customer,
		  subscription = excluded.subscription, period_start = excluded.period_start, period_end = excluded.period_end,
		  trial = excluded.trial, ended = excluded.ended, currency = excluded.currency, destinations = excluded.destinations,
		  charges = excluded.charges, others = excluded.others, read_at = excluded.read_at
		where l.read_at <= excluded.read_at`, pgx.NamedArgs{
		"tenant": tenant, "customer": customer, "connection": connection, "at_provider": side.Customer,
		"subscription": side.Subscription, "start": side.Period.Start, "end": side.Period.End, "trial": side.Trial, "ended": side.Ended, "currency": side.Currency,
		"destinations": storedDestinations(side.Destinations), "charges": side.Charges, "others": storedSides(side.Others), "read_at": readAt,
		"schema": billing.ProviderTermsSchema, "hashes": hashes, "terms": terms, "runs": storedRuns(side.Runs),
	})
	if err != nil {
		return fmt.Errorf("save link: %w", pg.Coded(err))
	}
	return nil
}

// storedRun is the stored form of a billing.Run.
type storedRun struct {
	Subscription string     `json:"subscription"`
	BeganAt      time.Time  `json:"began_at"`
	EndedAt      *time.Time `json:"ended_at"`
	Targets      []string   `json:"targets"`
}

func storedRuns(all []billing.Run) []storedRun {
	stored := make([]storedRun, len(all))
	for i, r := range all {
		stored[i] = storedRun{r.Subscription, r.BeganAt, r.EndedAt, append([]string{}, r.Targets...)}
	}
	return stored
}

// Destinations returns the customer's destinations at a connection: first the destinations last read from the
// provider, then those of past reports, newest first.
func (l Links) Destinations(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, connection metering.ConnectionID) ([]billing.Destination, error) {
	var destinations []billing.Destination
	var others []storedSide
	err := l.pool.QueryRow(ctx, `
		select destinations, others
		from billing_links
		where tenant_id = $1
		  and customer_id = $2
		  and connection_id = $3`, tenant, customer, connection).Scan(&destinations, &others)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read link: %w", pg.Coded(err))
	}
	for _, other := range others {
		for _, d := range other.Destinations {
			destinations = append(destinations, d.Destination)
		}
	}
	rows, err := l.pool.Query(ctx, `
		select s.meter_id, s.target, s.method
		from billing_destinations d
		cross join lateral (`+seriesAt+` and s.kind = 'quantity' offset 0) s
		where d.tenant_id = $1
		  and d.customer_id = $2
		  and d.connection_id = $3
		group by 1, 2, 3
		order by max(s.id) desc`, tenant, customer, connection)
	if err != nil {
		return nil, fmt.Errorf("read destinations: %w", pg.Coded(err))
	}
	former, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d billing.Destination, err error) {
		return d, row.Scan(&d.MeterID, &d.Target, &d.Method)
	})
	if err != nil {
		return nil, fmt.Errorf("read destinations: %w", pg.Coded(err))
	}
	return append(destinations, former...), nil
}
