package db

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// publish tells other systems that something happened, in the transaction that
// made it so. The payload holds internal ids only.
func publish(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, kind string, payload map[string]any) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `insert into outbox (tenant_id, id, kind, payload) values ($1, $2, $3, $4)`,
		tenant, id, kind, payload)
	return err
}
