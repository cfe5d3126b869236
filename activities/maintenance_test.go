package activities_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// TestWhatNobodyIsWorkingOnIsFound has one row of every kind, and looks once
// each has waited for long enough.
func TestWhatNobodyIsWorkingOnIsFound(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	writer := db.NewWriter(b.store, db.WriterOptions{})
	defer writer.Close()
	_, err := writer.Ingest(t.Context(), b.tenant, []metering.Event{dbtest.Event(t, "stored", "acme", b.now, "1", "", "")})
	require.NoError(t, err)
	meter := dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	event, _, err := b.store.ProviderEvents.Store(t.Context(), b.tenant, metering.ProviderEvent{
		Account: "acct", EventID: "evt", Kind: "invoice.created", ObjectID: "in", Customer: "cus", MadeAt: b.now}, b.now)
	require.NoError(t, err)
	old, err := b.store.HMACSecrets.Create(t.Context(), b.tenant, metering.Operator,
		metering.HMACSecret{Name: "s", Scope: metering.ScopeAdmin, Sealed: []byte("old"), LastFour: "abcd"}, b.now)
	require.NoError(t, err)
	_, err = b.store.HMACSecrets.Rotate(t.Context(), b.tenant, metering.Operator, old.ID,
		metering.HMACSecret{Sealed: []byte("new"), LastFour: "efgh"}, b.now.Add(time.Hour), b.now)
	require.NoError(t, err)

	look := func() (events, syncs, backfills, secrets bool) {
		found := run[activities.UnfinishedResult](t, b, b.do.Unfinished, 1000)
		return slices.Contains(found.Events, activities.ProviderEventInput{TenantID: b.tenant, RowID: event}),
			slices.Contains(found.Syncs, activities.BeginSyncInput{TenantID: b.tenant, CustomerID: b.customer}),
			slices.Contains(found.Backfills, activities.BackfillInput{TenantID: b.tenant, MeterVersionID: meter.Version.ID}),
			slices.Contains(found.Secrets, activities.ReplacedSecretInput{TenantID: b.tenant, SecretID: old.ID})
	}
	events, syncs, backfills, secrets := look()
	require.Equal(t, [4]bool{false, false, true, true}, [4]bool{events, syncs, backfills, secrets}, "a start may be under way")
	b.now = b.now.Add(2 * time.Minute)
	events, syncs, backfills, secrets = look()
	require.Equal(t, [4]bool{true, true, true, true}, [4]bool{events, syncs, backfills, secrets})
	require.NoError(t, b.store.ProviderEvents.Handle(t.Context(), b.tenant, event, "done", b.now))
	_, err = b.store.HMACSecrets.Retire(t.Context(), b.tenant, old.ID, true, b.now)
	require.NoError(t, err)
	events, _, _, secrets = look()
	require.Equal(t, [2]bool{false, false}, [2]bool{events, secrets})
}
