package access

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// APIKeys stores the keyed hashes of API keys. The keys are not stored.
type APIKeys struct{ pool pg.Beginner }

// Credential is an API key and its tenant, found by the key's hash. The caller checks whether the key is
// expired or revoked, because only the caller has the current time.
type Credential struct {
	Key    metering.APIKey
	Tenant metering.Tenant
}

const apiKeyColumns = `k.tenant_id, k.id, k.name, k.scope, k.last_four, k.created_at, k.created_by, k.handed_to, k.expires_at, k.revoked_at, k.last_used_at`

var rotatedAPIKeyColumns = apiKeyColumns + inRotation(metering.APIKeyCredential, "api_keys", "k")

func rotatedAPIKeyFields(k *metering.APIKey) []any {
	return append(apiKeyFields(k), &k.SuccessorID, &k.OldLastUsedAt)
}

func apiKeyFields(k *metering.APIKey) []any {
	return []any{&k.TenantID, &k.ID, &k.Name, &k.Scope, &k.LastFour, &k.CreatedAt, &k.CreatedBy, &k.HandedTo, &k.ExpiresAt, &k.RevokedAt, &k.LastUsedAt}
}

// Create stores a key under its keyed hash. It returns CodeConflict if the tenant has the maximum number of
// live keys at now.
func (s APIKeys) Create(ctx context.Context, tenant metering.TenantID, actor metering.Actor, key metering.APIKey, hash []byte, now time.Time) (created metering.APIKey, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockAccess(ctx, tx, tenant); err != nil {
			return err
		}
		created, err = addAPIKey(ctx, tx, tenant, actor, key, hash, now)
		return err
	})
	return created, err
}

// keyLimit limits the API keys of a tenant that are neither revoked nor expired.
var keyLimit = pg.Limit{
	Count: `select count(*) from api_keys where tenant_id = @tenant and revoked_at is null and (expires_at is null or expires_at > @now)`,
	Most:  metering.MaxAPIKeys, Noun: "valid API keys", Fix: "revoke one first",
}

func addAPIKey(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, key metering.APIKey, hash []byte, now time.Time) (created metering.APIKey, err error) {
	if err := holdMaker(ctx, tx, tenant, actor); err != nil {
		return created, err
	}
	if err := pg.RequireRoom(ctx, tx, tenant, keyLimit.At(now)); err != nil {
		return created, err
	}
	err = tx.QueryRow(ctx, `
		insert into api_keys as k (tenant_id, name, scope, hash, last_four, created_by, expires_at)
		values ($1, $2, $3, $4, $5, $6, $7)
		returning `+apiKeyColumns,
		tenant, key.Name, key.Scope, hash, key.LastFour, actor, key.ExpiresAt).Scan(apiKeyFields(&created)...)
	if err != nil {
		return created, err
	}
	made := auditedCredential(created.Name, created.Scope, created.LastFour, created.ExpiresAt)
	return created, audit.RecordChange(ctx, tx, tenant, actor, "api_key.create", created.ID.String(), nil, made)
}

// Credentials returns the credentials with these hashes, by hash. It searches all tenants, because the key of
// a request determines the tenant.
func (s APIKeys) Credentials(ctx context.Context, hashes []string) (map[string]*Credential, error) {
	wanted := make([][]byte, len(hashes))
	for i, hash := range hashes {
		wanted[i] = []byte(hash)
	}
	rows, err := s.pool.Query(ctx, `
		select k.hash, `+apiKeyColumns+`, `+TenantColumns+`
		from api_keys k join tenants t on t.id = k.tenant_id
		where k.hash = any($1)`, wanted)
	if err != nil {
		return nil, pg.Coded(err)
	}
	found := make(map[string]*Credential, len(hashes))
	for rows.Next() {
		var hash []byte
		c := new(Credential)
		fields := append([]any{&hash}, apiKeyFields(&c.Key)...)
		if err := rows.Scan(append(fields, TenantFields(&c.Tenant)...)...); err != nil {
			rows.Close()
			return nil, pg.Coded(err)
		}
		found[string(hash)] = c
	}
	return found, pg.Coded(rows.Err())
}

