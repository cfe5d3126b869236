// Package outbox defines the messages that Odometer sends to tenants' webhooks, and stores them in the transaction of
// the change that they report. Package access delivers them.
package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Publish stores a message for the tenant's webhook endpoints that receive its kind. tx is the transaction of the
// change that the message reports. Publish adds the ids of the tenant and, unless customer is 0, of the customer to
// the payload.
func Publish(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, data MessageData, now time.Time) error {
	return PublishAll(ctx, tx, tenant, customer, []MessageData{data}, now)
}

// PublishAll is Publish for several messages of one kind.
func PublishAll(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, data []MessageData, now time.Time) error {
	if len(data) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(data))
	for i := range data {
		var err error
		if ids[i], err = uuid.NewV7(); err != nil {
			return err
		}
	}
	kind := data[0].Kind()
	var batch pgx.Batch
	// This lock prevents other transactions from disabling or deleting the endpoints before this transaction ends.
	// The next statement skips endpoints that were disabled or deleted earlier.
	batch.Queue(`select from webhook_endpoints where tenant_id = $1 and $2 = any(event_types) for key share`, tenant, kind)
	batch.Queue(`
		with listening as (
		  select id
		  from webhook_endpoints
		  where tenant_id = @tenant
		    and disabled_at is null
		    and @kind = any(event_types)),
		messages as (
		  insert into outbox (tenant_id, id, kind, payload, created_at)
		  select @tenant, d.id, @kind, d.data || jsonb_build_object('tenant_id', 'ten_' || @tenant::bigint) || coalesce(
		    (select jsonb_build_object('customer_id', 'cus_' || id, 'customer_external_id', external_id)
		     from customers
		     where tenant_id = @tenant and id = @customer), '{}'), @now
		  from unnest(@ids::uuid[], @data::jsonb[]) d (id, data)
		  where exists (select from listening)
		  returning id)
		insert into webhook_deliveries (tenant_id, endpoint_id, message_id, due_at)
		select @tenant, l.id, m.id, @now
		from listening l
		cross join messages m`, pgx.NamedArgs{
		"tenant": tenant, "customer": customer, "kind": kind, "ids": ids, "data": data, "now": metering.Instant(now),
	})
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("publish %s: %w", kind, err)
	}
	return nil
}
