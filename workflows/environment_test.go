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

// setInterceptors makes each run call the environment through interceptors. SetWorkerOptions replaces all options, so
// this function also keeps the deadlock detector off.
func setInterceptors(env *testsuite.TestWorkflowEnvironment, interceptors ...intercept) {
	var all []interceptor.WorkerInterceptor
	for _, i := range append(interceptors, lengthenTimeouts) {
		all = append(all, &runInterceptor{intercept: i})
	}
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: math.MaxInt64, Interceptors: all})
}

// intercept returns the interceptor of the calls of one run.
type intercept func(next interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor

// runInterceptor intercepts the calls of each run.
type runInterceptor struct {
	interceptor.WorkerInterceptorBase
	intercept
}

func (i *runInterceptor) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	inbound := &inboundInterceptor{intercept: i.intercept}
	inbound.Next = next
	return inbound
}

type inboundInterceptor struct {
	interceptor.WorkflowInboundInterceptorBase
	intercept
}

func (i *inboundInterceptor) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	return i.Next.Init(i.intercept(outbound))
}

// lengthenTimeouts sets the timeouts of an activity's attempts and heartbeats to dbtest.Deadline. The test environment
// measures these timeouts with the machine's clock.
func lengthenTimeouts(next interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor {
	return &longTimeoutsOutbound{interceptor.WorkflowOutboundInterceptorBase{Next: next}}
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
