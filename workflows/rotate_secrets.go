package workflows

import (
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
	err := workflow.ExecuteActivity(counting(ctx, "seal every secret again"), do.RewrapSecrets,
		activities.RewrapSecretsInput{KeyID: in.KeyID}).Get(ctx, &done)
	return RotateSecretsResult(done), err
}
