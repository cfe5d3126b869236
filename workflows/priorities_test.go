package workflows_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// priorities sets the priority key of a run, and records the priority keys of its children.
type priorities struct {
	parent   int
	children []int
}

func (p *priorities) intercept(next interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor {
	return &prioritiesOutbound{interceptor.WorkflowOutboundInterceptorBase{Next: next}, p}
}

type prioritiesOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	*priorities
}

func (p *prioritiesOutbound) GetInfo(ctx workflow.Context) *workflow.Info {
	info := p.Next.GetInfo(ctx)
	info.Priority = temporal.Priority{PriorityKey: p.parent}
	return info
}

func (p *prioritiesOutbound) ExecuteChildWorkflow(ctx workflow.Context, child string, args ...any) workflow.ChildWorkflowFuture {
	p.children = append(p.children, workflow.GetChildWorkflowOptions(ctx).Priority.PriorityKey)
	return p.Next.ExecuteChildWorkflow(ctx, child, args...)
}

func TestTheSyncOfAnEventHasThePriorityOfTheEvent(t *testing.T) {
	for _, priority := range []int{1, 4} {
		h, keys := newHappening(t), &priorities{parent: priority}
		setInterceptors(h.TestWorkflowEnvironment, keys.intercept)
		outcome, _ := h.run(t)
		require.Equal(t, "the period's last usage was sent", outcome)
		require.Equal(t, []int{priority}, keys.children)
	}
}
