package workflows

import (
	"context"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
)

// RotateSecretsInput names the key that is to seal everything: its id, which
// is no secret.
type RotateSecretsInput struct {
	KeyID string `json:"key_id"`
}

// RotateSecretsResult is what came of it. Once nothing is unopened, the keys
// behind the first one are not needed any more.
type RotateSecretsResult struct {
	Sealed   int `json:"sealed"`
	Unopened int `json:"unopened"`
}

// RotateSecrets seals every secret in the database under a new key. It waits
// for a worker that has it.
func RotateSecrets(ctx workflow.Context, in RotateSecretsInput) (RotateSecretsResult, error) {
	var done activities.RewrapSecretsResult
	err := workflow.ExecuteActivity(counting(ctx, "encrypt every secret with the new key"), do.RewrapSecrets,
		activities.RewrapSecretsInput{KeyID: in.KeyID}).Get(ctx, &done)
	return RotateSecretsResult(done), err
}

func rotateSecretsStart(keyID string) start {
	return start{
		workflow: RotateSecrets,
		input:    RotateSecretsInput{KeyID: keyID},
		id:       "rotate-secrets/" + keyID,
		summary:  "Encrypt every secret with the key " + keyID,
		priority: background,
	}
}

// RunRotateSecrets has every secret sealed under the key of that id and waits
// for the end of it, in the run that is open if there is one.
func RunRotateSecrets(ctx context.Context, c client.Client, keyID string) (done RotateSecretsResult, err error) {
	s := rotateSecretsStart(keyID)
	run, err := c.ExecuteWorkflow(ctx, s.clientOptions(), s.workflow, s.args()...)
	if err != nil {
		return done, unreachable(s.id, err)
	}
	return done, run.Get(ctx, &done)
}
