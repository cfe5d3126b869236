package workflows_test

import (
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// taken rejects starts of child workflows as the server does if a run with the same ID is open, which the test
// environment cannot do. starts is the number of starts that it still rejects.
type taken struct {
	interceptor.WorkerInterceptorBase
	starts int
}

func (t *taken) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	inbound := &takenInbound{taken: t}
	inbound.Next = next
	return inbound
}

type takenInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	*taken
}

func (t *takenInbound) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	mine := &takenOutbound{taken: t.taken}
	mine.Next = outbound
	return t.Next.Init(mine)
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
