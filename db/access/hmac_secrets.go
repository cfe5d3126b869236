package access

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// HMACSecrets stores the sealed secrets with which tenants' services sign requests.
type HMACSecrets struct{ pool pg.Beginner }

// Signers is a tenant with its secrets that are not revoked, and the two that were revoked last. The caller
// checks whether a secret has expired, because only the caller has the current time.
type Signers struct {
	Tenant  metering.Tenant
	Secrets []metering.HMACSecret
}

const hmacSecretColumns = `h.tenant_id, h.id, h.name, h.scope, h.signatures, h.secret, h.last_four, h.created_at, h.created_by, h.handed_to, h.expires_at, h.revoked_at, h.last_used_at`

func hmacSecretFields(h *metering.HMACSecret) []any {
	return []any{&h.TenantID, &h.ID, &h.Name, &h.Scope, &h.Signatures, &h.Sealed, &h.LastFour, &h.CreatedAt, &h.CreatedBy, &h.HandedTo, &h.ExpiresAt, &h.RevokedAt, &h.LastUsedAt}
}

var rotatedHMACSecretColumns = hmacSecretColumns + inRotation(metering.HMACSecretCredential, "hmac_secrets", "h")

func rotatedHMACSecretFields(h *metering.HMACSecret) []any {
	return append(hmacSecretFields(h), &h.SuccessorID, &h.OldLastUsedAt)
}

// Create stores a sealed secret. The default of Signatures is SignaturesV1AndV2. It returns CodeConflict if
// the tenant has the maximum number of live secrets at now.
func (s HMACSecrets) Create(ctx context.Context, tenant metering.TenantID, actor metering.Actor, secret metering.HMACSecret, now time.Time) (created metering.HMACSecret, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockAccess(ctx, tx, tenant); err != nil {
			return err
		}
		created, err = addHMACSecret(ctx, tx, tenant, actor, secret, now)
		return err
	})
	return created, err
}

// hmacSecretLimit limits the HMAC secrets of a tenant that are neither revoked nor expired.
var hmacSecretLimit = pg.Limit{
	Count: `select count(*) from hmac_secrets where tenant_id = @tenant and revoked_at is null and (expires_at is null or expires_at > @now)`,
	Most:  metering.MaxHMACSecrets, Noun: "valid HMAC secrets", Fix: "revoke one first",
}

func addHMACSecret(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, secret metering.HMACSecret, now time.Time) (created metering.HMACSecret, err error) {
	if err := holdMaker(ctx, tx, tenant, actor); err != nil {
		return created, err
	}
	if err := pg.RequireRoom(ctx, tx, tenant, hmacSecretLimit.At(now)); err != nil {
		return created, err
	}
	err = tx.QueryRow(ctx, `
		insert into hmac_secrets as h (tenant_id, name, scope, signatures, secret, last_four, created_by, expires_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8)
		returning `+hmacSecretColumns,
		tenant, secret.Name, secret.Scope, cmp.Or(secret.Signatures, metering.SignaturesV1AndV2), secret.Sealed, secret.LastFour, actor, secret.ExpiresAt).Scan(hmacSecretFields(&created)...)
	if err != nil {
		return created, err
	}
	made := auditedCredential(created.Name, created.Scope, created.LastFour, created.ExpiresAt)
	made["signatures"] = created.Signatures
	return created, audit.RecordChange(ctx, tx, tenant, actor, "hmac_secret.create", created.ID.String(), nil, made)
}

// Signers returns the signers of these tenants, by tenant. Tenants without secrets are absent. It takes any
// tenants, because the signed requests are not authenticated yet.
func (s HMACSecrets) Signers(ctx context.Context, tenants []metering.TenantID) (map[metering.TenantID]Signers, error) {
	rows, err := s.pool.Query(ctx, `
		select `+hmacSecretColumns+`, `+TenantColumns+`
		from hmac_secrets h join tenants t on t.id = h.tenant_id
		where h.tenant_id = any($1)
		  and (h.revoked_at is null or h.id in (
		    select r.id
		    from hmac_secrets r
		    where r.tenant_id = h.tenant_id
		      and r.revoked_at is not null
		    order by r.revoked_at desc
		    limit 2))`, tenants)
	if err != nil {
		return nil, pg.Coded(err)
	}
	found := make(map[metering.TenantID]Signers, len(tenants))
	var h metering.HMACSecret
	var t metering.Tenant
	_, err = pgx.ForEachRow(rows, append(hmacSecretFields(&h), TenantFields(&t)...), func() error {
		found[t.ID] = Signers{t, append(found[t.ID].Secrets, h)}
		return nil
	})
	return found, pg.Coded(err)
}

// Get returns a secret, still sealed, or CodeNotFound.
func (s HMACSecrets) Get(ctx context.Context, tenant metering.TenantID, id metering.HMACSecretID) (h metering.HMACSecret, err error) {
	err = s.pool.QueryRow(ctx, `select `+rotatedHMACSecretColumns+` from hmac_secrets h where h.tenant_id = $1 and h.id = $2`,
		tenant, id).Scan(rotatedHMACSecretFields(&h)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return h, errNoHMACSecret
	}
	return h, pg.Coded(err)
}

var errNoHMACSecret = metering.Errorf(metering.CodeNotFound, "there is no such HMAC secret")

// List returns the tenant's secrets before the given one, still sealed, newest first; 0 starts at the
// newest.
func (s HMACSecrets) List(ctx context.Context, tenant metering.TenantID, before metering.HMACSecretID, limit int) (page pg.Page[metering.HMACSecret], err error) {
	rows, err := s.pool.Query(ctx, `
		select `+rotatedHMACSecretColumns+` from hmac_secrets h
		where h.tenant_id = $1
		  and ($2 = 0 or h.id < $2)
		order by h.id desc
		limit $3`, tenant, before, limit+1)
	if err != nil {
		return page, pg.Coded(err)
	}
	page, err = pg.ReadPage(ctx, rows, limit, func(row pgx.CollectableRow) (h metering.HMACSecret, err error) {
		return h, row.Scan(rotatedHMACSecretFields(&h)...)
	})
	return page, pg.Coded(err)
}

// Revoke revokes a secret, with effect when Revoke returns, and ends the secret's rotation. Revoking again
// changes nothing.
func (s HMACSecrets) Revoke(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.HMACSecretID) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error { return revokeHMACSecret(ctx, tx, tenant, actor, id) })
}

func revokeHMACSecret(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, id metering.HMACSecretID) error {
	tag, err := tx.Exec(ctx, `
		update hmac_secrets set revoked_at = coalesce(revoked_at, now()) where tenant_id = $1 and id = $2`, tenant, id)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return errNoHMACSecret
	}
	if err := revokedInRotation(ctx, tx, tenant, metering.HMACSecretCredential, int64(id)); err != nil {
		return err
	}
	return audit.RecordChange(ctx, tx, tenant, actor, "hmac_secret.revoke", id.String(), nil, audit.Fields{"revoked": true})
}

// SecretUse identifies a secret that a request has used.
type SecretUse struct {
	Tenant metering.TenantID
	Secret metering.HMACSecretID
}

// Used records the last use of secrets of any tenants, at most once a minute per secret.
func (s HMACSecrets) Used(ctx context.Context, uses []SecretUse, now time.Time) error {
	tenants, secrets := make([]metering.TenantID, len(uses)), make([]int64, len(uses))
	for i, u := range uses {
		tenants[i], secrets[i] = u.Tenant, int64(u.Secret)
	}
	return noteUses(ctx, s.pool, "hmac_secrets", tenants, secrets, now)
}
