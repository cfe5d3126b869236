package workflows

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

const (
	// finishNowUpdate is the update with which an operator revokes the old credential at once.
	finishNowUpdate = "finish-now"
	// rotationChanged signals a RotateCredential run that a rotation was committed.
	rotationChanged = "rotation-changed"
)

// RotateCredentialInput names the rotation. Its row names both credentials.
type RotateCredentialInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	RotationID metering.RotationID `json:"rotation_id"`
}

// RotateCredentialResult contains the outcome of the rotation.
type RotateCredentialResult struct {
	Outcome metering.RotationOutcome `json:"outcome"`
}

// RotateCredential follows the rotation of an API key, an HMAC secret or a webhook's secret. The
// rotation's row contains both credentials and the time at which the old one ends. The run shows
// that time, warns shortly before it if the old credential is still used, and records the end of
// the rotation. An operator can revoke the old credential early, or keep both by canceling the
// run.
func RotateCredential(ctx workflow.Context, in RotateCredentialInput) (RotateCredentialResult, error) {
	r := rotateCredential{in: activities.RotationInput(in), changed: workflow.GetSignalChannel(ctx, rotationChanged)}
	err := registerUpdate(ctx, finishNowUpdate, func(ctx workflow.Context, asked metering.Asked) error {
		r.finishing = true
		if err := recordUpdate(ctx, in.TenantID, finishNowUpdate, asked, 0); err != nil {
			return err
		}
		return workflow.Await(ctx, func() bool { return r.ended })
	})
	if err != nil {
		return RotateCredentialResult{}, err
	}
	now, err := r.run(ctx)
	if err != nil {
		return RotateCredentialResult{}, err
	}
	r.ended = true
	workflow.SetCurrentDetails(ctx, detailsOfRotation(now))
	return RotateCredentialResult{now.Outcome}, awaitUpdateHandlers(ctx, nil)
}

// rotateCredential is the state of a RotateCredential run.
type rotateCredential struct {
	in        activities.RotationInput
	changed   workflow.ReceiveChannel
	finishing bool // an operator requested the early end
	warned    bool // the time of the warning has passed
	ended     bool
}

// run follows the rotation until its end. If the run is canceled, it ends the rotation and keeps both credentials.
func (r *rotateCredential) run(ctx workflow.Context) (now activities.RotationResult, err error) {
	for {
		drain(r.changed)
		err := workflow.ExecuteActivity(shortStep(ctx, "read until when both credentials are valid"), do.ReadRotation, r.in).Get(ctx, &now)
		if err == nil && now.Outcome == "" {
			now, err = r.waitThenAct(ctx, now)
		}
		if temporal.IsCanceledError(err) {
			return r.endKeepingBoth(ctx)
		}
		if err != nil || now.Outcome != "" {
			return now, err
		}
	}
}

// waitThenAct waits until the time of the warning or of the end, or until an update or a signal arrives. At the time of
// the warning, it warns if the old credential is still used. At the end, or after the update finish-now, it revokes the
// old credential.
func (r *rotateCredential) waitThenAct(ctx workflow.Context, now activities.RotationResult) (activities.RotationResult, error) {
	until := now.WarnAt
	if r.warned {
		until = now.Until
	}
	workflow.SetCurrentDetails(ctx, detailsOfRotation(now))
	asked, err := workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{
		Timeout:      max(time.Second, until.Sub(workflow.Now(ctx))), // the database decides whether the time has come
		TimerOptions: workflow.TimerOptions{Summary: fmt.Sprintf("%s ends %s", now.Old, now.Until.UTC().Format(time.RFC3339))},
	}, func() bool { return r.finishing || r.changed.Len() > 0 })
	switch {
	case err != nil || asked && !r.finishing:
		return now, err
	case !r.finishing && !r.warned:
		r.warned = true
		err = workflow.ExecuteActivity(shortStep(ctx, "warn if the old credential is still used"), do.WarnOfUse, r.in).Get(ctx, &now)
		return now, err
	}
	err = workflow.ExecuteActivity(shortStep(ctx, "revoke the old credential if its time is over"), do.EndRotation,
		activities.EndRotationInput{RotationInput: r.in, AtOnce: r.finishing}).Get(ctx, &now)
	return now, err
}

// endKeepingBoth ends the rotation and leaves both credentials valid. If the overlap is already over, it revokes the
// old credential instead.
func (r *rotateCredential) endKeepingBoth(ctx workflow.Context) (now activities.RotationResult, err error) {
	disconnected, _ := workflow.NewDisconnectedContext(ctx)
	err = workflow.ExecuteActivity(shortStep(disconnected, "keep both credentials"), do.KeepBoth, r.in).Get(disconnected, &now)
	return now, err
}

// detailsOfRotation returns the details of a run that show its state to operators.
func detailsOfRotation(now activities.RotationResult) string {
	switch now.Outcome {
	case metering.RotationKept:
		return fmt.Sprintf("%s and %s both remain valid", now.Old, now.New)
	case metering.RotationSuperseded:
		return now.Old + " was rotated again; another run follows that rotation"
	case "":
		both := fmt.Sprintf("%s and %s are both valid until %s", now.Old, now.New, now.Until.UTC().Format(time.RFC3339))
		if now.StillUsed != nil {
			both += fmt.Sprintf("\n\n**%s is still used**, most recently at %s. Requests that use it are refused after that time.", now.Old, now.StillUsed.UTC().Format(time.RFC3339))
		}
		return both
	}
	return now.Old + " is revoked"
}

// RotateCredentialID returns the workflow ID of a rotation.
func RotateCredentialID(tenant metering.TenantID, rotation metering.RotationID) string {
	return fmt.Sprintf("rotate-credential/%d/%d", tenant, rotation)
}

// rotateCredentialStart returns the start of a rotation's run.
func rotateCredentialStart(tenant metering.TenantID, rotation metering.RotationID) start {
	return start{
		workflow: RotateCredential,
		input:    RotateCredentialInput{TenantID: tenant, RotationID: rotation},
		id:       RotateCredentialID(tenant, rotation),
		summary:  fmt.Sprintf("Rotate a credential of %s", tenant),
		details: "Revokes the old credential at the end of the overlap with the new one, and warns if it is still used shortly before. " +
			"The update finish-now revokes it at once; canceling the run keeps both. The run contains neither credential.",
		tenant:   tenant,
		priority: background,
		signal:   rotationChanged,
	}
}

// StartRotateCredential signals the open run or starts a new one, so that it reads the rotation
// again. The old credential expires on time even without a run.
func StartRotateCredential(ctx context.Context, c client.Client, tenant metering.TenantID, rotation metering.RotationID) error {
	return rotateCredentialStart(tenant, rotation).startOrJoin(ctx, c)
}
