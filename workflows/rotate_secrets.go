package workflows

import (
	"context"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
)

// RotateSecretsInput contains the id of the new encryption key. The id is not secret.
type RotateSecretsInput struct {
	KeyID string `json:"key_id"`
}

// RotateSecretsResult counts the secrets that were encrypted again, and those that could not be
// decrypted. If Unopened is 0, the previous keys are no longer needed.
type RotateSecretsResult struct {
	Sealed   int `json:"sealed"`
	Unopened int `json:"unopened"`
}

// RotateSecrets encrypts every secret in the database with a new key. It waits for a worker that
// has the key.
func RotateSecrets(ctx workflow.Context, in RotateSecretsInput) (RotateSecretsResult, error) {
	var done activities.RewrapSecretsResult
	err := workflow.ExecuteActivity(longStep(ctx, "encrypt every secret with the new key"), do.RewrapSecrets,
		activities.RewrapSecretsInput{KeyID: in.KeyID}).Get(ctx, &done)
	return RotateSecretsResult(done), err
}

// rotateSecretsStart returns the start of a run that encrypts every secret with the key.
func rotateSecretsStart(keyID string) start {
	return start{
		workflow: RotateSecrets,
		input:    RotateSecretsInput{KeyID: keyID},
		id:       "rotate-secrets/" + keyID,
		summary:  "Encrypt every secret with the key " + keyID,
		priority: background,
	}
}

// RunRotateSecrets encrypts every secret with the given key and waits for the end. If a run is open
// for the key, it waits for that run.
func RunRotateSecrets(ctx context.Context, c client.Client, keyID string) (done RotateSecretsResult, err error) {
	s := rotateSecretsStart(keyID)
	run, err := c.ExecuteWorkflow(ctx, s.clientOptions(), s.workflow, s.args()...)
	if err != nil {
		return done, unreachable(s.id, err)
	}
	return done, run.Get(ctx, &done)
}
