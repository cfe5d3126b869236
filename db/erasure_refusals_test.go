package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// erase begins the erasure of the biller's customer.
func (b *biller) erase() (metering.Customer, error) {
	return b.store.Erasures.Begin(b.Context(), b.tenant, "key_1", "acme", "asked for", b.now)
}

// TestACustomerWhoIsPausedIsNotErased pauses a customer during a sync. The sync then ends, so no open sync refuses the
// erasure.
func TestACustomerWhoIsPausedIsNotErased(t *testing.T) {
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

// TestACustomerWhoIsPausedIsErasedOnceThereIsNoProvider deletes the provider, because no sync can be requested then to
// resume the customer. The operator's pause then ends only at another receiver: the previous one would bill the usage
// again under the new name.
func TestACustomerWhoIsPausedIsErasedOnceThereIsNoProvider(t *testing.T) {
	t.Parallel()
	for receiver, resumes := range map[string]bool{"https://billing.example.com/usage": false, anotherReceiver: true} {
		b := newBiller(t)
		b.use("1")
		b.acceptAll()
		b.pause("the receiver is being moved")
		b.now = b.now.Add(time.Minute)
		require.NoError(t, b.deleteProvider())
		_, err := b.erase()
		require.NoError(t, err)

		b.useProvider(receiver)
		require.Equal(t, resumes, b.resume("there is a receiver"), receiver)
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
