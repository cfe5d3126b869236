package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Tried is the number of attempts to send a report, and the error of the last one.
type Tried struct {
	Attempts  int    // attempts that were begun
	LastError string // "" during the first attempt
}

// Tried returns the attempts of the report that each customer's sync is sending. It skips customers without
// such a report.
func (s Syncs) Tried(ctx context.Context, tenant metering.TenantID, customers []metering.CustomerID) (map[metering.CustomerID]Tried, error) {
	rows, err := s.pool.Query(ctx, `
		select distinct on (customer_id) customer_id, attempts, response
		from billing_reports
		where tenant_id = $1
		  and customer_id = any($2)
		  and state in ('planned', 'sending')
		  and attempts > 0
		  and period_id is not null
		order by customer_id, lease_until desc nulls last, number`, tenant, customers)
	if err != nil {
		return nil, fmt.Errorf("read attempts: %w", pg.Coded(err))
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
		return nil, fmt.Errorf("read attempts: %w", pg.Coded(err))
	}
	return all, nil
}

// OpenOf returns the customer's open syncs, oldest first.
func (s Syncs) OpenOf(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID) ([]uuid.UUID, error) {
	rows, err := s.pool.Query(ctx, `
		select id
		from billing_syncs
		where tenant_id = $1
		  and customer_id = $2
		  and status in ('requested', 'running')
		order by id`, tenant, customer)
	if err != nil {
		return nil, fmt.Errorf("list open syncs: %w", pg.Coded(err))
	}
	open, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("list open syncs: %w", pg.Coded(err))
	}
	return open, nil
}

// Steering is an actor's request to steer a customer's sync, with the reason.
type Steering struct {
	Actor    metering.Actor
	Sync     uuid.UUID
	Customer metering.CustomerID
	Reason   string // in the actor's words
}

func (s Steering) decision(verb string) audit.Decision {
	return audit.Decision{Actor: s.Actor, Action: "sync." + verb, Resource: s.Sync.String(), Reason: s.Reason}
}

// Steered records a request to steer the run of a sync, and whether the run answered. If it did not, the
// outcome is unknown.
func (s Syncs) Steered(ctx context.Context, tenant metering.TenantID, by Steering, verb string, answered bool) error {
	asked := by.decision(verb)
	if !answered {
		asked.Resource += " unanswered"
	}
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		return audit.RecordDecision(ctx, tx, tenant, asked, nil, audit.Fields{"customer_id": by.Customer.String(), "answered": answered})
	})
	if err != nil {
		return fmt.Errorf("note %s of sync: %w", verb, err)
	}
	return nil
}

// Cancel marks those of the given syncs that are still open as failed and ends the customer's pause, because an
// actor cancels the run. If a sync was open, Cancel calls cancelRun after it has locked the syncs, so that no
// pass can take them. The next run then finds only later requests. If cancelRun fails, Cancel returns its error
// and changes nothing.
func (s Syncs) Cancel(ctx context.Context, tenant metering.TenantID, by Steering, open []uuid.UUID, failure string, now time.Time, cancelRun func() error) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
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
		canceled := make([]string, len(failed))
		for i, id := range failed {
			canceled[i] = id.String()
		}
		return audit.RecordDecision(ctx, tx, tenant, by.decision("cancel"), nil, audit.Fields{"customer_id": by.Customer.String(), "canceled": canceled})
	})
	if err != nil {
		return fmt.Errorf("cancel sync: %w", err)
	}
	return nil
}
