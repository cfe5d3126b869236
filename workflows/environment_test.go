package workflows_test

import (
	"math"

	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/odometer-metering/odometer/db/dbtest"
)

// newEnvironment returns an environment that runs workflows without a server, even on a busy machine: a workflow that
// waits for the machine causes neither a deadlock error nor an early timeout.
func newEnvironment() *testsuite.TestWorkflowEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet)
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: math.MaxInt64})
	env.SetTestTimeout(dbtest.Deadline)
	return env
}
