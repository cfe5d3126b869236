package access

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
)

// Secrets seals the stored secrets of all tenants with a new key.
type Secrets struct{ pool *pg.Pool }

// sealedColumns lists the columns with sealed secrets, and the purpose for which their secrets are
// sealed.
var sealedColumns = []struct {
	table, column string
	purpose       seal.Purpose
}{
	{"billing_connections", "secret", seal.ProviderSecret},
	{"billing_connections", "webhook_secret", seal.ProviderWebhookSecret},
	{"credentials", "secret", seal.SigningSecret},
	{"oidc_issuers", "client_secret", seal.OIDCSecret},
	{"webhook_endpoints", "secret", seal.EndpointSecret},
	{"webhook_endpoints", "former_secret", seal.EndpointSecret},
}

// Rewrapping is the result of sealing secrets again.
type Rewrapping struct {
	Sealed   int // secrets that were sealed again
	Unopened int // secrets that stay unchanged, because the keyring lacks their key
}

// Rewrap seals with the keyring's first key all secrets that were sealed with another key. It is idempotent
// and safe to run concurrently.
func (s Secrets) Rewrap(ctx context.Context, ring seal.Keyring) (done Rewrapping, err error) {
	for _, place := range sealedColumns {
		var after sealedSecret
		for {
			found, err := s.listSealedByOtherKeys(ctx, place.table, place.column, ring.First(), after)
			if err != nil {
				return done, fmt.Errorf("rewrap %s: %w", place.table, pg.Coded(err))
			}
			if len(found) == 0 {
				break
			}
			for _, secret := range found {
				if err := s.rewrap(ctx, place.table, place.column, place.purpose, ring, secret, &done); err != nil {
					return done, fmt.Errorf("rewrap %s: %w", place.table, err)
				}
			}
			after = found[len(found)-1]
		}
	}
	return done, nil
}

type sealedSecret struct {
	Tenant metering.TenantID
	Sealed []byte
}

// listSealedByOtherKeys returns the next secrets of a column, at most 100, that were not sealed with the first
// key of the ring.
func (s Secrets) listSealedByOtherKeys(ctx context.Context, table, column, first string, after sealedSecret) ([]sealedSecret, error) {
	const atOnce = 100
	rows, err := s.pool.Query(ctx, `
		select tenant_id, `+column+`
		from `+table+`
		where substring(`+column+` for length($1::bytea)) <> $1::bytea
		  and (tenant_id, `+column+`) > ($2, $3::bytea)
		order by tenant_id, `+column+`
		limit $4`, seal.Prefix(first), after.Tenant, append([]byte{}, after.Sealed...), atOnce)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[sealedSecret])
}

// rewrap seals one secret with the first key of the ring. If no key of the ring opens the secret, rewrap leaves it
// unchanged and counts it in done.Unopened.
func (s Secrets) rewrap(ctx context.Context, table, column string, purpose seal.Purpose, ring seal.Keyring, secret sealedSecret, done *Rewrapping) error {
	plain, err := ring.Open(secret.Tenant, purpose, secret.Sealed)
	if err != nil {
		done.Unopened++
		return nil //nolint:nilerr // the caller reports the count at the end, and rewraps the other secrets
	}
	sealed, err := ring.Seal(secret.Tenant, purpose, plain)
	if err != nil {
		return err
	}
	tag, err := s.pool.Exec(ctx, `update `+table+` set `+column+` = $3 where tenant_id = $1 and `+column+` = $2`,
		secret.Tenant, secret.Sealed, sealed)
	done.Sealed += int(tag.RowsAffected())
	return pg.Coded(err)
}
