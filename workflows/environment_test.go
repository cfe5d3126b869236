package workflows_test

import (
	"math"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/db/dbtest"
)

// newEnvironment returns an environment that runs workflows without a server, even on a busy machine: a workflow that
// waits for the machine causes neither a deadlock error nor an early timeout.
func newEnvironment() *testsuite.TestWorkflowEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet)
	env := suite.NewTestWorkflowEnvironment()
	setInterceptors(env)
	env.SetTestTimeout(dbtest.Deadline)
	return env
}

// setInterceptors sets the interceptors of an environment. SetWorkerOptions replaces all options, so this function also
// keeps the deadlock detector off.
func setInterceptors(env *testsuite.TestWorkflowEnvironment, interceptors ...interceptor.WorkerInterceptor) {
	env.SetWorkerOptions(worker.Options{
		DeadlockDetectionTimeout: math.MaxInt64,
		Interceptors:             append(interceptors, new(longTimeouts)),
	})
}

// longTimeouts lengthens the timeouts of an activity's attempts and heartbeats to dbtest.Deadline. The test environment
// measures these timeouts with the machine's clock.
type longTimeouts struct {
	interceptor.WorkerInterceptorBase
}

func (*longTimeouts) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	inbound := new(longTimeoutsInbound)
	inbound.Next = next
	return inbound
}

type longTimeoutsInbound struct {
	interceptor.WorkflowInboundInterceptorBase
}

func (l *longTimeoutsInbound) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	own := new(longTimeoutsOutbound)
	own.Next = outbound
	return l.Next.Init(own)
}

type longTimeoutsOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
}

func (l *longTimeoutsOutbound) ExecuteActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	options := workflow.GetActivityOptions(ctx)
	if options.StartToCloseTimeout > 0 {
		ctx = workflow.WithStartToCloseTimeout(ctx, dbtest.Deadline)
	}
	if options.HeartbeatTimeout > 0 {
		ctx = workflow.WithHeartbeatTimeout(ctx, dbtest.Deadline)
	}
	return l.Next.ExecuteActivity(ctx, activityType, args...)
}
