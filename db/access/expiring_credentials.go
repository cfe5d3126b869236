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

// ReportExpiring publishes, once for each credential, that an API key or HMAC secret
// expires within metering.ExpiryNotice. It returns the number of credentials, at most
// limit. A credential is not reported if it was created within the notice, is revoked or is
// being replaced.
func (s Credentials) ReportExpiring(ctx context.Context, now time.Time, limit int) (reported int, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		expiring, err := markExpiring(ctx, tx, now, limit)
		if err != nil {
			return err
		}
		for _, c := range expiring {
			message := outbox.CredentialExpiring{CredentialID: c.ID.String(), Credential: c.ID.Kind, ExpiresAt: c.ExpiresAt.UTC()}
			if err := outbox.Publish(ctx, tx, c.TenantID, metering.WholeTenant, message, now); err != nil {
				return err
			}
		}
		reported = len(expiring)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("report expiring credentials: %w", err)
	}
	return reported, nil
}

// markExpiring sets expiry_reported_at of the credentials to report, and returns them.
func markExpiring(ctx context.Context, tx pgx.Tx, now time.Time, limit int) ([]metering.Credential, error) {
	rows, err := tx.Query(ctx, `
		with expiring as (
		  select c.tenant_id, c.kind, c.id
		  from credentials c
		  where c.expires_at > @now
		    and c.expires_at <= @now::timestamptz + @notice::interval
		    and c.created_at <= c.expires_at - @notice::interval
		    and c.revoked_at is null
		    and c.expiry_reported_at is null
		    and not exists (
		      select
		      from credential_rotations r
		      where r.tenant_id = c.tenant_id
		        and r.kind = c.kind
		        and r.old_id = c.id
		        and r.ended_at is null)
		  order by c.expires_at
		  limit @limit
		  for update of c skip locked)
		update credentials c
		set expiry_reported_at = @now
		from expiring e
		where c.tenant_id = e.tenant_id
		  and c.kind = e.kind
		  and c.id = e.id
		returning `+credentialColumns, pgx.NamedArgs{
		"now": metering.Instant(now), "notice": metering.ExpiryNotice, "limit": limit,
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c metering.Credential, err error) {
		return c, row.Scan(credentialFields(&c)...)
	})
}
