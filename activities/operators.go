package activities

import (
	"context"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/metering"
)

// RecordUpdateInput describes an update that an operator sent to a run.
type RecordUpdateInput struct {
	metering.Asked
	TenantID metering.TenantID `json:"tenant_id"`
	Workflow string            `json:"workflow"`
	Run      string            `json:"run"`
	Update   string            `json:"update"` // id of the update
	Name     string            `json:"name"`
	MeterID  metering.MeterID  `json:"meter_id,omitempty"` // meter that the update names; 0: none
}

// RecordUpdate stores an operator's update in the audit log. A retry stores it only once.
func (a *Activities) RecordUpdate(ctx context.Context, in RecordUpdateInput) error {
	defer sendHeartbeats(ctx)()
	return a.store.AuditLog.RecordUpdate(ctx, in.TenantID, access.RunUpdate{
		Asked: in.Asked, Workflow: in.Workflow, Run: in.Run, ID: in.Update, Name: in.Name, Meter: in.MeterID,
	})
}
