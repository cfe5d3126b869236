package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// payer is what billing needs to know about a customer.
type payer struct {
	id         metering.CustomerID
	externalID string
	created    time.Time
	starts     *time.Time // where the chain of periods begins, if an operator said so
	zone       *time.Location
	currency   string // the tenant's
	grace      time.Duration
	late       metering.LatePolicy
	products   []metering.Assignment

	atProvider   string         // the customer there; "" where it is not linked
	subscription string         // at the provider, whose periods are the customer's; "": the calendar's are
	current      metering.Range // the subscription's, as it was last read
}

// lockPayer makes the transaction the only one that prepares the customer's
// bill. Other rows may still come to refer to the customer.
func lockPayer(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) (payer, error) {
	return readPayer(ctx, tx, tenant, customer, `for no key update of c`)
}

func readPayer(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID, lock string) (payer, error) {
	p := payer{id: customer}
	var (
		zone         string
		subscription *string
		start, end   *time.Time
		products     []metering.ProductID
		since        []time.Time
	)
	err := q.QueryRow(ctx, `
		select c.external_id, c.created_at, c.billing_starts_at, t.timezone, t.currency, t.grace, t.late_policy, coalesce(l.provider_customer, ''), l.subscription, l.period_start, l.period_end,
		  a.products, a.since
		from customers c
		join tenants t on t.id = c.tenant_id
		left join billing_providers r on r.tenant_id = c.tenant_id and r.retired_at is null
		left join billing_links l on l.tenant_id = c.tenant_id and l.customer_id = c.id
		  and l.provider_account = r.account and l.provider_customer = c.billing_provider_id and l.subscription <> ''
		left join lateral (
		  select array_agg(coalesce(a.product_id, 0) order by a.effective_from, a.id) as products, array_agg(a.effective_from order by a.effective_from, a.id) as since
		  from customer_products a
		  where a.tenant_id = c.tenant_id
		    and a.customer_id = c.id) a on true
		where c.tenant_id = $1
		  and c.id = $2 `+lock, tenant, customer,
	).Scan(&p.externalID, &p.created, &p.starts, &zone, &p.currency, &p.grace, &p.late, &p.atProvider, &subscription, &start, &end, &products, &since)
	if errors.Is(err, pgx.ErrNoRows) {
		return payer{}, metering.Errorf(metering.CodeNotFound, "there is no such customer")
	}
	if subscription != nil {
		p.subscription, p.current = *subscription, metering.Range{Start: *start, End: *end}
	}
	for i := range products {
		p.products = append(p.products, metering.Assignment{ProductID: products[i], EffectiveFrom: since[i]})
	}
	p.zone = metering.Location(zone)
	return p, err
}

// extend returns the periods from start to the one that now lies in.
func (p payer) extend(start, now time.Time) []metering.Range {
	if p.subscription == "" {
		return metering.ExtendChain(metering.Range{Start: start, End: metering.CalendarPeriod(start, p.zone).End}, now, p.zone)
	}
	return metering.FollowSubscription(start, now, p.current, p.zone)
}

// first is where the chain begins.
func (p payer) first(earliest *time.Time) metering.Range {
	if p.starts == nil && p.current.Contains(p.created) {
		return p.current
	}
	return metering.FirstPeriod(p.created, earliest, p.starts, p.grace, p.zone)
}

