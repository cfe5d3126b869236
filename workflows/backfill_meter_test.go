package workflows_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

func TestBackfillMeterCountsEachDayOnceAndCompletesVersion(t *testing.T) {
	env := newEnvironment()
	env.RegisterActivity(do)
	var days, counted []time.Time
	for i := range 75 {
		days = append(days, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, i))
	}
	switched := false
	env.OnActivity(do.PlanBackfill, mock.Anything, mock.Anything).Return(activities.PlanBackfillResult{Days: slices.Clone(days)}, nil)
	env.OnActivity(do.CountDays, mock.Anything, mock.Anything).Return(
		func(_ context.Context, in activities.CountDaysInput) (activities.CountDaysResult, error) {
			require.False(t, switched)
			counted = append(counted, in.Days...)
			if len(counted) > 30 && len(counted) <= 60 && !slices.Equal(counted, days[:60]) {
				t.Fatal("the days come in order")
			}
			return activities.CountDaysResult{Done: len(in.Days), Events: 10}, nil
		})
	env.OnActivity(do.CompleteMeterVersion, mock.Anything, mock.Anything).Return(
		func(context.Context, activities.BackfillInput) error { switched = true; return nil })

	env.ExecuteWorkflow(workflows.BackfillMeter, workflows.BackfillMeterInput{TenantID: 1, MeterVersionID: 3})
	require.NoError(t, env.GetWorkflowError())
	var result workflows.BackfillMeterResult
	require.NoError(t, env.GetWorkflowResult(&result))
	require.Equal(t, workflows.BackfillMeterResult{Days: 75, Events: 30}, result)
	require.Equal(t, days, counted)
	require.True(t, switched)
}

func TestBackfillMeterWithoutDaysCompletesVersion(t *testing.T) {
	env := newEnvironment()
	env.RegisterActivity(do)
	env.OnActivity(do.PlanBackfill, mock.Anything, mock.Anything).Return(activities.PlanBackfillResult{}, nil)
	env.OnActivity(do.CompleteMeterVersion, mock.Anything, mock.Anything).Return(nil).Once()
	env.ExecuteWorkflow(workflows.BackfillMeter, workflows.BackfillMeterInput{TenantID: 1, MeterVersionID: 3})
	require.NoError(t, env.GetWorkflowError())
	env.AssertExpectations(t)
}

func TestBackfillMeterTriesAFailingDayAgain(t *testing.T) {
	env := newEnvironment()
	env.RegisterActivity(do)
	tries := 0
	env.OnActivity(do.PlanBackfill, mock.Anything, mock.Anything).Return(activities.PlanBackfillResult{Days: make([]time.Time, 1)}, nil)
	env.OnActivity(do.CountDays, mock.Anything, mock.Anything).Return(
		func(context.Context, activities.CountDaysInput) (activities.CountDaysResult, error) {
			if tries++; tries < 5 {
				return activities.CountDaysResult{}, activities.Failure(metering.Errorf(metering.CodeOverloaded, "busy"))
			}
			return activities.CountDaysResult{Done: 1, Events: 1}, nil
		})
	env.OnActivity(do.CompleteMeterVersion, mock.Anything, mock.Anything).Return(nil)
	env.ExecuteWorkflow(workflows.BackfillMeter, workflows.BackfillMeterInput{TenantID: 1, MeterVersionID: 3})
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, 5, tries)
}

func TestBackfillThatCrashesWorkersIsPausedUntilOperatorResumesIt(t *testing.T) {
	env := newEnvironment()
	env.RegisterActivity(do)
	var asked []activities.CountDaysInput
	env.OnActivity(do.PlanBackfill, mock.Anything, mock.Anything).Return(activities.PlanBackfillResult{Days: make([]time.Time, 3)}, nil)
	env.OnActivity(do.CountDays, mock.Anything, mock.Anything).Return(
		func(_ context.Context, in activities.CountDaysInput) (activities.CountDaysResult, error) {
			if asked = append(asked, in); len(asked) == 1 {
				return activities.CountDaysResult{Done: 1, Events: 1, Paused: true}, nil
			}
			return activities.CountDaysResult{Done: len(in.Days), Events: 1}, nil
		})
	env.OnActivity(do.RecordUpdate, mock.Anything, mock.Anything).Return(nil).Once()
	env.OnActivity(do.CompleteMeterVersion, mock.Anything, mock.Anything).Return(nil).Once()
	env.RegisterDelayedCallback(func() {
		require.Len(t, asked, 1, "nothing is counted while it is paused")
		env.UpdateWorkflow("resume", "", &updateAnswer{complete: func(_ any, err error) { require.NoError(t, err) }}, metering.Asked{By: "ada", Reason: "the workers have more memory"})
	}, time.Hour)
	env.ExecuteWorkflow(workflows.BackfillMeter, workflows.BackfillMeterInput{TenantID: 1, MeterVersionID: 3})
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, asked, 2)
	require.Equal(t, [2]bool{false, true}, [2]bool{asked[0].Resumed, asked[1].Resumed})
	require.Len(t, asked[1].Days, 2)
	env.AssertExpectations(t)
}
