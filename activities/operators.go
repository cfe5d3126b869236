package activities

import (
	"context"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// RecordUpdateInput is what was asked of a run.
type RecordUpdateInput struct {
	metering.Asked
	TenantID metering.TenantID `json:"tenant_id"`
	Workflow string            `json:"workflow"`
	Run      string            `json:"run"`
	Update   string            `json:"update"` // its id
	Name     string            `json:"name"`
	MeterID  metering.MeterID  `json:"meter_id,omitempty"` // that it names
}

// RecordUpdate has the audit log keep what an operator asks of a run, once.
func (a *Activities) RecordUpdate(ctx context.Context, in RecordUpdateInput) error {
	defer alive(ctx)()
	return a.store.AuditLog.RecordUpdate(ctx, in.TenantID, db.RunUpdate{
		Asked: in.Asked, Workflow: in.Workflow, Run: in.Run, ID: in.Update, Name: in.Name, Meter: in.MeterID,
	})
}