// CurrentPeriod is the customer's billing period that now lies in: the one of
// its chain, or that which the chain would be extended by. Before the chain
// begins it is the calendar's.
func (l Ledger) CurrentPeriod(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (metering.Range, error) {
	p, err := readPayer(ctx, l.pool, tenant, customer, "")
	if err != nil {
		return metering.Range{}, fmt.Errorf("read customer: %w", coded(err))
	}
	chain, err := chainNow(ctx, l.pool, tenant, p, now)
	if err != nil {
		return metering.Range{}, fmt.Errorf("read billing periods: %w", coded(err))
	}
	for _, period := range chain {
		if period.Contains(now) {
			return period.Range, nil
		}
	}
	return metering.CalendarPeriod(now, p.zone), nil
}

// chainNow is the customer's chain as it would be if it were brought up to now,
// oldest first.
func chainNow(ctx context.Context, q querier, tenant metering.TenantID, p payer, now time.Time) ([]metering.Period, error) {
	chain, err := readPeriods(ctx, q, tenant, p.id)
	if err != nil {
		return nil, err
	}
	if err := shorten(ctx, q, tenant, p, chain, now); err != nil {
		return nil, err
	}
	missing, err := missingPeriods(ctx, q, tenant, p, chain, now)
	if err != nil {
		return nil, err
	}
	if p.subscription != "" && !p.current.End.After(now) {
		missing = append(missing, metering.AfterSubscription(p.current.End, now))
	}
	for _, period := range missing {
		chain = append(chain, metering.Period{CustomerID: p.id, Range: period})
	}
	slices.SortFunc(chain, func(a, b metering.Period) int { return a.Start.Compare(b.Start) })
	return chain, nil
}

// extendPeriods brings the customer's chain up to now and returns all of it,
// oldest first. The caller holds the customer's row.
func extendPeriods(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, p payer, now time.Time) ([]metering.Period, error) {
	chain, err := readPeriods(ctx, tx, tenant, p.id)
	if err != nil {
		return nil, err
	}
	var end time.Time
	if len(chain) > 0 {
		end = chain[len(chain)-1].End
	}
	if err := shorten(ctx, tx, tenant, p, chain, now); err != nil {
		return nil, err
	}
	missing, err := missingPeriods(ctx, tx, tenant, p, chain, now)
	if err != nil {
		return nil, err
	}
	var batch pgx.Batch
	if len(chain) > 0 && !chain[len(chain)-1].End.Equal(end) {
		last := chain[len(chain)-1]
		batch.Queue(`update billing_periods set ends_at = $3 where tenant_id = $1 and id = $2`, tenant, last.ID, last.End)
	}
	for _, period := range missing {
		batch.Queue(`insert into billing_periods (tenant_id, customer_id, starts_at, ends_at) values ($1, $2, $3, $4)`,
			tenant, p.id, period.Start, period.End)
	}
	if p.subscription != "" {
		batch.Queue(`
			update billing_periods
			set subscription = $3, subscription_start = $4, subscription_end = $5
			where tenant_id = $1
			  and customer_id = $2
			  and closed_at is null
			  and starts_at < $5
			  and ends_at > $4
			  and (subscription, subscription_start, subscription_end) is distinct from ($3, $4, $5)`,
			tenant, p.id, p.subscription, p.current.Start, p.current.End)
	}
	if batch.Len() == 0 {
		return chain, nil
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, err
	}
	return readPeriods(ctx, tx, tenant, p.id)
}

// shorten ends the chain's open period where the customer's periods, which may
// be another calendar's since it was made, have a border.
func shorten(ctx context.Context, q querier, tenant metering.TenantID, p payer, chain []metering.Period, now time.Time) error {
	if len(chain) == 0 {
		return nil
	}
	last := &chain[len(chain)-1]
	if last.Shorten(now, p.current, p.zone, false).Equal(last.End) {
		return nil
	}
	var told bool
	err := q.QueryRow(ctx, `
		select exists (
		  select
		  from billing_series r
		  join billing_entries e on e.tenant_id = r.tenant_id and e.series_id = r.id
		  where r.tenant_id = $1
		    and r.period_id = $2
		    and e.status <> 'rejected')`, tenant, last.ID).Scan(&told)
	last.End = last.Shorten(now, p.current, p.zone, told)
	return err
}

func readPeriods(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID) ([]metering.Period, error) {
	rows, err := q.Query(ctx, `
		select id, starts_at, ends_at, closed_at
		from billing_periods
		where tenant_id = $1
		  and customer_id = $2
		order by starts_at`, tenant, customer)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (metering.Period, error) {
		p := metering.Period{CustomerID: customer}
		err := row.Scan(&p.ID, &p.Start, &p.End, &p.ClosedAt)
		return p, err
	})
}

// missingPeriods are the links that the chain lacks up to now: those after its
// end, and those before its beginning that an event reached while their grace
// was still running.
func missingPeriods(ctx context.Context, q querier, tenant metering.TenantID, p payer, chain []metering.Period, now time.Time) ([]metering.Range, error) {
	var missing []metering.Range
	if len(chain) > 0 {
		end := chain[len(chain)-1].End
		missing = p.extend(end, now)
		if p.subscription != "" || !now.Before(metering.CalendarPeriod(p.created, p.zone).Start.Add(p.grace)) {
			return missing, nil
		}
	}
	earliest, err := earliestEvent(ctx, q, tenant, p.id)
	if err != nil {
		return nil, err
	}
	first := p.first(earliest)
	if len(chain) == 0 {
		return p.extend(first.Start, now), nil
	}
	head := chain[0].Start
	for _, period := range metering.ExtendChain(first, head.Add(-time.Microsecond), p.zone) {
		if period.End.After(head) {
			period.End = head
		}
		missing = append(missing, period)
	}
	return missing, nil
}

func earliestEvent(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID) (*time.Time, error) {
	var at *time.Time
	err := q.QueryRow(ctx, `select min(ts) from events where tenant_id = $1 and customer_id = $2`, tenant, customer).Scan(&at)
	return at, err
}
