package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

func TestEventsAreDroppedOnlyIfRetentionIsSet(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store, _ := dbtest.Fresh(t)
	writer := store.NewWriter(dbtest.WriterOptions)
	t.Cleanup(writer.Close)
	tenant := dbtest.Tenant(t, store).ID
	for _, days := range []int{10, 100} {
		_, err := writer.Ingest(t.Context(), tenant, []metering.Event{dbtest.Event(t, "call", "acme", b.now.AddDate(0, 0, -days), "1", "", "")})
		require.NoError(t, err)
	}
	drop := func(retention metering.Retention) activities.DropEventsResult {
		do := activities.New(activities.Config{
			Store: store, Webhook: b.far, Providers: b.far.registry(), Retention: retention, Metrics: activities.NewMetrics(nil), Now: func() time.Time { return b.now },
		})
		var suite testsuite.WorkflowTestSuite
		worker := suite.NewTestActivityEnvironment()
		worker.RegisterActivity(do)
		value, err := worker.ExecuteActivity(do.DropEvents)
		require.NoError(t, err)
		var result activities.DropEventsResult
		require.NoError(t, value.Get(&result))
		return result
	}
	require.Zero(t, drop(0).Chunks)
	require.Equal(t, 1, drop(metering.Retention(metering.MinRetention)).Chunks)
	require.Zero(t, drop(metering.Retention(metering.MinRetention)).Chunks, "again")
}
