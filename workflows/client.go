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
	"go.temporal.io/sdk/temporal"

	"github.com/odometer-metering/odometer/metering"
)

// startTimeout bounds how long a caller waits for Temporal to take a start.
const startTimeout = 5 * time.Second

// Priorities of task queues: what a person waits for comes first.
const (
	interactive = 1
	background  = 4
)

// SyncCustomerID is the workflow id of a customer's sync: one run at a time.
func SyncCustomerID(tenant metering.TenantID, customer metering.CustomerID) string {
	return fmt.Sprintf("sync-customer/%d/%d", tenant, customer)
}

// BackfillMeterID is the workflow id of a meter version's backfill.
func BackfillMeterID(tenant metering.TenantID, version metering.MeterVersionID) string {
	return fmt.Sprintf("backfill-meter/%d/%d", tenant, version)
}

// AutoSyncID is the id of a tenant's schedule, and what the ids of its runs
// begin with.
func AutoSyncID(tenant metering.TenantID) string { return fmt.Sprintf("auto-sync/%d", tenant) }

// ClosePeriodID is the workflow id of the closing of a tenant's periods.
func ClosePeriodID(tenant metering.TenantID) string { return fmt.Sprintf("close-period/%d", tenant) }

// RotateAPIKeyID is the workflow id of a rotation.
func RotateAPIKeyID(tenant metering.TenantID, rotation metering.RotationID) string {
	return fmt.Sprintf("rotate-key/%d/%d", tenant, rotation)
}

// StartSyncCustomer makes sure that a pass begins after now, in the run that
// is open or in a new one, and does not wait for it: no worker has to be
// alive. The request's row is committed before. CodeUnavailable when Temporal
// does not answer.
func StartSyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, trigger metering.Trigger) error {
	input := SyncCustomerInput{TenantID: tenant, CustomerID: customer}
	options := client.StartWorkflowOptions{
		ID:                    SyncCustomerID(tenant, customer),
		TaskQueue:             TaskQueue,
		StaticSummary:         syncSummary(customer),
		StaticDetails:         syncDetails(tenant, customer),
		TypedSearchAttributes: syncAttributes(tenant, customer, trigger),
		Priority:              temporal.Priority{PriorityKey: interactive, FairnessKey: tenant.String()},
	}
	if trigger != metering.Manual {
		options.Priority.PriorityKey = background
	}
	return start(ctx, &options, func(ctx context.Context, unindexed bool) error {
		input.Unindexed = unindexed
		_, err := c.SignalWithStartWorkflow(ctx, options.ID, syncRequested, nil, options, SyncCustomer, input)
		return err
	})
}

func syncSummary(customer metering.CustomerID) string {
	return fmt.Sprintf("Sync the usage of %s", customer)
}

func syncDetails(tenant metering.TenantID, customer metering.CustomerID) string {
	return fmt.Sprintf("Tells the billing provider of %s what %s owes so far, one stored snapshot at a time. "+
		"Cancelling fails the open requests; what was sent stays recorded.", tenant, customer)
}

func syncAttributes(tenant metering.TenantID, customer metering.CustomerID, trigger metering.Trigger) temporal.SearchAttributes {
	return attributesOf(tenant, customerAttribute.ValueSet(customer.String()),
		triggerAttribute.ValueSet(string(trigger)), outcomeAttribute.ValueSet(running))
}

// RestartSyncCustomer is StartSyncCustomer for requests that nobody waits for
// any longer. It leaves a run that is open alone, because that takes every
// request before it ends.
func RestartSyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID) error {
	asking, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	description, err := c.DescribeWorkflowExecution(asking, SyncCustomerID(tenant, customer), "")
	var missing *serviceerror.NotFound
	if err != nil && !errors.As(err, &missing) {
		return unreachable(SyncCustomerID(tenant, customer), err)
	}
	if description.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil
	}
	return StartSyncCustomer(ctx, c, tenant, customer, metering.Scheduled)
}

