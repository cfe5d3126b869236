package access

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

const selectDeliveries = `
	select o.id, o.kind, o.created_at, o.payload, d.status, d.attempts, case when d.status = 'pending' then d.due_at end, d.settled_at
	from webhook_deliveries d
	join outbox o on o.tenant_id = d.tenant_id and o.id = d.message_id
	where d.tenant_id = @tenant
	  and d.endpoint_id = @endpoint `

func scanDelivery(row pgx.CollectableRow) (d metering.Delivery, err error) {
	return d, row.Scan(&d.ID, &d.Kind, &d.At, &d.Data, &d.Status, &d.Attempts, &d.DueAt, &d.SettledAt)
}

// List returns up to limit deliveries to the endpoint, newest first. If before is not zero, it returns only
// deliveries of messages with a smaller ID. An empty status matches every delivery.
func (s Deliveries) List(ctx context.Context, tenant metering.TenantID, endpoint metering.EndpointID, status metering.DeliveryStatus, before uuid.UUID, limit int) (page pg.Page[metering.Delivery], err error) {
	rows, err := s.pool.Query(ctx, selectDeliveries+`
		  and (@status = '' or d.status = @status)
		  and (@before::uuid = '00000000-0000-0000-0000-000000000000' or d.message_id < @before)
		order by d.message_id desc
		limit @limit`, pgx.NamedArgs{"tenant": tenant, "endpoint": endpoint, "status": status, "before": before, "limit": limit + 1})
	if err != nil {
		return page, fmt.Errorf("list deliveries: %w", pg.Coded(err))
	}
	page, err = pg.ReadPage(ctx, rows, limit, scanDelivery)
	if err != nil {
		return page, fmt.Errorf("list deliveries: %w", pg.Coded(err))
	}
	return page, nil
}

// Get returns a delivery and its attempts, oldest first, or CodeNotFound.
func (s Deliveries) Get(ctx context.Context, tenant metering.TenantID, endpoint metering.EndpointID, message uuid.UUID) (d metering.Delivery, attempts []metering.Attempt, err error) {
	rows, err := s.pool.Query(ctx, selectDeliveries+`and d.message_id = @message`,
		pgx.NamedArgs{"tenant": tenant, "endpoint": endpoint, "message": message})
	if err != nil {
		return d, nil, fmt.Errorf("read delivery: %w", pg.Coded(err))
	}
	d, err = pgx.CollectExactlyOneRow(rows, scanDelivery)
	if errors.Is(err, pgx.ErrNoRows) {
		return d, nil, errNoDelivery
	}
	if err != nil {
		return d, nil, fmt.Errorf("read delivery: %w", pg.Coded(err))
	}
	rows, err = s.pool.Query(ctx, `
		select at, took, status, problem
		from webhook_attempts
		where tenant_id = $1
		  and endpoint_id = $2
		  and message_id = $3
		order by id`, tenant, endpoint, message)
	if err != nil {
		return d, nil, fmt.Errorf("read attempts: %w", pg.Coded(err))
	}
	attempts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[metering.Attempt])
	if err != nil {
		return d, nil, fmt.Errorf("read attempts: %w", pg.Coded(err))
	}
	return d, attempts, nil
}
