package activities

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// RotationInput names a rotation. The credentials are nowhere but hashed or
// sealed in the database.
type RotationInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	RotationID metering.RotationID `json:"rotation_id"`
}

// RotationResult is where a rotation stands. Old and New are names that the API
// shows, too.
type RotationResult struct {
	Old       string                   `json:"old"`
	New       string                   `json:"new"`
	Until     time.Time                `json:"until"` // both are valid
	WarnAt    time.Time                `json:"warn_at"`
	StillUsed *time.Time               `json:"still_used,omitempty"` // when the old one last was, where that is late
	Outcome   metering.RotationOutcome `json:"outcome"`              // "": it has not ended
}

func rotationResult(r metering.Rotation) RotationResult {
	result := RotationResult{Old: r.Old(), New: r.New(), Until: r.Until, WarnAt: r.WarnAt(), Outcome: r.Outcome}
	if r.StillUsed() {
		result.StillUsed = r.LastUsedAt
	}
	return result
}

// ReadRotation says where the rotation stands, and that a run watches it.
func (a *Activities) ReadRotation(ctx context.Context, in RotationInput) (RotationResult, error) {
	defer alive(ctx)()
	r, err := a.store.Rotations.Watch(ctx, in.TenantID, in.RotationID)
	return rotationResult(r), err
}

// WarnOfUse writes into the audit log that the old credential is still used
// near its end, if it is.
func (a *Activities) WarnOfUse(ctx context.Context, in RotationInput) (RotationResult, error) {
	defer alive(ctx)()
	r, err := a.store.Rotations.Warn(ctx, in.TenantID, in.RotationID, a.now())
	return rotationResult(r), err
}

// EndRotationInput names a rotation. AtOnce ends the old credential early.
type EndRotationInput struct {
	RotationInput
	AtOnce bool `json:"at_once"`
}

// EndRotation revokes the old credential if its time is over.
func (a *Activities) EndRotation(ctx context.Context, in EndRotationInput) (RotationResult, error) {
	defer alive(ctx)()
	r, err := a.store.Rotations.End(ctx, in.TenantID, in.RotationID, in.AtOnce, a.now())
	return rotationResult(r), err
}

// KeepBoth calls the rotation off.
func (a *Activities) KeepBoth(ctx context.Context, in RotationInput) (RotationResult, error) {
	defer alive(ctx)()
	r, err := a.store.Rotations.Keep(ctx, in.TenantID, in.RotationID, a.now())
	return rotationResult(r), err
}
