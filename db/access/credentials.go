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

// Credentials stores API keys as keyed hashes, and sealed HMAC secrets. The keys are not stored.
type Credentials struct{ pool pg.Beginner }

const credentialColumns = `c.tenant_id, c.kind, c.id, c.name, c.scope, c.last_four, c.created_at, c.created_by, c.handed_to, c.expires_at, c.revoked_at, c.last_used_at,
	c.secret, coalesce(c.signatures, '')`

func credentialFields(c *metering.Credential) []any {
	return []any{
		&c.TenantID, &c.ID.Kind, &c.ID.Number, &c.Name, &c.Scope, &c.LastFour, &c.CreatedAt, &c.CreatedBy, &c.HandedTo, &c.ExpiresAt, &c.RevokedAt, &c.LastUsedAt,
		&c.Sealed, &c.Signatures,
	}
}

// rotatedColumns adds the number of a credential's successor, and the last use of its predecessor.
const rotatedColumns = credentialColumns + `,
	(select r.new_id
	  from credential_rotations r
	  where r.tenant_id = c.tenant_id and r.kind = c.kind and r.old_id = c.id
	    and coalesce(r.outcome, '') not in ('kept', 'superseded')
	  order by r.id desc
	  limit 1),
	(select o.last_used_at
	  from credential_rotations r
	  join credentials o on o.tenant_id = r.tenant_id and o.kind = r.kind and o.id = r.old_id
	  where r.tenant_id = c.tenant_id and r.kind = c.kind and r.new_id = c.id and r.ended_at is null)`

func scanRotated(row pgx.Row) (c metering.Credential, err error) {
	var successor *int64
	err = row.Scan(append(credentialFields(&c), &successor, &c.OldLastUsedAt)...)
	if successor != nil {
		c.SuccessorID = &metering.CredentialID{Kind: c.ID.Kind, Number: *successor}
	}
	return c, err
}

// Create stores the hash of a key or a sealed secret. The default of a secret's Signatures is
// SignaturesV1AndV2. It returns CodeConflict if the tenant has the maximum number of live credentials of the
// kind at now.
func (s Credentials) Create(ctx context.Context, tenant metering.TenantID, actor metering.Actor, kind metering.CredentialKind, c metering.Credential, now time.Time) (created metering.Credential, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockAccess(ctx, tx, tenant); err != nil {
			return err
		}
		created, err = addCredential(ctx, tx, tenant, actor, kind, c, now)
		return err
	})
	return created, err
}

func addCredential(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, kind metering.CredentialKind, c metering.Credential, now time.Time) (created metering.Credential, err error) {
	if err := lockResponsible(ctx, tx, tenant, actor); err != nil {
		return created, err
	}
	if err := pg.RequireRoom(ctx, tx, tenant, credentialKinds[kind].limit.At(now)); err != nil {
		return created, err
	}
	if kind == metering.HMACSecretCredential {
		c.Signatures = cmp.Or(c.Signatures, metering.SignaturesV1AndV2)
	}
	err = tx.QueryRow(ctx, `
		insert into credentials as c (tenant_id, kind, name, scope, hash, secret, signatures, last_four, created_by, expires_at)
		values ($1, $2, $3, $4, $5, $6, nullif($7, ''), $8, $9, $10)
		returning `+credentialColumns,
		tenant, kind, c.Name, c.Scope, c.Hash, c.Sealed, c.Signatures, c.LastFour, actor, c.ExpiresAt).Scan(credentialFields(&created)...)
	if err != nil {
		return created, err
	}
	made := audit.Fields{"name": created.Name, "scope": created.Scope, "last_four": created.LastFour, "expires_at": created.ExpiresAt, "secret": audit.Secret(true)}
	if created.Signatures != "" {
		made["signatures"] = created.Signatures
	}
	return created, audit.RecordChange(ctx, tx, tenant, actor, credentialKinds[kind].created, created.ID.String(), nil, made)
}

// TenantKey is an API key and its tenant. The caller checks whether the key is expired or revoked, because
// only the caller has the current time.
type TenantKey struct {
	Key    metering.Credential
	Tenant metering.Tenant
}

// ByHash returns the API keys with these hashes, by hash. It searches all tenants, because the key of a
// request determines the tenant.
func (s Credentials) ByHash(ctx context.Context, hashes []string) (map[string]*TenantKey, error) {
	wanted := make([][]byte, len(hashes))
	for i, hash := range hashes {
		wanted[i] = []byte(hash)
	}
	rows, err := s.pool.Query(ctx, `
		select c.hash, `+credentialColumns+`, `+TenantColumns+`
		from credentials c join tenants t on t.id = c.tenant_id
		where c.hash = any($1)`, wanted)
	if err != nil {
		return nil, pg.Coded(err)
	}
	found := make(map[string]*TenantKey, len(hashes))
	var hash []byte
	var k TenantKey
	fields := append([]any{&hash}, credentialFields(&k.Key)...)
	_, err = pgx.ForEachRow(rows, append(fields, TenantFields(&k.Tenant)...), func() error {
		found[string(hash)] = new(k)
		return nil
	})
	return found, pg.Coded(err)
}

