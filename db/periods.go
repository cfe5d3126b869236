package db

import (
	"context"
	"errors"
	"fmt"
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
}

// lockPayer makes the transaction the only one that prepares the customer's
// bill. Other rows may still come to refer to the customer.
func lockPayer(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) (payer, error) {
	return readPayer(ctx, tx, tenant, customer, `for no key update of c`)
}

func readPayer(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID, lock string) (payer, error) {
	p := payer{id: customer}
	var zone string
	err := q.QueryRow(ctx, `
		select c.external_id, c.created_at, c.billing_starts_at, t.zone, t.currency, t.grace, t.late_policy
		from customers c
		join tenants t on t.id = c.tenant_id
		where c.tenant_id = $1
		  and c.id = $2 `+lock, tenant, customer,
	).Scan(&p.externalID, &p.created, &p.starts, &zone, &p.currency, &p.grace, &p.late)
	if errors.Is(err, pgx.ErrNoRows) {
		return payer{}, metering.Errorf(metering.CodeNotFound, "there is no such customer")
	}
	p.zone = metering.Location(zone)
	return p, err
}

// CurrentPeriod is the customer's billing period that now lies in: the one of
// its chain, or that which the chain would be extended by. Before the chain
// begins it is the calendar's.
func (l Ledger) CurrentPeriod(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (metering.Range, error) {
	p, err := readPayer(ctx, l.pool, tenant, customer, "")
	if err != nil {
		return metering.Range{}, fmt.Errorf("read customer: %w", coded(err))
	}
	chain, err := readPeriods(ctx, l.pool, tenant, customer)
	if err != nil {
		return metering.Range{}, fmt.Errorf("read billing periods: %w", coded(err))
	}
	missing, err := missingPeriods(ctx, l.pool, tenant, p, chain, now)
	if err != nil {
		return metering.Range{}, fmt.Errorf("read billing periods: %w", coded(err))
	}
	for _, period := range chain {
		missing = append(missing, period.Range)
	}
	for _, period := range missing {
		if period.Contains(now) {
			return period, nil
		}
	}
	return metering.CalendarPeriod(now, p.zone), nil
}

// extendPeriods brings the customer's chain up to now and returns all of it,
// oldest first. The caller holds the customer's row.
func extendPeriods(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, p payer, now time.Time) ([]metering.Period, error) {
	chain, err := readPeriods(ctx, tx, tenant, p.id)
	if err != nil {
		return nil, err
	}
	missing, err := missingPeriods(ctx, tx, tenant, p, chain, now)
	if err != nil || len(missing) == 0 {
		return chain, err
	}
	var batch pgx.Batch
	for _, period := range missing {
		batch.Queue(`insert into billing_periods (tenant_id, customer_id, starts_at, ends_at) values ($1, $2, $3, $4)`,
			tenant, p.id, period.Start, period.End)
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, err
	}
	return readPeriods(ctx, tx, tenant, p.id)
}

func readPeriods(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID) ([]metering.Period, error) {
	rows, err := q.Query(ctx, `
		select id, starts_at, ends_at, frozen_at
		from billing_periods
		where tenant_id = $1
		  and customer_id = $2
		order by starts_at`, tenant, customer)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (metering.Period, error) {
		p := metering.Period{CustomerID: customer}
		err := row.Scan(&p.ID, &p.Start, &p.End, &p.FrozenAt)
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
		missing = metering.ExtendChain(metering.Range{Start: end, End: metering.CalendarPeriod(end, p.zone).End}, now, p.zone)
		if !now.Before(metering.CalendarPeriod(p.created, p.zone).Start.Add(p.grace)) {
			return missing, nil
		}
	}
	earliest, err := earliestEvent(ctx, q, tenant, p.id)
	if err != nil {
		return nil, err
	}
	first := metering.FirstPeriod(p.created, earliest, p.starts, p.grace, p.zone)
	if len(chain) == 0 {
		return metering.ExtendChain(first, now, p.zone), nil
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