// StartBackfillMeter makes sure that a run counts the meter version's past, and
// does not wait for it. CodeUnavailable when Temporal does not answer.
func StartBackfillMeter(ctx context.Context, c client.Client, tenant metering.TenantID, version metering.MeterVersionID) error {
	options := client.StartWorkflowOptions{
		ID:                       BackfillMeterID(tenant, version),
		TaskQueue:                TaskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            fmt.Sprintf("Count the past of a meter of %s", tenant),
		StaticDetails: fmt.Sprintf("Counts what was ingested before meter version %d of %s was published. "+
			"Until the first backfill of a meter ends, its usage answers 503 and billing skips it.", version, tenant),
		TypedSearchAttributes: attributesOf(tenant),
		Priority:              temporal.Priority{PriorityKey: background, FairnessKey: tenant.String()},
	}
	input := BackfillMeterInput{TenantID: tenant, MeterVersionID: version}
	return start(ctx, &options, func(ctx context.Context, _ bool) error {
		_, err := c.ExecuteWorkflow(ctx, options, BackfillMeter, input)
		return err
	})
}

// HandleProviderEventID is the workflow id of an event of a provider's.
func HandleProviderEventID(tenant metering.TenantID, row metering.ProviderEventID) string {
	return fmt.Sprintf("provider-event/%d/%d", tenant, row)
}

// StartHandleProviderEvent makes sure that a run acts on the event, whose row
// was committed before, and does not wait for it. CodeUnavailable when Temporal
// does not answer.
func StartHandleProviderEvent(ctx context.Context, c client.Client, tenant metering.TenantID, row metering.ProviderEventID) error {
	options := client.StartWorkflowOptions{
		ID:                       HandleProviderEventID(tenant, row),
		TaskQueue:                TaskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            eventSummary(tenant),
		StaticDetails:            eventDetails,
		TypedSearchAttributes:    attributesOf(tenant, triggerAttribute.ValueSet(string(metering.ByProvider))),
		Priority:                 temporal.Priority{PriorityKey: interactive, FairnessKey: tenant.String()},
	}
	input := HandleProviderEventInput{TenantID: tenant, RowID: row}
	return start(ctx, &options, func(ctx context.Context, unindexed bool) error {
		input.Unindexed = unindexed
		_, err := c.ExecuteWorkflow(ctx, options, HandleProviderEvent, input)
		return err
	})
}

func eventSummary(tenant metering.TenantID) string {
	return fmt.Sprintf("Act on an event of the billing provider of %s", tenant)
}

const eventDetails = "Reads how the subscription or the invoice stands now, sends the last usage of a period whose invoice is still open " +
	"and says what came of it, and closes one whose invoice is final."

// StartRotateAPIKey begins a rotation whose row was committed before, and does
// not wait for it. CodeUnavailable when Temporal does not answer: it may have
// begun all the same.
func StartRotateAPIKey(ctx context.Context, c client.Client, tenant metering.TenantID, rotation metering.RotationID) error {
	options := client.StartWorkflowOptions{
		ID:                    RotateAPIKeyID(tenant, rotation),
		TaskQueue:             TaskQueue,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		StaticSummary:         fmt.Sprintf("Rotate an API key of %s", tenant),
		StaticDetails:         "Makes the new key valid and the old one invalid in one transaction. Neither key is here.",
		TypedSearchAttributes: attributesOf(tenant),
		Priority:              temporal.Priority{PriorityKey: interactive, FairnessKey: tenant.String()},
	}
	input := RotateAPIKeyInput{TenantID: tenant, RotationID: rotation}
	return start(ctx, &options, func(ctx context.Context, _ bool) error {
		_, err := c.ExecuteWorkflow(ctx, options, RotateAPIKey, input)
		return err
	})
}

// RotateHMACSecretID is the workflow id of the replacement of a secret.
func RotateHMACSecretID(tenant metering.TenantID, secret metering.HMACSecretID) string {
	return fmt.Sprintf("rotate-hmac-secret/%d/%d", tenant, secret)
}

