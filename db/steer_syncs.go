package db

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Tried is how often a report was tried, and why it has to be tried again.
type Tried struct {
	Attempts  int    // begun
	LastError string // "": the first one is under way
}

// Tried is of the report that each of these customers' syncs waits for; those
// without one are left out.
func (s Syncs) Tried(ctx context.Context, tenant metering.TenantID, customers []metering.CustomerID) (map[metering.CustomerID]Tried, error) {
	rows, err := s.pool.Query(ctx, `
		select distinct on (customer_id) customer_id, attempts, response
		from billing_reports
		where tenant_id = $1
		  and customer_id = any($2)
		  and state = 'sending'
		  and period_id is not null
		order by customer_id, lease_until desc nulls last, number`, tenant, customers)
	if err != nil {
		return nil, fmt.Errorf("read attempts: %w", coded(err))
	}
	var (
		all      = map[metering.CustomerID]Tried{}
		customer metering.CustomerID
		tried    Tried
	)
	_, err = pgx.ForEachRow(rows, []any{&customer, &tried.Attempts, &tried.LastError}, func() error {
		all[customer] = tried
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read attempts: %w", coded(err))
	}
	return all, nil
}

// OpenOf lists the customer's syncs that are not over, oldest first.
func (s Syncs) OpenOf(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID) ([]uuid.UUID, error) {
	rows, err := s.pool.Query(ctx, `
		select id
		from billing_syncs
		where tenant_id = $1
		  and customer_id = $2
		  and status in ('requested', 'running')
		order by id`, tenant, customer)
	if err != nil {
		return nil, fmt.Errorf("list open syncs: %w", coded(err))
	}
	open, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("list open syncs: %w", coded(err))
	}
	return open, nil
}

// Steering is what somebody asks of a customer's sync, and why.
type Steering struct {
	Actor    metering.Actor
	Sync     uuid.UUID
	Customer metering.CustomerID
	Reason   string // in their words
}

func (s Steering) decision(verb string) decision {
	return decision{s.Actor, "sync." + verb, s.Sync.String(), s.Reason}
}

// Steered notes what somebody has asked of the run that a sync waits for, and
// where that did not answer: then it may or may not have happened.
func (s Syncs) Steered(ctx context.Context, tenant metering.TenantID, by Steering, verb string, answered bool) error {
	asked := by.decision(verb)
	if !answered {
		asked.resource += " unanswered"
	}
	err := inTx(ctx, s.pool, func(tx pgx.Tx) error {
		return auditDecision(ctx, tx, tenant, asked, nil, told{"customer_id": by.Customer.String(), "answered": answered})
	})
	if err != nil {
		return fmt.Errorf("note %s of sync: %w", verb, err)
	}
	return nil
}

// Cancel fails those of the syncs that are not over, because somebody cancels the
// run that one of them waits for, and ends the customer's pause. cancelRun is called
// once nobody can take the syncs any more, unless they are over: the run that comes
// next finds only what was requested since. Its error leaves everything as it was,
// and is returned.
func (s Syncs) Cancel(ctx context.Context, tenant metering.TenantID, by Steering, open []uuid.UUID, failure string, now time.Time, cancelRun func() error) error {
	err := inTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := endPause(ctx, tx, tenant, by, now); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			update billing_syncs
			set status = 'failed', error = $4, finished_at = $5
			where tenant_id = $1
			  and customer_id = $2
			  and id = any($3)
			  and status in ('requested', 'running')
			returning id`, tenant, by.Customer, open, failure, now)
		if err != nil {
			return err
		}
		failed, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return err
		}
		if len(failed) > 0 {
			if err := cancelRun(); err != nil {
				return err
			}
		}
		if err := recordSyncEnd(ctx, tx, tenant, by.Customer, failed, failure, now); err != nil {
			return err
		}
		cancelled := make([]string, len(failed))
		for i, id := range failed {
			cancelled[i] = id.String()
		}
		return auditDecision(ctx, tx, tenant, by.decision("cancel"), nil, told{"customer_id": by.Customer.String(), "cancelled": cancelled})
	})
	if err != nil {
		return fmt.Errorf("cancel sync: %w", err)
	}
	return nil
}
