package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// take makes and leases what there is to send.
func (b *biller) take(after int64) (db.Prepared, db.Delivery) {
	b.Helper()
	prepared, delivery, err := b.store.Ledger.TakeSnapshot(b.Context(), b.tenant, b.customer.ID, after, dbtest.Frame, b.now, lease)
	require.NoError(b, err)
	return prepared, delivery
}

func TestASnapshotThatIsTakenIsLeased(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("5")
	prepared, delivery := b.take(0)
	require.True(t, prepared.Last)
	require.Equal(t, 1, delivery.Attempt)
	require.Equal(t, prepared.Send.Body, delivery.Body)

	_, _, err := b.store.Ledger.TakeSnapshot(t.Context(), b.tenant, b.customer.ID, 0, dbtest.Frame, b.now, lease)
	var busy db.Busy
	require.ErrorAs(t, err, &busy)
	require.Equal(t, metering.CodeOverloaded, metering.CodeOf(err))

	b.now = b.now.Add(lease)
	again, delivery := b.take(0)
	require.False(t, again.Last, "something may have come since it was made")
	require.Equal(t, prepared.Send.ID, again.Send.ID)
	require.Equal(t, 2, delivery.Attempt)
	require.Equal(t, prepared.Send.Body, delivery.Body)
}

func TestADeliveryIsRecordedWithItsAcknowledgement(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("5")
	prepared, _ := b.take(0)
	answer := db.Answer{Snapshots: append(prepared.UpToDate, prepared.Send.ID)}
	require.NoError(t, b.store.Syncs.RecordDelivery(t.Context(), b.tenant, b.customer.ID, prepared.Send.ID, "the webhook answered 200", answer, b.now, b.now))
	runs, err := b.store.Syncs.List(t.Context(), b.tenant, db.SyncFilter{}, 2)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	run, err := b.store.Syncs.Get(t.Context(), b.tenant, runs[0].ID)
	require.NoError(t, err)
	require.Equal(t, metering.SyncSucceeded, run.Status)
	require.Len(t, run.Entries, 1)
	require.Equal(t, "acknowledged", run.Entries[0].Status)
	require.Equal(t, "5", run.Entries[0].Usage.String())
	due, err := b.store.Ledger.Due(t.Context(), b.tenant, 0, 10, b.now)
	require.NoError(t, err)
	require.Empty(t, due.Customers)
	none, _ := b.take(0)
	require.Nil(t, none.Send)
}

// Two open periods are told one after the other: the first is not the last.
func TestTheLastSnapshotIsThatOfTheLastPeriod(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	before := billing.CalendarPeriod(b.now, time.UTC).Start.Add(-time.Hour)
	_, err := b.connect().Exec(t.Context(), `update customers set created_at = $2 where tenant_id = $1`, b.tenant, before)
	require.NoError(t, err)
	b.useAt("5", before)
	b.use("7")
	first, _ := b.take(0)
	require.False(t, first.Last)
	require.NoError(t, b.store.Ledger.Settle(t.Context(), b.tenant, first.Send.ID, db.Acknowledged, "", b.now))
	second, _ := b.take(0)
	require.True(t, second.Last)
	require.Equal(t, first.Send.Period.End, second.Send.Period.Start)
}
