package activities

import (
	"context"

	"github.com/odometer-metering/odometer/metering"
)

// RewrapSecretsInput names the key that is to seal everything.
type RewrapSecretsInput struct {
	KeyID string `json:"key_id"`
}

// RewrapSecretsResult is how many were sealed again by the attempt that came to
// the end, and how many could not be opened with this worker's keys.
type RewrapSecretsResult struct {
	Sealed   int `json:"sealed"`
	Unopened int `json:"unopened"`
}

// RewrapSecrets seals every secret under the first key of the keyring. A
// repeat goes on with those that are left.
func (a *Activities) RewrapSecrets(ctx context.Context, in RewrapSecretsInput) (RewrapSecretsResult, error) {
	defer alive(ctx)()
	if a.keyring.First() != in.KeyID {
		return RewrapSecretsResult{}, metering.Errorf(metering.CodeUnavailable, "this worker does not encrypt with that key; restart it with the new ODOMETER_ENCRYPTION_KEYS")
	}
	done, err := a.store.Secrets.Rewrap(ctx, a.keyring)
	return RewrapSecretsResult(done), err
}
