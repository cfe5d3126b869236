package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Rotations stores the rotations of credentials. One transaction begins a rotation: it creates the new
// credential and sets the expiry of the old one.
type Rotations struct{ pool pg.Beginner }

// Rotating is a request to rotate a credential of a tenant. Overlap is the time that the old credential
// stays valid beside the new one.
type Rotating struct {
	Tenant  metering.TenantID
	Actor   metering.Actor
	Now     time.Time
	Overlap time.Duration
}

const rotationColumns = `r.tenant_id, r.id, r.kind, r.old_id, r.kind, r.new_id, r.created_at, r.overlap_until, r.old_expires_at,
	c.last_used_at, r.warned_at, r.ended_at, coalesce(r.outcome, '')`

func rotationFields(r *metering.Rotation) []any {
	return []any{
		&r.TenantID, &r.ID, &r.OldID.Kind, &r.OldID.Number, &r.NewID.Kind, &r.NewID.Number, &r.CreatedAt, &r.Until, &r.OldExpiresAt,
		&r.LastUsedAt, &r.WarnedAt, &r.EndedAt, &r.Outcome,
	}
}

func readRotation(ctx context.Context, q pg.Querier, tenant metering.TenantID, id metering.RotationID, lock string) (r metering.Rotation, err error) {
	err = q.QueryRow(ctx, `
		select `+rotationColumns+`
		from credential_rotations r
		left join credentials c on c.tenant_id = r.tenant_id and c.kind = r.kind and c.id = r.old_id
		where r.tenant_id = $1
		  and r.id = $2 `+lock, tenant, id).Scan(rotationFields(&r)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, metering.Errorf(metering.CodeNotFound, "there is no such rotation")
	}
	return r, err
}

// Credential rotates an API key or an HMAC secret. The new credential has the name, scope, signatures and
// expiry of the old one. It returns CodeConflict if the old credential is not live, or if the tenant has the
// maximum number of live credentials of the kind.
func (s Rotations) Credential(ctx context.Context, by Rotating, old metering.CredentialID, fresh metering.Credential) (made metering.Credential, begun metering.Rotation, err error) {
	begun, err = s.begin(ctx, by, old, func(tx pgx.Tx, r metering.Rotation) (metering.CredentialID, error) {
		err := tx.QueryRow(ctx, `select name, scope, coalesce(signatures, '') from credentials where tenant_id = $1 and kind = $2 and id = $3`,
			by.Tenant, old.Kind, old.Number).Scan(&fresh.Name, &fresh.Scope, &fresh.Signatures)
		if err != nil {
			return metering.CredentialID{}, err
		}
		fresh.ExpiresAt = r.OldExpiresAt
		made, err = addCredential(ctx, tx, by.Tenant, by.Actor, old.Kind, fresh, by.Now)
		return made.ID, err
	})
	return made, begun, err
}

// WebhookSecret rotates the signing secret of an endpoint. Messages are signed with the new secret, which
// the caller has sealed, and with the old one too during the overlap. An even older secret stops signing.
func (s Rotations) WebhookSecret(ctx context.Context, by Rotating, id metering.EndpointID, sealed []byte, lastFour string) (changed metering.Endpoint, begun metering.Rotation, err error) {
	secret := webhookSecret(id)
	begun, err = s.begin(ctx, by, secret, func(tx pgx.Tx, _ metering.Rotation) (metering.CredentialID, error) {
		_, err := tx.Exec(ctx, `
			update webhook_endpoints
			set former_secret = secret, secret = $3, secret_last_four = $4
			where tenant_id = $1
			  and id = $2`, by.Tenant, id, sealed, lastFour)
		return secret, err
	})
	if err != nil {
		return changed, begun, err
	}
	changed, err = Webhooks(s).Get(ctx, by.Tenant, id)
	return changed, begun, err
}

func webhookSecret(id metering.EndpointID) metering.CredentialID {
	return metering.CredentialID{Kind: metering.WebhookCredential, Number: int64(id)}
}

// begin starts a rotation of a credential. succeed creates the new credential and returns its ID. If the
// credential has a running rotation, the new rotation supersedes it.
func (s Rotations) begin(ctx context.Context, by Rotating, old metering.CredentialID, succeed func(pgx.Tx, metering.Rotation) (metering.CredentialID, error)) (r metering.Rotation, err error) {
	now := metering.Instant(by.Now)
	r = metering.Rotation{TenantID: by.Tenant, OldID: old, CreatedAt: now, Until: now.Add(by.Overlap)}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockAccess(ctx, tx, by.Tenant); err != nil {
			return err
		}
		if err := lockLive(ctx, tx, &r); err != nil {
			return err
		}
		if err := supersede(ctx, tx, &r); err != nil {
			return err
		}
		if r.OldExpiresAt != nil && r.OldExpiresAt.Before(r.Until) {
			r.Until = *r.OldExpiresAt
		}
		if err := endOldAt(ctx, tx, r, &r.Until); err != nil {
			return err
		}
		if r.NewID, err = succeed(tx, r); err != nil {
			return err
		}
		if err := insertRotation(ctx, tx, by.Actor, &r); err != nil {
			return err
		}
		if err := auditOld(ctx, tx, r, by.Actor, credentialKinds[old.Kind].rotated, audit.Fields{"valid_until": r.Until.UTC()}); err != nil || now.Before(r.Until) {
			return err
		}
		return endOld(ctx, tx, &r, metering.RotationExpired, by.Actor, now)
	})
	if err != nil {
		return metering.Rotation{}, fmt.Errorf("rotate %s: %w", old.Kind, err)
	}
	return r, nil
}

