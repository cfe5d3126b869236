package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// erase begins the erasure of the biller's customer.
func (b *biller) erase() (metering.Customer, error) {
	return b.store.Erasures.Begin(b.Context(), b.tenant, "key_1", "acme", "asked for", b.now)
}

// TestPausedCustomerIsNotErased pauses a customer during a sync. The sync then ends, so no open sync refuses the
// erasure.
func TestPausedCustomerIsNotErased(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	b.request()
	pass := b.begin().PassID
	b.acceptAll()
	b.pause("the receiver is being moved")
	b.finish(pass, ledger.Answer{})
	refused := func() {
		t.Helper()
		_, err := b.erase()
		require.Equal(t, metering.CodePaused, metering.CodeOf(err))
		require.ErrorContains(t, err, "/resume")
	}
	refused()
	b.use("2")
	refused()

	require.True(t, b.resume("it is there"))
	_, err := b.erase()
	b.requireConflict(err, "with POST /v1/billing/sync")
	b.acceptAll()
	_, err = b.erase()
	require.NoError(t, err)
}

// TestReceiverThatKnowsPreviousNameGetsNoReportOfErasedCustomer erases a customer while there is no provider. A
// paused customer can be erased then too, because no sync can be requested to resume the customer. The previous
// receiver would bill the usage again under the new name; another receiver bills it for the first time.
func TestReceiverThatKnowsPreviousNameGetsNoReportOfErasedCustomer(t *testing.T) {
	t.Parallel()
	for _, paused := range []bool{true, false} {
		b := newBiller(t)
		b.use("1")
		b.acceptAll()
		if paused {
			b.pause("the receiver is being moved")
		}
		b.use("2")
		require.NoError(t, b.deleteProvider())
		erased, err := b.erase()
		require.NoError(t, err)

		b.useProvider("https://billing.example.com/usage")
		require.Equal(t, paused, b.resume("there is a receiver"))
		_, err = b.store.Ledger.Plan(t.Context(), b.tenant, b.customer.ID, ledger.Pass{After: anew}, dbtest.Frame, b.now)
		require.Equal(t, metering.CodePaused, metering.CodeOf(err), "paused: %t", paused)
		require.Empty(t, b.outOfSync())
		sync := b.request()
		require.Zero(t, b.begin().Requests)
		require.Contains(t, b.sync(sync).Pause.Reason, "by its previous name")

		b.useProvider(anotherReceiver)
		require.Nil(t, b.sync(sync).Pause)
		statement := b.accept()
		require.Equal(t, erased.ExternalID, statement.Data.CustomerExternalID)
		require.Equal(t, "2", statement.Data.Meters[0].Usage.String())

		b.useProvider("https://billing.example.com/usage")
		require.NotNil(t, b.sync(sync).Pause)
	}
}

func TestAnErasedCustomerIsNotErasedAgain(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	b.acceptAll()
	erased, err := b.erase()
	require.NoError(t, err)
	_, err = b.store.Erasures.Begin(t.Context(), b.tenant, "key_1", erased.ExternalID, "again", b.now.Add(time.Minute))
	b.requireConflict(err, "erased already")
	kept, err := b.store.Customers.Get(t.Context(), b.tenant, erased.ExternalID)
	require.NoError(t, err)
	require.Equal(t, erased, kept, "the digest and the time of the erasure stay")
}