// Signers is a tenant with its HMAC secrets that are not revoked, and the two that were revoked last. The
// caller checks whether a secret has expired, because only the caller has the current time.
type Signers struct {
	Tenant  metering.Tenant
	Secrets []metering.Credential
}

// Signers returns the signers of these tenants, by tenant. Tenants without secrets are absent. It takes any
// tenants, because the signed requests are not authenticated yet.
func (s Credentials) Signers(ctx context.Context, tenants []metering.TenantID) (map[metering.TenantID]Signers, error) {
	rows, err := s.pool.Query(ctx, `
		select `+credentialColumns+`, `+TenantColumns+`
		from credentials c join tenants t on t.id = c.tenant_id
		where c.tenant_id = any($1)
		  and c.kind = 'hmac_secret'
		  and (c.revoked_at is null or c.id in (
		    select r.id
		    from credentials r
		    where r.tenant_id = c.tenant_id
		      and r.kind = c.kind
		      and r.revoked_at is not null
		    order by r.revoked_at desc
		    limit 2))`, tenants)
	if err != nil {
		return nil, pg.Coded(err)
	}
	found := make(map[metering.TenantID]Signers, len(tenants))
	var c metering.Credential
	var t metering.Tenant
	_, err = pgx.ForEachRow(rows, append(credentialFields(&c), TenantFields(&t)...), func() error {
		found[t.ID] = Signers{t, append(found[t.ID].Secrets, c)}
		return nil
	})
	return found, pg.Coded(err)
}

// Get returns a credential, or CodeNotFound. A secret is still sealed.
func (s Credentials) Get(ctx context.Context, tenant metering.TenantID, id metering.CredentialID) (metering.Credential, error) {
	c, err := scanRotated(s.pool.QueryRow(ctx, `select `+rotatedColumns+` from credentials c where c.tenant_id = $1 and c.kind = $2 and c.id = $3`,
		tenant, id.Kind, id.Number))
	if errors.Is(err, pgx.ErrNoRows) {
		return c, credentialKinds[id.Kind].missing
	}
	return c, pg.Coded(err)
}

// List returns up to limit of the tenant's credentials of a kind, newest first. If before is not 0, it returns only
// credentials with a smaller number. Secrets are still sealed.
func (s Credentials) List(ctx context.Context, tenant metering.TenantID, kind metering.CredentialKind, before int64, limit int) (page pg.Page[metering.Credential], err error) {
	rows, err := s.pool.Query(ctx, `
		select `+rotatedColumns+` from credentials c
		where c.tenant_id = $1
		  and c.kind = $2
		  and ($3 = 0 or c.id < $3)
		order by c.id desc
		limit $4`, tenant, kind, before, limit+1)
	if err != nil {
		return page, pg.Coded(err)
	}
	page, err = pg.ReadPage(ctx, rows, limit, func(row pgx.CollectableRow) (metering.Credential, error) { return scanRotated(row) })
	return page, pg.Coded(err)
}

// Revoke revokes a credential, with effect when Revoke returns, and ends the credential's rotation. Revoking
// again changes nothing.
func (s Credentials) Revoke(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.CredentialID) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error { return revokeCredential(ctx, tx, tenant, actor, id) })
}

func revokeCredential(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, id metering.CredentialID) error {
	tag, err := tx.Exec(ctx, `
		update credentials set revoked_at = coalesce(revoked_at, now()) where tenant_id = $1 and kind = $2 and id = $3`, tenant, id.Kind, id.Number)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return credentialKinds[id.Kind].missing
	}
	if err := endRevokedRotation(ctx, tx, tenant, id); err != nil {
		return err
	}
	return audit.RecordChange(ctx, tx, tenant, actor, credentialKinds[id.Kind].revoked, id.String(), nil, audit.Fields{"revoked": true})
}

// CredentialUse identifies a credential that a request has used.
type CredentialUse struct {
	Tenant metering.TenantID
	ID     metering.CredentialID
}

// Used records the last use of credentials of any tenants, at most once a minute per credential. It skips
// credentials that another transaction has locked.
func (s Credentials) Used(ctx context.Context, uses []CredentialUse, now time.Time) error {
	tenants, kinds, numbers := make([]metering.TenantID, len(uses)), make([]metering.CredentialKind, len(uses)), make([]int64, len(uses))
	for i, u := range uses {
		tenants[i], kinds[i], numbers[i] = u.Tenant, u.ID.Kind, u.ID.Number
	}
	_, err := s.pool.Exec(ctx, `
		with used as (
		  select c.tenant_id, c.kind, c.id
		  from unnest($1::bigint[], $2::text[], $3::bigint[]) as u (tenant_id, kind, id)
		  join credentials c on c.tenant_id = u.tenant_id and c.kind = u.kind and c.id = u.id
		  where c.last_used_at is null or c.last_used_at <= $4::timestamptz - interval '1 minute'
		  for no key update of c skip locked
		)
		update credentials c set last_used_at = $4
		from used u
		where c.tenant_id = u.tenant_id and c.kind = u.kind and c.id = u.id`, tenants, kinds, numbers, now)
	return pg.Coded(err)
}