// lockLive locks the old credential. It returns CodeConflict if the credential is revoked or expired.
func lockLive(ctx context.Context, tx pgx.Tx, r *metering.Rotation) error {
	expiresAt, revokedAt, err := lockOld(ctx, tx, *r)
	if err != nil {
		return err
	}
	if revokedAt != nil || expiresAt != nil && !r.CreatedAt.Before(*expiresAt) {
		return credentialKinds[r.OldID.Kind].dead
	}
	r.OldExpiresAt = expiresAt
	return nil
}

// supersede ends the running rotation of the same credential, if there is one. It sets r.OldExpiresAt to the
// expiry that the credential had before that rotation.
func supersede(ctx context.Context, tx pgx.Tx, r *metering.Rotation) error {
	err := tx.QueryRow(ctx, `
		update credential_rotations
		set ended_at = $4, outcome = 'superseded', run_due_at = $4
		where tenant_id = $1
		  and kind = $2
		  and old_id = $3
		  and ended_at is null
		returning old_expires_at`, r.TenantID, r.OldID.Kind, r.OldID.Number, r.CreatedAt).Scan(&r.OldExpiresAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

func insertRotation(ctx context.Context, tx pgx.Tx, actor metering.Actor, r *metering.Rotation) error {
	return tx.QueryRow(ctx, `
		insert into credential_rotations (tenant_id, kind, old_id, new_id, actor, created_at, overlap_until, old_expires_at, run_due_at)
		values (@tenant, @kind, @old, @new, @actor, @now, @until, @expires, @due)
		returning id`, pgx.NamedArgs{
		"tenant": r.TenantID, "kind": r.OldID.Kind, "old": r.OldID.Number, "new": r.NewID.Number, "actor": actor, "now": r.CreatedAt,
		"until": r.Until, "expires": r.OldExpiresAt, "due": r.CreatedAt.Add(deliveryLease),
	}).Scan(&r.ID)
}

// endOld revokes the old credential at the given instant, and ends its rotation.
func endOld(ctx context.Context, tx pgx.Tx, r *metering.Rotation, outcome metering.RotationOutcome, actor metering.Actor, at time.Time) error {
	if err := revokeOld(ctx, tx, *r, at); err != nil {
		return err
	}
	if err := recordEnd(ctx, tx, r, outcome, at); err != nil {
		return err
	}
	return auditOld(ctx, tx, *r, actor, credentialKinds[r.OldID.Kind].revoked, audit.Fields{"revoked": true})
}

func recordEnd(ctx context.Context, tx pgx.Tx, r *metering.Rotation, outcome metering.RotationOutcome, at time.Time) error {
	r.EndedAt, r.Outcome = &at, outcome
	_, err := tx.Exec(ctx, `
		update credential_rotations
		set ended_at = $3, outcome = $4
		where tenant_id = $1
		  and id = $2`, r.TenantID, r.ID, at, outcome)
	return err
}

// End revokes the old credential if the overlap is over, or if atOnce is set because an operator requested
// it. It returns the resulting rotation. Ending a rotation again changes nothing.
func (s Rotations) End(ctx context.Context, tenant metering.TenantID, id metering.RotationID, atOnce bool, now time.Time) (metering.Rotation, error) {
	return s.change(ctx, tenant, id, func(tx pgx.Tx, r *metering.Rotation) error {
		switch {
		case !now.Before(r.Until):
			return endOld(ctx, tx, r, metering.RotationExpired, metering.Scheduler, r.Until)
		case atOnce:
			return endOld(ctx, tx, r, metering.RotationFinished, metering.Operator, metering.Instant(now))
		}
		return nil
	})
}

// Keep cancels a rotation: each credential stays valid until its own expiry. If the overlap is already over, Keep
// revokes the old credential instead.
func (s Rotations) Keep(ctx context.Context, tenant metering.TenantID, id metering.RotationID, now time.Time) (metering.Rotation, error) {
	return s.change(ctx, tenant, id, func(tx pgx.Tx, r *metering.Rotation) error {
		if !now.Before(r.Until) {
			return endOld(ctx, tx, r, metering.RotationExpired, metering.Scheduler, r.Until)
		}
		if err := endOldAt(ctx, tx, *r, r.OldExpiresAt); err != nil {
			return err
		}
		if err := recordEnd(ctx, tx, r, metering.RotationKept, metering.Instant(now)); err != nil {
			return err
		}
		return auditOld(ctx, tx, *r, metering.Operator, credentialKinds[r.OldID.Kind].kept, audit.Fields{"replaced": false})
	})
}

// Warn records in the audit log, once and before the overlap ends, that the old credential is still used.
func (s Rotations) Warn(ctx context.Context, tenant metering.TenantID, id metering.RotationID, now time.Time) (metering.Rotation, error) {
	return s.change(ctx, tenant, id, func(tx pgx.Tx, r *metering.Rotation) error {
		if !r.StillUsed() || r.WarnedAt != nil || !now.Before(r.Until) {
			return nil
		}
		r.WarnedAt = new(metering.Instant(now))
		_, err := tx.Exec(ctx, `update credential_rotations set warned_at = $3 where tenant_id = $1 and id = $2`, tenant, id, r.WarnedAt)
		if err != nil {
			return err
		}
		return auditOld(ctx, tx, *r, metering.Scheduler, credentialKinds[r.OldID.Kind].stillUsed, audit.Fields{"valid_until": r.Until.UTC()})
	})
}

// change locks the credential and runs fn on its rotation, unless the rotation has ended.
func (s Rotations) change(ctx context.Context, tenant metering.TenantID, id metering.RotationID, fn func(pgx.Tx, *metering.Rotation) error) (r metering.Rotation, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if r, err = readRotation(ctx, tx, tenant, id, ""); err != nil {
			return err
		}
		if _, _, err := lockOld(ctx, tx, r); err != nil && metering.CodeOf(err) != metering.CodeNotFound { // an endpoint may be deleted
			return err
		}
		if r, err = readRotation(ctx, tx, tenant, id, "for update of r"); err != nil || r.EndedAt != nil {
			return err
		}
		return fn(tx, &r)
	})
	if err != nil {
		return metering.Rotation{}, fmt.Errorf("change rotation: %w", err)
	}
	return r, nil
}

