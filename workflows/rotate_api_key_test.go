package workflows_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

func TestRotateAPIKeyOutlastsAFailingDatabaseAndSaysWhatBecameOfIt(t *testing.T) {
	for _, status := range []metering.RotationStatus{metering.RotationActivated, metering.RotationWithdrawn, metering.RotationRefused} {
		var suite testsuite.WorkflowTestSuite
		suite.SetLogger(quiet)
		env := suite.NewTestWorkflowEnvironment()
		env.RegisterActivity(do)
		tries := 0
		env.OnActivity(do.ActivateKey, mock.Anything, activities.ActivateKeyInput{TenantID: 1, RotationID: 7}).Return(
			func(context.Context, activities.ActivateKeyInput) (activities.ActivateKeyResult, error) {
				if tries++; tries < 4 {
					return activities.ActivateKeyResult{}, activities.Failure(metering.Errorf(metering.CodeUnavailable, "away"))
				}
				return activities.ActivateKeyResult{Status: status}, nil
			})
		env.ExecuteWorkflow(workflows.RotateAPIKey, workflows.RotateAPIKeyInput{TenantID: 1, RotationID: 7})
		require.NoError(t, env.GetWorkflowError())
		var result workflows.RotateAPIKeyResult
		require.NoError(t, env.GetWorkflowResult(&result))
		require.Equal(t, status, result.Status)
	}
}
