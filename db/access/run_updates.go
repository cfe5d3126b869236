package access

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// RunUpdate is an update that an operator has sent to an open workflow run in Temporal.
type RunUpdate struct {
	metering.Asked
	Workflow string // workflow id
	Run      string // run id
	ID       string // update id
	Name     string
	Meter    metering.MeterID // meter that the update names; 0: none
}

// RecordUpdate writes an update to the audit log. Recording it again changes nothing. The actor of the
// entry is metering.Operator, because the name in u.By is not verified. RecordUpdate returns
// CodeNotFound if the tenant has no such meter.
func (s AuditLog) RecordUpdate(ctx context.Context, tenant metering.TenantID, u RunUpdate) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		asked := audit.Fields{"by": u.By}
		if u.Meter != 0 {
			asked["meter_id"] = u.Meter.String()
			if err := requireMeter(ctx, tx, tenant, u.Meter); err != nil {
				return err
			}
		}
		tag, err := tx.Exec(ctx, `
			insert into audited_updates (tenant_id, run_id, update_id)
			values ($1, $2, $3)
			on conflict do nothing`, tenant, u.Run, u.ID)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		sent := audit.From(ctx, audit.Origin{RequestID: u.ID})
		return audit.RecordDecision(sent, tx, tenant, audit.Decision{Actor: metering.Operator, Action: "run." + u.Name, Resource: u.Workflow, Reason: u.Reason}, nil, asked)
	})
	if err != nil {
		return fmt.Errorf("record update: %w", err)
	}
	return nil
}

func requireMeter(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, meter metering.MeterID) error {
	tag, err := tx.Exec(ctx, `select from meters where tenant_id = $1 and id = $2`, tenant, meter)
	if err == nil && tag.RowsAffected() == 0 {
		err = metering.Errorf(metering.CodeNotFound, "meter_id must be a meter of the tenant; it has no meter %s", meter)
	}
	return err
}
