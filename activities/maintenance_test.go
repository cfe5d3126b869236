package activities_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
)

// TestMaintenanceDeletesOldRows checks the retention of rows that the daily work no longer needs. An event is known for
// longer than its provider lists it.
func TestMaintenanceDeletesOldRows(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	tenant, began := dbtest.Tenant(t, store).ID, clock.Now()
	now := began
	customer := dbtest.Customer(t, store, tenant, "acme")
	provider := dbtest.Provider(t, store, tenant, metering.Provider{
		Kind: metering.Webhook, Statements: true, Address: "https://billing.example.com/", SealedSecret: []byte("sealed"), ValidatedAt: began,
	})
	event := metering.ProviderEvent{Connection: provider.ID, EventID: "evt_1", Kind: "invoice.created", Invoice: true, ObjectID: "in_1", Customer: "cus_1", MadeAt: began}
	known := func() bool {
		kept, handled, err := store.ProviderEvents.Store(t.Context(), tenant, event, now)
		require.NoError(t, err)
		require.NoError(t, store.ProviderEvents.Handle(t.Context(), tenant, kept.Row, "none", now))
		return handled
	}
	sync, err := store.Syncs.Request(t.Context(), tenant, metering.Operator, customer.ID, metering.Manual, began)
	require.NoError(t, err)
	begun, err := store.Syncs.Begin(t.Context(), tenant, customer.ID, began)
	require.NoError(t, err)
	_, err = store.Syncs.Finish(t.Context(), tenant, customer.ID, begun.PassID, ledger.Answer{}, began)
	require.NoError(t, err)

	do := activities.New(activities.Config{
		Store: store, Providers: providers.Registered(), Metrics: activities.NewMetrics(nil), Now: func() time.Time { return now },
	})
	var suite testsuite.WorkflowTestSuite
	worker := suite.NewTestActivityEnvironment()
	worker.RegisterActivity(do)
	sweepAfter := func(age time.Duration) {
		now = began.Add(age)
		_, err := worker.ExecuteActivity(do.SweepEventCounts)
		require.NoError(t, err)
	}
	require.False(t, known())
	sweepAfter(2 * stripe.Provider{}.KeepsEvents())
	require.True(t, known())
	sweepAfter(91 * 24 * time.Hour)
	require.False(t, known())

	isKept := func(id uuid.UUID) bool {
		_, err := store.Syncs.Get(t.Context(), tenant, id)
		return err == nil
	}
	sweepAfter(399 * 24 * time.Hour)
	require.True(t, isKept(sync.ID))
	sweepAfter(401 * 24 * time.Hour)
	require.False(t, isKept(sync.ID))
}
