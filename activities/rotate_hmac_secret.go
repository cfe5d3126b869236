package activities

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// ReplacedSecretInput names the secret that another replaces. Neither secret is
// anywhere but sealed in the database.
type ReplacedSecretInput struct {
	TenantID metering.TenantID     `json:"tenant_id"`
	SecretID metering.HMACSecretID `json:"secret_id"`
}

// OverlapResult is where the replacement stands.
type OverlapResult struct {
	Status      metering.OverlapStatus `json:"status"`
	SuccessorID metering.HMACSecretID  `json:"successor_id"` // 0: it has none any more
	Until       time.Time              `json:"until"`        // both are valid
}

// ReadOverlap says where the replacement of a secret stands.
func (a *Activities) ReadOverlap(ctx context.Context, in ReplacedSecretInput) (OverlapResult, error) {
	defer alive(ctx)()
	old, err := a.store.HMACSecrets.Get(ctx, in.TenantID, in.SecretID)
	return overlapOf(old), err
}

// RetireSecretInput names a replaced secret. AtOnce ends the overlap early.
type RetireSecretInput struct {
	ReplacedSecretInput
	AtOnce bool `json:"at_once"`
}

// RetireSecret revokes the secret if its time is over.
func (a *Activities) RetireSecret(ctx context.Context, in RetireSecretInput) (OverlapResult, error) {
	defer alive(ctx)()
	old, err := a.store.HMACSecrets.Retire(ctx, in.TenantID, in.SecretID, in.AtOnce, a.now())
	return overlapOf(old), err
}

// KeepSecret calls the replacement off.
func (a *Activities) KeepSecret(ctx context.Context, in ReplacedSecretInput) (OverlapResult, error) {
	defer alive(ctx)()
	old, err := a.store.HMACSecrets.Keep(ctx, in.TenantID, in.SecretID, a.now())
	return overlapOf(old), err
}

func overlapOf(old metering.HMACSecret) OverlapResult {
	result := OverlapResult{Status: old.Overlap()}
	if old.SuccessorID != nil {
		result.SuccessorID = *old.SuccessorID
	}
	if old.ExpiresAt != nil {
		result.Until = *old.ExpiresAt
	}
	return result
}
