package access

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Credentials are the API keys and HMAC secrets of all tenants.
type Credentials struct{ pool *pg.Pool }

// expiringCredential is a credential that its tenant has to replace soon.
type expiringCredential struct {
	Tenant    metering.TenantID
	ID        string // in the format of the API
	ExpiresAt time.Time
}

// ReportExpiring publishes, once for each credential, that an API key or HMAC secret
// expires within metering.ExpiryNotice. It returns the number of credentials, at most
// limit of each kind. A credential is not reported if it was created within the notice, is
// revoked or is being replaced.
func (s Credentials) ReportExpiring(ctx context.Context, now time.Time, limit int) (reported int, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		for kind, stored := range map[metering.CredentialKind]struct{ table, prefix string }{
			metering.APIKeyCredential:     {"api_keys", "key_"},
			metering.HMACSecretCredential: {"hmac_secrets", "sec_"},
		} {
			expiring, err := markExpiring(ctx, tx, kind, stored.table, stored.prefix, now, limit)
			if err != nil {
				return err
			}
			for _, c := range expiring {
				message := outbox.CredentialExpiring{CredentialID: c.ID, Credential: kind, ExpiresAt: c.ExpiresAt.UTC()}
				if err := outbox.Publish(ctx, tx, c.Tenant, metering.WholeTenant, message, now); err != nil {
					return err
				}
			}
			reported += len(expiring)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("report expiring credentials: %w", err)
	}
	return reported, nil
}

// markExpiring sets expiry_reported_at of the credentials to report, and returns them.
func markExpiring(ctx context.Context, tx pgx.Tx, kind metering.CredentialKind, table, prefix string, now time.Time, limit int) ([]expiringCredential, error) {
	rows, err := tx.Query(ctx, `
		with expiring as (
		  select c.tenant_id, c.id
		  from `+table+` c
		  where c.expires_at > @now
		    and c.expires_at <= @now::timestamptz + @notice::interval
		    and c.created_at <= c.expires_at - @notice::interval
		    and c.revoked_at is null
		    and c.expiry_reported_at is null
		    and not exists (
		      select
		      from credential_rotations r
		      where r.tenant_id = c.tenant_id
		        and r.kind = @kind
		        and r.old_id = c.id
		        and r.ended_at is null)
		  order by c.expires_at
		  limit @limit
		  for update of c skip locked)
		update `+table+` c
		set expiry_reported_at = @now
		from expiring e
		where c.tenant_id = e.tenant_id
		  and c.id = e.id
		returning c.tenant_id, '`+prefix+`' || c.id, c.expires_at`, pgx.NamedArgs{
		"kind": kind, "now": metering.Instant(now), "notice": metering.ExpiryNotice, "limit": limit,
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[expiringCredential])
}
