package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// Ledger is what the billing providers were told, written down before they
// were told it. Whatever is repeated, run twice or cut short, a provider's
// last total equals ours, and a sequence never carries two bodies.
type Ledger struct{ pool *pgxpool.Pool }

// SnapshotStatus is where a snapshot stands in its life.
type SnapshotStatus string

const (
	SnapshotPrepared SnapshotStatus = "prepared"
	SnapshotSent     SnapshotStatus = "sent" // it may have arrived
	Acknowledged     SnapshotStatus = "acknowledged"
	Rejected         SnapshotStatus = "rejected"
)

// Delivery is one attempt at sending a snapshot.
type Delivery struct {
	Attempt  int
	Body     []byte
	Provider metering.Provider
}

// Busy is the cause where somebody else is sending the same snapshot.
type Busy struct{ Wait time.Duration }

func (b Busy) Error() string { return "leased for another " + b.Wait.String() }

// MarkSent leases a snapshot to the caller, who may send it once MarkSent has
// returned and must be done before the lease ends. It answers CodeOverloaded,
// caused by Busy, while another's lease runs, and CodeConflict where the
// snapshot is settled or its account has been replaced: prepare again.
func (l Ledger) MarkSent(ctx context.Context, tenant metering.TenantID, snapshot uuid.UUID, now time.Time, lease time.Duration) (d Delivery, err error) {
	err = inTx(ctx, l.pool, func(tx pgx.Tx) error {
		d, err = markSent(ctx, tx, tenant, snapshot, now, lease)
		return err
	})
	if err != nil {
		return Delivery{}, fmt.Errorf("mark snapshot sent: %w", err)
	}
	return d, nil
}

func markSent(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, snapshot uuid.UUID, now time.Time, lease time.Duration) (d Delivery, err error) {
	var (
		status     SnapshotStatus
		leaseUntil *time.Time
		account    string
	)
	err = tx.QueryRow(ctx, `
		select s.status, s.lease_until, s.attempts + 1, s.body, r.account
		from billing_snapshots s
		join billing_providers r on r.tenant_id = s.tenant_id and r.id = s.provider_id
		where s.tenant_id = $1
		  and s.id = $2
		for update of s`, tenant, snapshot).Scan(&status, &leaseUntil, &d.Attempt, &d.Body, &account)
	if errors.Is(err, pgx.ErrNoRows) {
		return d, metering.Errorf(metering.CodeNotFound, "there is no such snapshot")
	}
	if err != nil {
		return d, err
	}
	if status != SnapshotPrepared && status != SnapshotSent {
		return d, metering.Errorf(metering.CodeConflict, "the snapshot is settled")
	}
	if leaseUntil != nil && leaseUntil.After(now) {
		return d, metering.Errorf(metering.CodeOverloaded, "the snapshot is being sent").Because(Busy{leaseUntil.Sub(now)})
	}
	if d.Provider, err = activeProvider(ctx, tx, tenant); err != nil {
		return d, err
	}
	if d.Provider.Account != account {
		return d, metering.Errorf(metering.CodeConflict, "the billing provider was replaced")
	}
	return d, leaseSnapshot(ctx, tx, tenant, snapshot, now.Add(lease))
}

func leaseSnapshot(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, snapshot uuid.UUID, until time.Time) error {
	if _, err := tx.Exec(ctx, `
		update billing_snapshots
		set status = 'sent', lease_until = $3, attempts = attempts + 1
		where tenant_id = $1
		  and id = $2`, tenant, snapshot, until); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `
		update billing_entries
		set status = 'sent'
		where tenant_id = $1
		  and snapshot_id = $2
		  and status = 'prepared'`, tenant, snapshot)
	return err
}

// Release ends the lease of an attempt that brought no decision, so that the
// next one need not wait for it.
func (l Ledger) Release(ctx context.Context, tenant metering.TenantID, snapshot uuid.UUID, attempt int, answer string) error {
	_, err := l.pool.Exec(ctx, `
		update billing_snapshots
		set lease_until = null, answer = $4
		where tenant_id = $1
		  and id = $2
		  and attempts = $3
		  and status = 'sent'`, tenant, snapshot, attempt, answer)
	if err != nil {
		return fmt.Errorf("release snapshot: %w", coded(err))
	}
	return nil
}

// Settle records the provider's decision on a snapshot and its entries:
// Acknowledged or Rejected. Settling again changes nothing, except that an
// acknowledgement that turns up late outweighs a rejection.
func (l Ledger) Settle(ctx context.Context, tenant metering.TenantID, snapshot uuid.UUID, outcome SnapshotStatus, answer string, now time.Time) error {
	err := inTx(ctx, l.pool, func(tx pgx.Tx) error {
		return settle(ctx, tx, tenant, snapshot, outcome, answer, now)
	})
	if err != nil {
		return fmt.Errorf("settle snapshot: %w", err)
	}
	return nil
}

func settle(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, snapshot uuid.UUID, outcome SnapshotStatus, answer string, now time.Time) error {
	var period metering.PeriodID
	err := tx.QueryRow(ctx, `
		update billing_snapshots
		set status = $3, answer = $4, settled_at = $5, lease_until = null
		where tenant_id = $1
		  and id = $2
		  and (status in ('prepared', 'sent') or status = 'rejected' and $3 = 'acknowledged')
		returning period_id`, tenant, snapshot, outcome, answer, now,
	).Scan(&period)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `
		update billing_entries
		set status = $3, settled_at = $4
		where tenant_id = $1
		  and snapshot_id = $2`, tenant, snapshot, outcome, now); err != nil {
		return err
	}
	if outcome != Acknowledged {
		return nil
	}
	_, err = tx.Exec(ctx, `
		update billing_periods p
		set watermark_events = s.watermark_events, watermark_configuration = s.watermark_configuration
		from billing_snapshots s
		where p.tenant_id = $1
		  and p.id = $2
		  and s.tenant_id = p.tenant_id
		  and s.id = $3`, tenant, period, snapshot)
	return err
}

// atOneInstant runs fn in a transaction whose every statement sees the same
// state of the database, again where another transaction came first.
func atOneInstant(ctx context.Context, pool beginnerTx, fn func(tx pgx.Tx) error) error {
	const tries = 25 // of many who wait for one customer, one gets its turn at a time
	for try := 1; ; try++ {
		err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, fn)
		switch sqlState(err) {
		case stateSerialization, stateDeadlock, stateUniqueViolation:
			if try < tries {
				continue
			}
		}
		return coded(err)
	}
}

// beginnerTx is a pool or one of its connections.
type beginnerTx interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}
