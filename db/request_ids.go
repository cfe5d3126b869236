package db

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// RequestIDs remembers the ids of signed requests, so that none is taken twice.
type RequestIDs struct{ pool *pool }

// Claim takes the id until expires, and says whether it was free at now. The
// one clock that finds a request fresh also decides that its id has expired:
// replicas whose clocks differ do not let a repeat through between them.
func (s RequestIDs) Claim(ctx context.Context, tenant metering.TenantID, id string, expires, now time.Time) (claimed bool, err error) {
	tag, err := s.pool.Exec(ctx, `
		insert into request_ids as r (tenant_id, request_id, expires_at)
		values ($1, $2, $3)
		on conflict (tenant_id, request_id) do update set expires_at = excluded.expires_at
		where r.expires_at < $4`, tenant, id, expires, now)
	return tag.RowsAffected() == 1, coded(err)
}

// Sweep forgets up to limit ids, of any tenant, that expired before.
func (s RequestIDs) Sweep(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return oldRows{table: "request_ids", key: "tenant_id, request_id", by: "expires_at", noun: "request ids"}.sweep(ctx, s.pool, before, limit)
}
