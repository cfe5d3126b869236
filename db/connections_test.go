package db_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

func TestANewSecretForTheSameAccountGoesOn(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	b.accept()
	b.useProvider("https://billing.example.com/usage")
	require.Empty(t, b.plan(1).Send)
	b.use("1")
	s := b.next(1)
	b.useProvider("https://billing.example.com/usage")
	require.Equal(t, "2", read(t, b.lease(s.ID).Body).Data.Meters[0].Usage.String())
}

func TestAnotherAccountBillsOnlyWhatTheFirstHasNot(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.price("10", "0", "1")
	b.use("60")
	require.Equal(t, "70", b.accept().Data.Meters[0].Amount.String())

	b.useProvider("https://other.example.com/")
	b.use("40")
	m := b.accept()
	require.Equal(t, "40", m.Data.Meters[0].Usage.String())
	require.Equal(t, "40", m.Data.Meters[0].Amount.String())

	b.useProvider("https://billing.example.com/usage")
	require.Equal(t, "60", b.accept().Data.Meters[0].Usage.String(), "the other keeps its 40")
	b.use("5")
	m = b.accept()
	require.Equal(t, "65", m.Data.Meters[0].Usage.String())
	require.Equal(t, "75", m.Data.Meters[0].Amount.String())
}

func TestASnapshotForAReplacedAccountIsGivenUp(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("60")
	s := b.next(0)
	b.lease(s.ID)
	b.useProvider("https://other.example.com/")
	require.Equal(t, s.ID, b.next(0).ID, "somebody is sending it")
	b.now = b.now.Add(lease)
	_, err := b.store.Ledger.Lease(t.Context(), b.tenant, s.ID, b.now, lease)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	require.Equal(t, "60", b.accept().Data.Meters[0].Usage.String())

	b.complete(s.ID, billing.Accepted) // the first account's answer turns up late
	require.Equal(t, "0", b.accept().Data.Meters[0].Usage.String(), "so the second takes it back")
}