// StartRotateHMACSecret makes sure that a run knows how long a secret is valid
// beside its successor, and does not wait for it. CodeUnavailable when Temporal
// does not answer: the old secret ends in time all the same.
func StartRotateHMACSecret(ctx context.Context, c client.Client, tenant metering.TenantID, secret metering.HMACSecretID) error {
	options := client.StartWorkflowOptions{
		ID:                    RotateHMACSecretID(tenant, secret),
		TaskQueue:             TaskQueue,
		StaticSummary:         rotateHMACSummary(tenant),
		StaticDetails:         rotateHMACDetails,
		TypedSearchAttributes: attributesOf(tenant),
		Priority:              temporal.Priority{PriorityKey: background, FairnessKey: tenant.String()},
	}
	input := RotateHMACSecretInput{TenantID: tenant, SecretID: secret}
	return start(ctx, &options, func(ctx context.Context, _ bool) error {
		_, err := c.SignalWithStartWorkflow(ctx, options.ID, overlapChanged, nil, options, RotateHMACSecret, input)
		return err
	})
}

func rotateHMACSummary(tenant metering.TenantID) string {
	return fmt.Sprintf("Replace an HMAC secret of %s", tenant)
}

const rotateHMACDetails = "Revokes the old secret once its time beside the new one is over. " +
	"The update finish-now revokes it at once; cancelling keeps both. Neither secret is here."

// DeliverWebhooksID is the workflow id of what is told to an endpoint.
func DeliverWebhooksID(endpoint metering.EndpointID) string {
	return fmt.Sprintf("deliver-webhooks/%d", endpoint)
}

// StartDeliverWebhooks makes sure that a run looks at what is due for the
// endpoint, and does not wait for it.
func StartDeliverWebhooks(ctx context.Context, c client.Client, tenant metering.TenantID, endpoint metering.EndpointID) error {
	options := client.StartWorkflowOptions{
		ID:                    DeliverWebhooksID(endpoint),
		TaskQueue:             TaskQueue,
		StaticSummary:         fmt.Sprintf("Tell %s of %s what happened", endpoint, tenant),
		StaticDetails:         "Delivers the messages that wait for a webhook of the tenant's, and waits with it while it fails.",
		TypedSearchAttributes: attributesOf(tenant),
		Priority:              temporal.Priority{PriorityKey: background, FairnessKey: tenant.String()},
	}
	input := DeliverWebhooksInput{TenantID: tenant, EndpointID: endpoint}
	return start(ctx, &options, func(ctx context.Context, _ bool) error {
		_, err := c.SignalWithStartWorkflow(ctx, options.ID, messagesDue, nil, options, DeliverWebhooks, input)
		return err
	})
}

// RunRotateSecrets has every secret sealed under the key of that id and waits
// for the end of it, in the run that is open if there is one.
func RunRotateSecrets(ctx context.Context, c client.Client, keyID string) (done RotateSecretsResult, err error) {
	options := client.StartWorkflowOptions{
		ID:                       "rotate-secrets/" + keyID,
		TaskQueue:                TaskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            "Seal every secret under the key " + keyID,
		Priority:                 temporal.Priority{PriorityKey: background},
	}
	run, err := c.ExecuteWorkflow(ctx, options, RotateSecrets, RotateSecretsInput{KeyID: keyID})
	if err != nil {
		return done, unreachable(options.ID, err)
	}
	return done, run.Get(ctx, &done)
}

// start runs call with the search attributes, and without them where they are
// not registered: then operators find less, but the work is done.
func start(ctx context.Context, options *client.StartWorkflowOptions, call func(ctx context.Context, unindexed bool) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := call(ctx, false)
	var invalid *serviceerror.InvalidArgument
	if errors.As(err, &invalid) {
		slog.WarnContext(ctx, "search attributes are not registered: starting without them", "workflow_id", options.ID)
		options.TypedSearchAttributes = temporal.SearchAttributes{}
		err = call(ctx, true)
	}
	if err != nil {
		return unreachable(options.ID, err)
	}
	return nil
}

func unreachable(workflowID string, cause error) error {
	return metering.Errorf(metering.CodeUnavailable, "the workflow engine does not answer; try again").
		Because(fmt.Errorf("start %s: %w", workflowID, cause))
}
