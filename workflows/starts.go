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
// schedule. Beside each workflow stands the one function that makes its start.
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
}

// Priorities of task queues: what a person waits for comes first.
const (
	interactive = 1
	background  = 4
)

// inAPI is where the API has the customer, in the details of its runs.
func inAPI(customer metering.CustomerID) string {
	return fmt.Sprintf("The customer: `GET /v1/customers/by-id?id=%s`.", customer)
}

// linked is the customer, with a link to its page in the API where that is known.
func linked(customer metering.CustomerID, page string) string {
	if page == "" {
		return customer.String()
	}
	return fmt.Sprintf("[%s](%s)", customer, page)
}

func (s start) args() []any {
	if s.input == nil {
		return nil
	}
	return []any{s.input}
}

func (s start) searchAttributes() temporal.SearchAttributes {
	if s.tenant == 0 {
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

// childOrSignal begins the run as a child, or signals the one that is open. The
// run is nil where it is not a child of this one. Where neither works because
// runs end and begin meanwhile, the row that was committed before is enough: it
// is looked after.
func (s start) childOrSignal(ctx workflow.Context) (run workflow.Future, err error) {
	const tries = 3
	for range tries {
		child := s.child(ctx)
		err := child.GetChildWorkflowExecution().Get(ctx, nil)
		var running *temporal.ChildWorkflowExecutionAlreadyStartedError
		if !errors.As(err, &running) {
			return child, err
		}
		err = workflow.SignalExternalWorkflow(ctx, s.id, "", s.signal, nil).Get(ctx, nil)
		if err == nil || temporal.IsCanceledError(err) {
			return nil, err
		}
	}
	return nil, nil
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
