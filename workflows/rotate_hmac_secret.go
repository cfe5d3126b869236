package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

const (
	// finishNowUpdate revokes the old secret at once.
	finishNowUpdate = "finish-now"
	// overlapChanged tells a RotateHMACSecret run that a row was committed.
	overlapChanged = "overlap-changed"
)

// RotateHMACSecretInput names the old secret, whose row names the new one.
type RotateHMACSecretInput struct {
	TenantID metering.TenantID     `json:"tenant_id"`
	SecretID metering.HMACSecretID `json:"secret_id"`
}

// RotateHMACSecretResult is what became of the old secret.
type RotateHMACSecretResult struct {
	Status metering.OverlapStatus `json:"status"`
}

// RotateHMACSecret revokes a replaced secret when its time beside the new one is
// over. The row makes it end in time; the run shows it, records it, and lets
// operators end it early or, by cancelling, keep both secrets.
func RotateHMACSecret(ctx workflow.Context, in RotateHMACSecretInput) (RotateHMACSecretResult, error) {
	r := rotateHMACSecret{
		old:     activities.ReplacedSecretInput{TenantID: in.TenantID, SecretID: in.SecretID},
		changed: workflow.GetSignalChannel(ctx, overlapChanged),
	}
	err := workflow.SetUpdateHandler(ctx, finishNowUpdate, func(ctx workflow.Context) error {
		r.finishing = true
		return workflow.Await(ctx, func() bool { return r.ended })
	})
	if err != nil {
		return RotateHMACSecretResult{}, err
	}
	status, err := r.run(ctx)
	if err != nil {
		return RotateHMACSecretResult{}, err
	}
	r.ended = true
	ctx, _ = workflow.NewDisconnectedContext(ctx) // who waits for an update is answered after a cancellation too
	return RotateHMACSecretResult{status}, workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
}

type rotateHMACSecret struct {
	old       activities.ReplacedSecretInput
	changed   workflow.ReceiveChannel
	finishing bool // an operator has asked for the end
	ended     bool
}

func (r *rotateHMACSecret) run(ctx workflow.Context) (metering.OverlapStatus, error) {
	for {
		drain(r.changed)
		var overlap activities.OverlapResult
		err := workflow.ExecuteActivity(storing(ctx, "look how long both are valid"), do.ReadOverlap, r.old).Get(ctx, &overlap)
		if err == nil && overlap.Status == metering.BothValid {
			overlap, err = r.wait(ctx, overlap)
		}
		if temporal.IsCanceledError(err) {
			return r.keep(ctx)
		}
		if err != nil || overlap.Status != metering.BothValid {
			return overlap.Status, err
		}
	}
}

// wait waits for the overlap's end, or for whoever changes it, and revokes the
// old secret if it is time.
func (r *rotateHMACSecret) wait(ctx workflow.Context, overlap activities.OverlapResult) (activities.OverlapResult, error) {
	both := fmt.Sprintf("%s and %s are both valid until %s", r.old.SecretID, overlap.SuccessorID, overlap.Until.UTC().Format(time.RFC3339))
	workflow.SetCurrentDetails(ctx, both)
	asked, err := workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{
		Timeout:      max(time.Second, overlap.Until.Sub(workflow.Now(ctx))), // the database has the last word on whether it is time
		TimerOptions: workflow.TimerOptions{Summary: both},
	}, func() bool { return r.finishing || r.changed.Len() > 0 })
	if err != nil || asked && !r.finishing {
		return overlap, err
	}
	err = workflow.ExecuteActivity(storing(ctx, "revoke the old secret if it is time"), do.RetireSecret,
		activities.RetireSecretInput{ReplacedSecretInput: r.old, AtOnce: r.finishing}).Get(ctx, &overlap)
	if err == nil && overlap.Status == metering.OldRevoked {
		workflow.SetCurrentDetails(ctx, fmt.Sprintf("%s is revoked", r.old.SecretID))
	}
	return overlap, err
}

// keep calls the replacement off.
func (r *rotateHMACSecret) keep(ctx workflow.Context) (metering.OverlapStatus, error) {
	disconnected, _ := workflow.NewDisconnectedContext(ctx)
	var overlap activities.OverlapResult
	err := workflow.ExecuteActivity(storing(disconnected, "keep both secrets"), do.KeepSecret, r.old).Get(disconnected, &overlap)
	if err != nil {
		return "", err
	}
	if overlap.Status == metering.BothKept {
		workflow.SetCurrentDetails(disconnected, fmt.Sprintf("%s and its successor both stay valid", r.old.SecretID))
	}
	return overlap.Status, nil
}
