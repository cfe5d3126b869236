package activities

import (
	"context"

	"github.com/odometer-metering/odometer/metering"
)

// RewrapSecretsInput contains the id of the new encryption key.
type RewrapSecretsInput struct {
	KeyID string `json:"key_id"`
}

// RewrapSecretsResult counts the secrets that the successful attempt encrypted again, and the
// secrets that this worker's keys could not decrypt.
type RewrapSecretsResult struct {
	Sealed   int `json:"sealed"`
	Unopened int `json:"unopened"`
}

// RewrapSecrets encrypts every secret with the first key of the keyring. A retry continues with the
// remaining secrets. It returns CodeUnavailable if the worker's first key is a different one.
func (a *Activities) RewrapSecrets(ctx context.Context, in RewrapSecretsInput) (RewrapSecretsResult, error) {
	defer sendHeartbeats(ctx)()
	if a.keyring.First() != in.KeyID {
		return RewrapSecretsResult{}, metering.Errorf(metering.CodeUnavailable, "this worker does not encrypt with that key; restart it with the new ODOMETER_ENCRYPTION_KEYS")
	}
	done, err := a.store.Secrets.Rewrap(ctx, a.keyring)
	return RewrapSecretsResult(done), err
}
