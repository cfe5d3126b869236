package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// TestAnErasedCustomerStaysArchived erases a customer after one of its events is stored, and before ingest unarchives
// the customers of the events. A request cannot unarchive the customer either.
func TestAnErasedCustomerStaysArchived(t *testing.T) {
	t.Parallel()
	store, now := dbtest.Open(t), clock.Now()
	tenant := dbtest.Tenant(t, store).ID
	gone, used := dbtest.Customer(t, store, tenant, "gone"), dbtest.Customer(t, store, tenant, "used")
	for _, c := range []metering.Customer{gone, used} {
		_, err := store.Customers.Archive(t.Context(), tenant, "key_1", c.ExternalID, now)
		require.NoError(t, err)
	}
	erased, err := store.Erasures.Begin(t.Context(), tenant, "key_1", "gone", "asked for", now)
	require.NoError(t, err)

	require.NoError(t, store.Customers.UnarchiveUsed(t.Context(), tenant, []metering.CustomerID{gone.ID, used.ID}))
	kept, err := store.Customers.Get(t.Context(), tenant, erased.ExternalID)
	require.NoError(t, err)
	require.Equal(t, erased.ArchivedAt, kept.ArchivedAt)
	unarchived, err := store.Customers.Get(t.Context(), tenant, "used")
	require.NoError(t, err)
	require.True(t, unarchived.ArchivedAt.IsZero())
	entries, err := dbtest.Items(store.AuditLog.List(t.Context(), tenant, access.AuditFilter{Action: "customer.unarchive"}, 0, 10))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, used.ID.String(), entries[0].Resource)

	_, err = store.Customers.Archive(t.Context(), tenant, "key_1", erased.ExternalID, time.Time{})
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	require.ErrorContains(t, err, "stays archived")
	kept, err = store.Customers.Archive(t.Context(), tenant, "key_1", erased.ExternalID, now)
	require.NoError(t, err)
	require.Equal(t, erased, kept)
}