// List returns the tenant's keys before the given one, newest first; 0 starts at the newest.
func (s APIKeys) List(ctx context.Context, tenant metering.TenantID, before metering.KeyID, limit int) (page pg.Page[metering.APIKey], err error) {
	rows, err := s.pool.Query(ctx, `
		select `+rotatedAPIKeyColumns+` from api_keys k
		where k.tenant_id = $1
		  and ($2 = 0 or k.id < $2)
		order by k.id desc
		limit $3`, tenant, before, limit+1)
	if err != nil {
		return page, pg.Coded(err)
	}
	page, err = pg.ReadPage(ctx, rows, limit, func(row pgx.CollectableRow) (k metering.APIKey, err error) {
		return k, row.Scan(rotatedAPIKeyFields(&k)...)
	})
	return page, pg.Coded(err)
}

// Get returns a key without its secret, or CodeNotFound.
func (s APIKeys) Get(ctx context.Context, tenant metering.TenantID, id metering.KeyID) (k metering.APIKey, err error) {
	err = s.pool.QueryRow(ctx, `select `+rotatedAPIKeyColumns+` from api_keys k where k.tenant_id = $1 and k.id = $2`,
		tenant, id).Scan(rotatedAPIKeyFields(&k)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return k, errNoAPIKey
	}
	return k, pg.Coded(err)
}

var errNoAPIKey = metering.Errorf(metering.CodeNotFound, "there is no such API key")

// Revoke revokes a key, with effect when Revoke returns, and ends the key's rotation. Revoking
// again changes nothing.
func (s APIKeys) Revoke(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.KeyID) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error { return revokeAPIKey(ctx, tx, tenant, actor, id) })
}

func revokeAPIKey(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, id metering.KeyID) error {
	tag, err := tx.Exec(ctx, `
		update api_keys set revoked_at = coalesce(revoked_at, now()) where tenant_id = $1 and id = $2`, tenant, id)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return errNoAPIKey
	}
	if err := revokedInRotation(ctx, tx, tenant, metering.APIKeyCredential, int64(id)); err != nil {
		return err
	}
	return audit.RecordChange(ctx, tx, tenant, actor, "api_key.revoke", id.String(), nil, audit.Fields{"revoked": true})
}

// KeyUse identifies a key that a request has used.
type KeyUse struct {
	Tenant metering.TenantID
	Key    metering.KeyID
}

// Used records the last use of keys of any tenants, at most once a minute per key.
func (s APIKeys) Used(ctx context.Context, uses []KeyUse, now time.Time) error {
	tenants, keys := make([]metering.TenantID, len(uses)), make([]int64, len(uses))
	for i, u := range uses {
		tenants[i], keys[i] = u.Tenant, int64(u.Key)
	}
	return noteUses(ctx, s.pool, "api_keys", tenants, keys, now)
}

// noteUses sets last_used_at, at most once a minute per credential. It skips rows that another replica
// updates.
func noteUses(ctx context.Context, q pg.Querier, table string, tenants []metering.TenantID, ids []int64, now time.Time) error {
	_, err := q.Exec(ctx, `
		with used as (
		  select k.tenant_id, k.id
		  from unnest($1::bigint[], $2::bigint[]) as u (tenant_id, id)
		  join `+table+` k on k.tenant_id = u.tenant_id and k.id = u.id
		  where k.last_used_at is null or k.last_used_at <= $3::timestamptz - interval '1 minute'
		  for no key update of k skip locked
		)
		update `+table+` k set last_used_at = $3
		from used u
		where k.tenant_id = u.tenant_id and k.id = u.id`, tenants, ids, now)
	return pg.Coded(err)
}