// Watch returns a rotation to the run that watches it, and postpones the start of another run: until
// deliveryLease after the overlap, or indefinitely if the rotation has ended. If another transaction ends the
// rotation, a run becomes due at once.
func (s Rotations) Watch(ctx context.Context, tenant metering.TenantID, id metering.RotationID) (r metering.Rotation, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if r, err = readRotation(ctx, tx, tenant, id, "for update of r"); err != nil {
			return err
		}
		var due *time.Time
		if r.EndedAt == nil {
			due = new(r.Until.Add(deliveryLease))
		}
		_, err = tx.Exec(ctx, `update credential_rotations set run_due_at = $3 where tenant_id = $1 and id = $2`, tenant, id, due)
		return err
	})
	if err != nil {
		return metering.Rotation{}, fmt.Errorf("watch rotation: %w", err)
	}
	return r, nil
}

// UnwatchedRotation identifies a rotation for which a run is due.
type UnwatchedRotation struct {
	Tenant metering.TenantID
	ID     metering.RotationID
}

// Unwatched returns the rotations of all tenants for which a run is due, at most 1000. It postpones the due
// time of each by deliveryLease, so that only one caller gets a rotation. That caller starts the run.
func (s Rotations) Unwatched(ctx context.Context, now time.Time) ([]UnwatchedRotation, error) {
	rows, err := s.pool.Query(ctx, `
		with due as (
		  select tenant_id, id
		  from credential_rotations
		  where run_due_at <= $1
		  order by run_due_at
		  limit 1000
		  for update skip locked)
		update credential_rotations r
		set run_due_at = $2
		from due
		where r.tenant_id = due.tenant_id
		  and r.id = due.id
		returning r.tenant_id, r.id`, now, now.Add(deliveryLease))
	if err != nil {
		return nil, fmt.Errorf("find unwatched rotations: %w", pg.Coded(err))
	}
	unwatched, err := pgx.CollectRows(rows, pgx.RowToStructByPos[UnwatchedRotation])
	if err != nil {
		return nil, fmt.Errorf("find unwatched rotations: %w", pg.Coded(err))
	}
	return unwatched, nil
}

// endRevokedRotation ends the rotation, if any, of an old credential that the transaction has revoked. It makes
// a run of the rotation due at once.
func endRevokedRotation(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, old metering.CredentialID) error {
	_, err := tx.Exec(ctx, `
		update credential_rotations
		set ended_at = now(), outcome = 'revoked', run_due_at = now()
		where tenant_id = $1
		  and kind = $2
		  and old_id = $3
		  and ended_at is null`, tenant, old.Kind, old.Number)
	return err
}
