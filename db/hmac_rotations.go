package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Rotate makes a secret that replaces another, of the same name, scope and
// expiry. The old one is valid until then, and no longer whatever happens.
// CodeConflict when it is not live now, or as many as may be are live besides.
func (s HMACSecrets) Rotate(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.HMACSecretID, fresh metering.HMACSecret, until, now time.Time) (created metering.HMACSecret, err error) {
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := oneAtATime(ctx, tx, tenant); err != nil {
			return err
		}
		old, err := lockHMACSecret(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		if !old.Live(now) {
			return metering.Errorf(metering.CodeConflict, "the secret is revoked or expired; create a new one")
		}
		err = tx.QueryRow(ctx, `
			update hmac_secrets
			set own_expires_at = case when successor_id is null then expires_at else own_expires_at end,
			  expires_at = least(case when successor_id is null then expires_at else own_expires_at end, $3)
			where tenant_id = $1
			  and id = $2
			returning name, scope, own_expires_at`, tenant, id, until).Scan(&fresh.Name, &fresh.Scope, &fresh.ExpiresAt)
		if err != nil {
			return err
		}
		if created, err = addHMACSecret(ctx, tx, tenant, actor, fresh, now); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `update hmac_secrets set successor_id = $3 where tenant_id = $1 and id = $2`, tenant, id, created.ID); err != nil {
			return err
		}
		return audit(ctx, tx, tenant, actor, "hmac_secret.rotate", id.String())
	})
	if err != nil {
		return metering.HMACSecret{}, fmt.Errorf("rotate secret: %w", err)
	}
	return created, nil
}

// Retire revokes a replaced secret whose overlap has ended, or at once where an
// operator says so. It returns the secret as it is then; repeating it changes
// nothing.
func (s HMACSecrets) Retire(ctx context.Context, tenant metering.TenantID, id metering.HMACSecretID, atOnce bool, now time.Time) (metering.HMACSecret, error) {
	return s.settle(ctx, tenant, id, func(tx pgx.Tx, old metering.HMACSecret) error {
		switch {
		case !old.Live(now):
			return revokeReplaced(ctx, tx, old, metering.Scheduler, *old.ExpiresAt)
		case atOnce:
			return revokeReplaced(ctx, tx, old, metering.Operator, now)
		}
		return nil
	})
}

// Keep calls a replacement off: both secrets stay valid, each for as long as it
// would be by itself. Once the overlap has ended it is too late, and the old one
// is revoked.
func (s HMACSecrets) Keep(ctx context.Context, tenant metering.TenantID, id metering.HMACSecretID, now time.Time) (metering.HMACSecret, error) {
	return s.settle(ctx, tenant, id, func(tx pgx.Tx, old metering.HMACSecret) error {
		if !old.Live(now) {
			return revokeReplaced(ctx, tx, old, metering.Scheduler, *old.ExpiresAt)
		}
		_, err := tx.Exec(ctx, `
			update hmac_secrets
			set expires_at = own_expires_at, own_expires_at = null, successor_id = null
			where tenant_id = $1
			  and id = $2`, tenant, id)
		if err != nil {
			return err
		}
		return audit(ctx, tx, tenant, metering.Operator, "hmac_secret.keep", id.String())
	})
}

// settle ends the overlap of a secret, unless it has ended already.
func (s HMACSecrets) settle(ctx context.Context, tenant metering.TenantID, id metering.HMACSecretID, end func(pgx.Tx, metering.HMACSecret) error) (settled metering.HMACSecret, err error) {
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		if settled, err = lockHMACSecret(ctx, tx, tenant, id); err != nil || settled.Overlap() != metering.BothValid {
			return err
		}
		if err := end(tx, settled); err != nil {
			return err
		}
		settled, err = lockHMACSecret(ctx, tx, tenant, id)
		return err
	})
	if err != nil {
		return metering.HMACSecret{}, fmt.Errorf("settle secret: %w", err)
	}
	return settled, nil
}

func revokeReplaced(ctx context.Context, tx pgx.Tx, old metering.HMACSecret, actor metering.Actor, at time.Time) error {
	_, err := tx.Exec(ctx, `update hmac_secrets set revoked_at = $3 where tenant_id = $1 and id = $2`, old.TenantID, old.ID, at)
	if err != nil {
		return err
	}
	return audit(ctx, tx, old.TenantID, actor, "hmac_secret.revoke", old.ID.String())
}

func lockHMACSecret(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, id metering.HMACSecretID) (h metering.HMACSecret, err error) {
	err = tx.QueryRow(ctx, `
		select `+hmacSecretColumns+`
		from hmac_secrets h
		where h.tenant_id = $1
		  and h.id = $2
		for update`, tenant, id).Scan(hmacSecretFields(&h)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return h, errNoHMACSecret
	}
	return h, err
}

// ReplacedSecret is one that is valid beside its successor, or whose revocation
// is not recorded yet.
type ReplacedSecret struct {
	Tenant metering.TenantID
	Secret metering.HMACSecretID
}

// Replaced lists, over all tenants, the replaced secrets whose overlap ends
// before `before`, the earliest first.
func (s HMACSecrets) Replaced(ctx context.Context, before time.Time) ([]ReplacedSecret, error) {
	rows, err := s.pool.Query(ctx, `
		select tenant_id, id
		from hmac_secrets
		where successor_id is not null
		  and revoked_at is null
		  and expires_at < $1
		order by expires_at
		limit 1000`, before)
	if err != nil {
		return nil, fmt.Errorf("list replaced secrets: %w", coded(err))
	}
	replaced, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ReplacedSecret])
	if err != nil {
		return nil, fmt.Errorf("list replaced secrets: %w", coded(err))
	}
	return replaced, nil
}
