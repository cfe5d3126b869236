package access

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// RequestIDs stores the ids of signed requests, so that no request is accepted twice.
type RequestIDs struct{ pool *pg.Pool }

// Claim reserves the ID of a request until it expires. It returns false if the ID is already reserved at now, the time
// with which the caller checked the age of the request. Therefore, replicas with different clocks do not accept a
// repeat.
func (s RequestIDs) Claim(ctx context.Context, tenant metering.TenantID, id string, expires, now time.Time) (claimed bool, err error) {
	tag, err := s.pool.Exec(ctx, `
		insert into request_ids as r (tenant_id, request_id, expires_at)
		values ($1, $2, $3)
		on conflict (tenant_id, request_id) do update set expires_at = excluded.expires_at
		where r.expires_at < $4`, tenant, id, expires, now)
	return tag.RowsAffected() == 1, pg.Coded(err)
}

// Sweep deletes up to limit ids, of any tenant, that expired before an instant.
func (s RequestIDs) Sweep(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return pg.OldRows{Table: "request_ids", Key: "tenant_id, request_id", By: "expires_at", Noun: "request ids"}.Sweep(ctx, s.pool, before, limit)
}
