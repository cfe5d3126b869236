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

// start contains the options with which a client, another run or a schedule starts a run. Each
// workflow has one function that returns its start.
type start struct {
	workflow   any
	input      any // nil: the workflow takes no input
	id         string
	summary    string
	details    string
	tenant     metering.TenantID                // 0: the run is for all tenants
	attributes []temporal.SearchAttributeUpdate // in addition to tenantAttribute
	priority   int
	signal     string // sent by a client to the open or new run; "": an open run gets no signal
}

// Priority keys of tasks. Tasks that a person waits for come first.
const (
	interactive = 1
	background  = 4
)

// customerRequestText returns a sentence with the API request that reads the customer, for the details of its runs.
func customerRequestText(customer metering.CustomerID) string {
	return fmt.Sprintf("The customer: `GET /v1/customers/by-id?id=%s`.", customer)
}

// customerLink returns the customer's id, as a Markdown link if the page is known.
func customerLink(customer metering.CustomerID, page string) string {
	if page == "" {
		return customer.String()
	}
	return fmt.Sprintf("[%s](%s)", customer, page)
}

// args returns the arguments of the workflow.
func (s start) args() []any {
	if s.input == nil {
		return nil
	}
	return []any{s.input}
}

// searchAttributes returns the search attributes of the run. A run for all tenants has none.
func (s start) searchAttributes() temporal.SearchAttributes {
	if s.tenant == 0 {
		return temporal.SearchAttributes{}
	}
	return attributesOf(s.tenant, s.attributes...)
}

// fairPriority returns the priority of the run. Among runs with the same priority key, tenants take turns.
func (s start) fairPriority() temporal.Priority {
	p := temporal.Priority{PriorityKey: s.priority}
	if s.tenant != 0 {
		p.FairnessKey = s.tenant.String()
	}
	return p
}

// clientOptions returns the options for a start by a client. If a run is open, the start joins it.
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

// childOptions returns the options for a start by another run. The child continues after its parent
// ends.
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

// action returns the action of a schedule that starts the run.
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

// startChild starts the run as a child of the current run.
func (s start) startChild(ctx workflow.Context) workflow.ChildWorkflowFuture {
	return workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, s.childOptions()), s.workflow, s.args()...)
}

// startChildOrSignal starts the run as a child, or signals the open run. The returned run is nil if it is not a child
// of the current run. The start fails if a run is open, and the signal fails if that run has ended since. After three
// such failures, startChildOrSignal returns no error: the worker later starts a run for the committed row.
func (s start) startChildOrSignal(ctx workflow.Context) (run workflow.Future, err error) {
	const tries = 3
	for range tries {
		child := s.startChild(ctx)
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

// startIndependent starts a run that does not end with the calling run. It returns when the run has started, or if
// one is already open.
func (s start) startIndependent(ctx workflow.Context) error {
	err := s.startChild(ctx).GetChildWorkflowExecution().Get(ctx, nil)
	var running *temporal.ChildWorkflowExecutionAlreadyStartedError
	if errors.As(err, &running) {
		return nil
	}
	return err
}
