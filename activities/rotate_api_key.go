package activities

import (
	"context"

	"github.com/odometer-metering/odometer/metering"
)

// ActivateKeyInput names the rotation. The key itself is nowhere but in the
// memory of the request that waits for it.
type ActivateKeyInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	RotationID metering.RotationID `json:"rotation_id"`
}

// ActivateKeyResult is what became of the rotation.
type ActivateKeyResult struct {
	Status metering.RotationStatus `json:"status"`
}

// ActivateKey makes the new key valid and the old one invalid, at once.
func (a *Activities) ActivateKey(ctx context.Context, in ActivateKeyInput) (ActivateKeyResult, error) {
	defer alive(ctx)()
	status, err := a.store.Rotations.Activate(ctx, in.TenantID, in.RotationID, a.now())
	return ActivateKeyResult{status}, err
}
