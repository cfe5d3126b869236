package workflows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/metering"
)

// startTimeout bounds how long a caller waits for Temporal to take a start.
const startTimeout = 5 * time.Second

// by has the client begin the run, or join the one that is open, and does not
// wait for it: no worker has to be alive. Where search attributes are not
// registered it goes without: then operators find less, but the work is done.
// CodeUnavailable when Temporal does not answer; it may have begun all the same.
func (s start) by(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := s.once(ctx, c)
	var invalid *serviceerror.InvalidArgument
	if errors.As(err, &invalid) {
		slog.WarnContext(ctx, "search attributes are not registered: starting without them", "workflow_id", s.id)
		err = s.withoutAttributes(true).once(ctx, c)
	}
	if err != nil {
		return unreachable(s.id, err)
	}
	return nil
}

func (s start) once(ctx context.Context, c client.Client) error {
	options := s.clientOptions()
	if s.signal == "" {
		_, err := c.ExecuteWorkflow(ctx, options, s.workflow, s.args()...)
		return err
	}
	options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_UNSPECIFIED // a signal joins by itself
	_, err := c.SignalWithStartWorkflow(ctx, s.id, s.signal, nil, options, s.workflow, s.args()...)
	return err
}

func unreachable(workflowID string, cause error) error {
	return metering.Errorf(metering.CodeUnavailable, "the workflow engine does not answer; try again").
		Because(fmt.Errorf("start %s: %w", workflowID, cause))
}

// StartSyncCustomer makes sure that a pass begins after now, in the run that
// is open or in a new one. The request's row is committed before.
func StartSyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, trigger metering.Trigger) error {
	return syncCustomerStart(tenant, customer, trigger).by(ctx, c)
}

// RestartSyncCustomer is StartSyncCustomer for requests that nobody waits for
// any longer. It leaves a run that is open alone, because that takes every
// request before it ends.
func RestartSyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID) error {
	s := syncCustomerStart(tenant, customer, metering.Scheduled)
	s.signal = ""
	return s.by(ctx, c)
}

// StartBackfillMeter makes sure that a run counts the meter version's past.
func StartBackfillMeter(ctx context.Context, c client.Client, tenant metering.TenantID, version metering.MeterVersionID) error {
	return backfillMeterStart(tenant, version).by(ctx, c)
}

// StartClosePeriod makes sure that a run closes the tenant's due periods.
func StartClosePeriod(ctx context.Context, c client.Client, tenant metering.TenantID) error {
	return closePeriodStart(tenant).by(ctx, c)
}

// StartHandleProviderEvent makes sure that a run acts on the event, whose row
// was committed before.
func StartHandleProviderEvent(ctx context.Context, c client.Client, tenant metering.TenantID, row metering.ProviderEventID) error {
	return handleProviderEventStart(tenant, row).by(ctx, c)
}

// StartRotateCredential makes sure that a run watches over a rotation, and
// looks at it after now. The old credential ends in time all the same.
func StartRotateCredential(ctx context.Context, c client.Client, tenant metering.TenantID, rotation metering.RotationID) error {
	return rotateCredentialStart(tenant, rotation).by(ctx, c)
}

// StartDeliverWebhooks makes sure that a run looks at what is due for the endpoint.
func StartDeliverWebhooks(ctx context.Context, c client.Client, tenant metering.TenantID, endpoint metering.EndpointID) error {
	return deliverWebhooksStart(tenant, endpoint).by(ctx, c)
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
