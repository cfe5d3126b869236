package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// Rotations exchange API keys for new ones. A pending one is withdrawn or
// activated, whichever is committed first.
type Rotations struct{ pool *pgxpool.Pool }

const rotationColumns = `r.id, r.old_key_id, r.new_key_id, r.last_four, coalesce(r.idempotency_key, ''), r.status, r.pending_until`

func rotationFields(r *metering.Rotation) []any {
	return []any{&r.ID, &r.OldKeyID, &r.NewKeyID, &r.LastFour, &r.IdempotencyKey, &r.Status, &r.PendingUntil}
}

// Begin keeps the hash of a key that is to take another's place. Where the
// idempotency key was used before, CodeConflict says for what.
func (s Rotations) Begin(ctx context.Context, tenant metering.TenantID, actor metering.Actor, r metering.Rotation, hash []byte, now time.Time) (begun metering.Rotation, err error) {
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `
			update api_key_rotations
			set status = 'withdrawn', settled_at = $3
			where tenant_id = $1
			  and idempotency_key = $2
			  and status = 'pending'
			  and pending_until <= $3`, tenant, r.IdempotencyKey, now); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `
			insert into api_key_rotations as r (tenant_id, old_key_id, hash, last_four, actor, idempotency_key, pending_until, created_at)
			values (@tenant, @old, @hash, @last_four, @actor, nullif(@idempotency, ''), @until, @now)
			on conflict (tenant_id, idempotency_key) where status in ('pending', 'activated') do nothing
			returning `+rotationColumns, pgx.NamedArgs{
			"tenant": tenant, "old": r.OldKeyID, "hash": hash, "last_four": r.LastFour, "actor": actor,
			"idempotency": r.IdempotencyKey, "until": r.PendingUntil, "now": now,
		}).Scan(rotationFields(&begun)...)
		if errors.Is(err, pgx.ErrNoRows) {
			return repeated(ctx, tx, tenant, r.OldKeyID, r.IdempotencyKey)
		}
		return err
	})
	if err != nil {
		return metering.Rotation{}, fmt.Errorf("begin rotation: %w", err)
	}
	return begun, nil
}

// Repeated says what the idempotency key has made in the place of another, if
// it has: whoever repeats a request finds that one revoked.
func (s Rotations) Repeated(ctx context.Context, tenant metering.TenantID, old metering.KeyID, idempotencyKey string) error {
	err := repeated(ctx, s.pool, tenant, old, idempotencyKey)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return coded(err)
}

// repeated says what the idempotency key has made: everything but the key.
func repeated(ctx context.Context, q querier, tenant metering.TenantID, old metering.KeyID, idempotencyKey string) error {
	var former metering.Rotation
	var settled *time.Time
	err := q.QueryRow(ctx, `
		select `+rotationColumns+`, r.settled_at
		from api_key_rotations r
		where r.tenant_id = $1
		  and r.idempotency_key = $2
		  and r.status in ('pending', 'activated')`, tenant, idempotencyKey,
	).Scan(append(rotationFields(&former), &settled)...)
	if err != nil {
		return err
	}
	if former.OldKeyID != old {
		return metering.Invalid("header.Idempotency-Key", "was used for another request")
	}
	if former.NewKeyID == nil {
		return metering.Errorf(metering.CodeConflict, "%s is being rotated under this Idempotency-Key", former.OldKeyID)
	}
	return metering.Errorf(metering.CodeConflict, "this Idempotency-Key has made %s, which ends in %s, in place of %s at %s; it cannot be shown again",
		*former.NewKeyID, former.LastFour, former.OldKeyID, settled.UTC().Format(time.RFC3339))
}

// Activate makes the pending key valid and the old one invalid, at once. It
// returns what became of the rotation, now or before.
func (s Rotations) Activate(ctx context.Context, tenant metering.TenantID, id metering.RotationID, now time.Time) (status metering.RotationStatus, err error) {
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		r, err := lockRotation(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		if status = r.Status; status != metering.RotationPending {
			return nil
		}
		if !now.Before(r.PendingUntil) {
			status = metering.RotationWithdrawn
			return endRotation(ctx, tx, tenant, id, status, now)
		}
		var old metering.APIKey
		if err := tx.QueryRow(ctx, `select `+apiKeyColumns+` from api_keys k where k.tenant_id = $1 and k.id = $2 for update`,
			tenant, r.OldKeyID).Scan(apiKeyFields(&old)...); err != nil {
			return err
		}
		if !old.Live(now) {
			status = metering.RotationRefused
			return endRotation(ctx, tx, tenant, id, status, now)
		}
		status = metering.RotationActivated
		return exchange(ctx, tx, tenant, r, now)
	})
	if err != nil {
		return "", fmt.Errorf("activate key: %w", err)
	}
	return status, nil
}

func lockRotation(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, id metering.RotationID) (r metering.Rotation, err error) {
	err = tx.QueryRow(ctx, `
		select `+rotationColumns+`
		from api_key_rotations r
		where r.tenant_id = $1
		  and r.id = $2
		for update`, tenant, id).Scan(rotationFields(&r)...)
	return r, err
}

func endRotation(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, id metering.RotationID, status metering.RotationStatus, now time.Time) error {
	_, err := tx.Exec(ctx, `
		update api_key_rotations
		set status = $3, settled_at = $4
		where tenant_id = $1
		  and id = $2`, tenant, id, status, now)
	return err
}

func exchange(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, r metering.Rotation, now time.Time) error {
	var (
		fresh metering.KeyID
		actor metering.Actor
	)
	err := tx.QueryRow(ctx, `
		insert into api_keys (tenant_id, name, scope, hash, last_four, created_by, expires_at)
		select k.tenant_id, k.name, k.scope, r.hash, r.last_four, r.actor, k.expires_at
		from api_key_rotations r
		join api_keys k on k.tenant_id = r.tenant_id and k.id = r.old_key_id
		where r.tenant_id = $1
		  and r.id = $2
		returning id, created_by`, tenant, r.ID).Scan(&fresh, &actor)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `update api_keys set revoked_at = $3 where tenant_id = $1 and id = $2`, tenant, r.OldKeyID, now); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `
		update api_key_rotations
		set status = 'activated', new_key_id = $3, settled_at = $4
		where tenant_id = $1
		  and id = $2`, tenant, r.ID, fresh, now); err != nil {
		return err
	}
	return audit(ctx, tx, tenant, actor, "api_key.rotate", r.OldKeyID.String())
}

// Withdraw takes back a rotation that nobody waits for any longer, unless it
// was activated before, and returns what became of it.
func (s Rotations) Withdraw(ctx context.Context, tenant metering.TenantID, id metering.RotationID, now time.Time) (r metering.Rotation, err error) {
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		if r, err = lockRotation(ctx, tx, tenant, id); err != nil || r.Status != metering.RotationPending {
			return err
		}
		r.Status = metering.RotationWithdrawn
		return endRotation(ctx, tx, tenant, id, r.Status, now)
	})
	if err != nil {
		return metering.Rotation{}, fmt.Errorf("withdraw rotation: %w", err)
	}
	return r, nil
}

// Get returns a rotation, or CodeNotFound.
func (s Rotations) Get(ctx context.Context, tenant metering.TenantID, id metering.RotationID) (r metering.Rotation, err error) {
	err = s.pool.QueryRow(ctx, `select `+rotationColumns+` from api_key_rotations r where r.tenant_id = $1 and r.id = $2`,
		tenant, id).Scan(rotationFields(&r)...)
	return r, coded(err)
}
