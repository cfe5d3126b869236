package workflows_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/testsuite"
)

// detailsOf is what operators see of a run.
func detailsOf(t *testing.T, env *testsuite.TestWorkflowEnvironment) string {
	t.Helper()
	answer, err := env.QueryWorkflow("__temporal_workflow_metadata")
	require.NoError(t, err)
	var metadata sdkpb.WorkflowMetadata
	require.NoError(t, answer.Get(&metadata))
	return metadata.GetCurrentDetails()
}
