package activities

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// RotationInput names a rotation. The credentials themselves exist only in the database, hashed or
// sealed.
type RotationInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	RotationID metering.RotationID `json:"rotation_id"`
}

// RotationResult is the state of a rotation. Old and New are the names that the API shows.
type RotationResult struct {
	Old       string                   `json:"old"`
	New       string                   `json:"new"`
	Until     time.Time                `json:"until"` // end of the time in which both are valid
	WarnAt    time.Time                `json:"warn_at"`
	StillUsed *time.Time               `json:"still_used,omitempty"` // last use of the old credential, if that was in the second half of the overlap
	Outcome   metering.RotationOutcome `json:"outcome"`              // "": the rotation has not ended
}

// rotationResult returns the state of a rotation as the result of an activity.
func rotationResult(r metering.Rotation) RotationResult {
	result := RotationResult{Old: r.Old(), New: r.New(), Until: r.Until, WarnAt: r.WarnAt(), Outcome: r.Outcome}
	if r.StillUsed() {
		result.StillUsed = r.LastUsedAt
	}
	return result
}

// ReadRotation returns the state of the rotation, and records that a run follows it.
func (a *Activities) ReadRotation(ctx context.Context, in RotationInput) (RotationResult, error) {
	defer sendHeartbeats(ctx)()
	r, err := a.store.Rotations.Watch(ctx, in.TenantID, in.RotationID)
	return rotationResult(r), err
}

// WarnOfUse records a warning in the audit log if the old credential is still used shortly before
// its end.
func (a *Activities) WarnOfUse(ctx context.Context, in RotationInput) (RotationResult, error) {
	defer sendHeartbeats(ctx)()
	r, err := a.store.Rotations.Warn(ctx, in.TenantID, in.RotationID, a.now())
	return rotationResult(r), err
}

// EndRotationInput names a rotation. AtOnce revokes the old credential early.
type EndRotationInput struct {
	RotationInput
	AtOnce bool `json:"at_once"`
}

// EndRotation revokes the old credential if the overlap is over, or at once if AtOnce is set. A rotation that has
// already ended stays unchanged.
func (a *Activities) EndRotation(ctx context.Context, in EndRotationInput) (RotationResult, error) {
	defer sendHeartbeats(ctx)()
	r, err := a.store.Rotations.End(ctx, in.TenantID, in.RotationID, in.AtOnce, a.now())
	return rotationResult(r), err
}

// KeepBoth ends the rotation and leaves each credential valid until its own expiry. If the overlap is already over, it
// revokes the old credential instead.
func (a *Activities) KeepBoth(ctx context.Context, in RotationInput) (RotationResult, error) {
	defer sendHeartbeats(ctx)()
	r, err := a.store.Rotations.Keep(ctx, in.TenantID, in.RotationID, a.now())
	return rotationResult(r), err
}
