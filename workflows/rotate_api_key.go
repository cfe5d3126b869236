package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// RotateAPIKeyInput names the rotation, whose row holds the new key's hash.
type RotateAPIKeyInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	RotationID metering.RotationID `json:"rotation_id"`
}

// RotateAPIKeyResult is what became of it.
type RotateAPIKeyResult struct {
	Status metering.RotationStatus `json:"status"`
}

// RotateAPIKey puts a new API key in the place of an old one. It never fails
// for want of time: a rotation that nobody waits for any longer is withdrawn.
func RotateAPIKey(ctx workflow.Context, in RotateAPIKeyInput) (RotateAPIKeyResult, error) {
	var activated activities.ActivateKeyResult
	err := workflow.ExecuteActivity(storing(ctx, "activate the new key, revoke the old"), do.ActivateKey,
		activities.ActivateKeyInput{TenantID: in.TenantID, RotationID: in.RotationID}).Get(ctx, &activated)
	return RotateAPIKeyResult{activated.Status}, err
}
