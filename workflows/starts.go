package workflows

import (
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/metering"
)

// start says how a run is begun, whoever begins it: a client, another run or a
// schedule. There is one function below for each workflow.
type start struct {
	workflow   any
	input      any // nil: the workflow takes none
	id         string
	summary    string
	details    string
	tenant     metering.TenantID                // 0: the run is for all tenants
	attributes []temporal.SearchAttributeUpdate // beside the tenant's
	priority   int
	signal     string // a client sends it to the run, open or new; "": a run that is open is left alone
	unindexed  bool   // search attributes are not registered
}

// Priorities of task queues: what a person waits for comes first.
const (
	interactive = 1
	background  = 4
)

// SyncCustomerID is the workflow id of a customer's sync: one run at a time.
func SyncCustomerID(tenant metering.TenantID, customer metering.CustomerID) string {
	return fmt.Sprintf("sync-customer/%d/%d", tenant, customer)
}

func syncCustomerStart(tenant metering.TenantID, customer metering.CustomerID, trigger metering.Trigger) start {
	s := start{
		workflow: SyncCustomer,
		input:    SyncCustomerInput{TenantID: tenant, CustomerID: customer},
		id:       SyncCustomerID(tenant, customer),
		summary:  fmt.Sprintf("Sync the usage of %s", customer),
		details: fmt.Sprintf("Reports to the billing provider of %s what %s owes so far, one stored report at a time. "+
			"Cancelling fails the open requests; what was sent stays recorded.", tenant, customer),
		tenant: tenant,
		attributes: []temporal.SearchAttributeUpdate{
			customerAttribute.ValueSet(customer.String()), triggerAttribute.ValueSet(string(trigger)), outcomeAttribute.ValueSet(running),
		},
		priority: interactive,
		signal:   syncRequested,
	}
	if trigger == metering.Scheduled {
		s.priority = background
	}
	return s
}

// AutoSyncID is the id of a tenant's schedule, and what the ids of its runs
// begin with.
func AutoSyncID(tenant metering.TenantID) string { return fmt.Sprintf("auto-sync/%d", tenant) }

func autoSyncStart(tenant metering.TenantID) start {
	return start{
		workflow:   AutoSync,
		input:      AutoSyncInput{TenantID: tenant},
		id:         AutoSyncID(tenant),
		summary:    fmt.Sprintf("Auto-Sync of %s", tenant),
		details:    "Reports to the billing provider whatever is unreported, of every customer.",
		tenant:     tenant,
		attributes: []temporal.SearchAttributeUpdate{triggerAttribute.ValueSet(string(metering.Scheduled))},
		priority:   background,
	}
}

// ClosePeriodID is the workflow id of the closing of a tenant's periods.
func ClosePeriodID(tenant metering.TenantID) string { return fmt.Sprintf("close-period/%d", tenant) }

func closePeriodStart(tenant metering.TenantID) start {
	return start{
		workflow: ClosePeriod,
		input:    ClosePeriodInput{TenantID: tenant},
		id:       ClosePeriodID(tenant),
		summary:  fmt.Sprintf("Close the billing periods of %s", tenant),
		details:  "Reports to the provider the last usage of the periods whose grace is over, and then closes them.",
		tenant:   tenant,
		priority: background,
	}
}

// HandleProviderEventID is the workflow id of an event of a provider's.
func HandleProviderEventID(tenant metering.TenantID, row metering.ProviderEventID) string {
	return fmt.Sprintf("provider-event/%d/%d", tenant, row)
}

func handleProviderEventStart(tenant metering.TenantID, row metering.ProviderEventID) start {
	return start{
		workflow: HandleProviderEvent,
		input:    HandleProviderEventInput{TenantID: tenant, RowID: row},
		id:       HandleProviderEventID(tenant, row),
		summary:  fmt.Sprintf("Act on an event of the billing provider of %s", tenant),
		details: "Reads how the subscription or the invoice stands now, sends the last usage of a period whose invoice is still open " +
			"and says what came of it, and closes one whose invoice is final.",
		tenant:     tenant,
		attributes: []temporal.SearchAttributeUpdate{triggerAttribute.ValueSet(string(metering.ByProvider))},
		priority:   interactive,
	}
}

// BackfillMeterID is the workflow id of a meter version's backfill.
func BackfillMeterID(tenant metering.TenantID, version metering.MeterVersionID) string {
	return fmt.Sprintf("backfill-meter/%d/%d", tenant, version)
}

func backfillMeterStart(tenant metering.TenantID, version metering.MeterVersionID) start {
	return start{
		workflow: BackfillMeter,
		input:    BackfillMeterInput{TenantID: tenant, MeterVersionID: version},
		id:       BackfillMeterID(tenant, version),
		summary:  fmt.Sprintf("Count the past of a meter of %s", tenant),
		details: fmt.Sprintf("Counts what was ingested before meter version %d of %s was published. "+
			"Until the first backfill of a meter ends, its usage answers 503 and billing skips it.", version, tenant),
		tenant:   tenant,
		priority: background,
	}
}

