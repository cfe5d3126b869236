package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Boundary returns the position of the last event of the next page after the cursor, or nil if that page is the
// last one. So an export knows the start of the following page before it has written this page.
func (s Events) Boundary(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, r metering.Range, after *EventCursor, limit int) (*EventCursor, error) {
	if after == nil {
		after = &EventCursor{At: r.Start.Add(-time.Microsecond)}
	}
	where, order := after.conditionAfter(customer)
	rows, err := s.pool.Query(ctx, `
		select ts, id, case when @customer::bigint = 0 then customer_id else 0 end
		from events
		where tenant_id = @tenant and ts >= @from and ts < @until and `+where+`
		order by `+order+`
		offset @limit limit 2`, after.arguments(tenant, customer, r, limit-1))
	if err != nil {
		return nil, pg.Coded(err)
	}
	ends, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c EventCursor, err error) {
		return c, row.Scan(&c.At, (*[16]byte)(&c.ID), &c.Customer)
	})
	if err != nil || len(ends) < 2 {
		return nil, pg.Coded(err)
	}
	return &ends[0], nil
}
