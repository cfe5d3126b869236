package workflows_test

import (
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// taken rejects starts of child workflows as the server does if a run with the same ID is open, which the test
// environment cannot do. starts is the number of starts that it still rejects.
type taken struct{ starts int }

func (t *taken) intercept(next interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor {
	return &takenOutbound{interceptor.WorkflowOutboundInterceptorBase{Next: next}, t}
}

type takenOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	*taken
}

func (t *takenOutbound) ExecuteChildWorkflow(ctx workflow.Context, child string, args ...any) workflow.ChildWorkflowFuture {
	if t.starts == 0 {
		return t.Next.ExecuteChildWorkflow(ctx, child, args...)
	}
	t.starts--
	failed, settable := workflow.NewFuture(ctx)
	settable.SetError(new(temporal.ChildWorkflowExecutionAlreadyStartedError))
	return takenChild{failed}
}

type takenChild struct{ workflow.Future }

func (t takenChild) GetChildWorkflowExecution() workflow.Future { return t.Future }

func (t takenChild) SignalChildWorkflow(workflow.Context, string, any) workflow.Future {
	return t.Future
}