// RotateCredentialID is the workflow id of a rotation.
func RotateCredentialID(tenant metering.TenantID, rotation metering.RotationID) string {
	return fmt.Sprintf("rotate-credential/%d/%d", tenant, rotation)
}

func rotateCredentialStart(tenant metering.TenantID, rotation metering.RotationID) start {
	return start{
		workflow: RotateCredential,
		input:    RotateCredentialInput{TenantID: tenant, RotationID: rotation},
		id:       RotateCredentialID(tenant, rotation),
		summary:  fmt.Sprintf("Rotate a credential of %s", tenant),
		details: "Records the end of the old credential once its time beside the new one is over, and warns where it is still used near its end. " +
			"The update finish-now ends it at once; cancelling keeps both. Neither credential is here.",
		tenant:   tenant,
		priority: background,
		signal:   rotationChanged,
	}
}

// DeliverWebhooksID is the workflow id of what is told to an endpoint.
func DeliverWebhooksID(endpoint metering.EndpointID) string {
	return fmt.Sprintf("deliver-webhooks/%d", endpoint)
}

func deliverWebhooksStart(tenant metering.TenantID, endpoint metering.EndpointID) start {
	return start{
		workflow: DeliverWebhooks,
		input:    DeliverWebhooksInput{TenantID: tenant, EndpointID: endpoint},
		id:       DeliverWebhooksID(endpoint),
		summary:  fmt.Sprintf("Tell %s of %s what happened", endpoint, tenant),
		details:  "Delivers the messages that wait for a webhook of the tenant's, and waits with it while it fails.",
		tenant:   tenant,
		priority: background,
		signal:   messagesDue,
	}
}

func rotateSecretsStart(keyID string) start {
	return start{
		workflow: RotateSecrets,
		input:    RotateSecretsInput{KeyID: keyID},
		id:       "rotate-secrets/" + keyID,
		summary:  "Seal every secret under the key " + keyID,
		priority: background,
	}
}

func maintainStart() start {
	return start{workflow: Maintain, id: "maintain", summary: "Hourly maintenance", priority: background}
}

func auditUsageStart() start {
	return start{
		workflow: AuditUsage,
		input:    AuditUsageInput{},
		id:       "audit-usage",
		summary:  "Daily comparison of usage with its independent count",
		priority: background,
	}
}

// indexable inputs tell their run whether it may set search attributes.
type indexable interface{ unindexed() any }

func (in SyncCustomerInput) unindexed() any        { in.Unindexed = true; return in }
func (in AutoSyncInput) unindexed() any            { in.Unindexed = true; return in }
func (in HandleProviderEventInput) unindexed() any { in.Unindexed = true; return in }

// withoutAttributes is the start where search attributes are not registered.
func (s start) withoutAttributes(unindexed bool) start {
	if !unindexed {
		return s
	}
	s.unindexed = true
	if in, ok := s.input.(indexable); ok {
		s.input = in.unindexed()
	}
	return s
}

func (s start) args() []any {
	if s.input == nil {
		return nil
	}
	return []any{s.input}
}

func (s start) searchAttributes() temporal.SearchAttributes {
	if s.unindexed || s.tenant == 0 {
		return temporal.SearchAttributes{}
	}
	return attributesOf(s.tenant, s.attributes...)
}

func (s start) fairPriority() temporal.Priority {
	p := temporal.Priority{PriorityKey: s.priority}
	if s.tenant != 0 {
		p.FairnessKey = s.tenant.String()
	}
	return p
}

// clientOptions are those of a client, which joins a run that is open.
func (s start) clientOptions() client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                       s.id,
		TaskQueue:                TaskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            s.summary,
		StaticDetails:            s.details,
		TypedSearchAttributes:    s.searchAttributes(),
		Priority:                 s.fairPriority(),
	}
}

// childOptions are those of another run, which may end before this one.
func (s start) childOptions() workflow.ChildWorkflowOptions {
	return workflow.ChildWorkflowOptions{
		WorkflowID:            s.id,
		TaskQueue:             TaskQueue,
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
		StaticSummary:         s.summary,
		StaticDetails:         s.details,
		TypedSearchAttributes: s.searchAttributes(),
		Priority:              s.fairPriority(),
	}
}

// action is what a schedule does.
func (s start) action() *client.ScheduleWorkflowAction {
	return &client.ScheduleWorkflowAction{
		ID:                    s.id,
		Workflow:              s.workflow,
		Args:                  s.args(),
		TaskQueue:             TaskQueue,
		StaticSummary:         s.summary,
		StaticDetails:         s.details,
		TypedSearchAttributes: s.searchAttributes(),
		Priority:              s.fairPriority(),
	}
}

// child begins the run as a child.
func (s start) child(ctx workflow.Context) workflow.ChildWorkflowFuture {
	return workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, s.childOptions()), s.workflow, s.args()...)
}

// apart returns once a run of its own has begun, or was there already.
func (s start) apart(ctx workflow.Context) error {
	err := s.child(ctx).GetChildWorkflowExecution().Get(ctx, nil)
	var running *temporal.ChildWorkflowExecutionAlreadyStartedError
	if errors.As(err, &running) {
		return nil
	}
	return err
}
