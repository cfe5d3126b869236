package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

func TestManyOpenEventsOfTenantDoNotHideEventsOfAnotherTenant(t *testing.T) {
	t.Parallel()
	many, b := newBiller(t), newBiller(t)
	many.exec(`
		insert into provider_events (tenant_id, connection_id, event_id, kind, invoice, object_id, provider_customer, made_at, received_at)
		select k.tenant_id, k.id, 'evt_' || n, 'invoice.created', true, 'in_' || n, 'cus_1', $2, $2
		from billing_connections k, generate_series(1, 1000) n
		where k.tenant_id = $1`, many.tenant, b.now.Add(-time.Hour))
	provider, err := b.store.Providers.Active(t.Context(), b.tenant)
	require.NoError(t, err)
	kept, _, err := b.store.ProviderEvents.Store(t.Context(), b.tenant, metering.ProviderEvent{
		Connection: provider.ID, EventID: "evt_1", Kind: "invoice.created", Invoice: true, ObjectID: "in_1", Customer: "cus_1", MadeAt: b.now,
	}, b.now)
	require.NoError(t, err)
	open, err := b.store.ProviderEvents.Open(t.Context(), b.now.Add(time.Second))
	require.NoError(t, err)
	require.Contains(t, open, ledger.KeptEvent{Tenant: b.tenant, Row: kept.Row})
	many.exec(`update provider_events set handled_at = $2 where tenant_id = $1`, many.tenant, many.now)
}

// TestOldHandledEventsAreDeleted deletes with the role of the worker. Unhandled events are kept at any age.
func TestOldHandledEventsAreDeleted(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	worker := dbtest.OpenAsWorker(t, address)
	b := newBillerAt(t, store, address)
	provider, err := store.Providers.Active(t.Context(), b.tenant)
	require.NoError(t, err)
	keep := func(id string) (kept ledger.KeptEvent, handled bool) {
		kept, handled, err := store.ProviderEvents.Store(t.Context(), b.tenant, metering.ProviderEvent{
			Connection: provider.ID, EventID: id, Kind: "invoice.created", Invoice: true, ObjectID: "in_1", Customer: "cus_1", MadeAt: b.now.AddDate(-1, 0, 0),
		}, b.now.AddDate(-1, 0, 0))
		require.NoError(t, err)
		return kept, handled
	}
	for id, at := range map[string]time.Duration{"evt_1": -3 * time.Hour, "evt_2": -2 * time.Hour, "evt_3": 0} {
		kept, _ := keep(id)
		require.NoError(t, store.ProviderEvents.Handle(t.Context(), b.tenant, kept.Row, "none", b.now.Add(at)))
	}
	open, _ := keep("evt_4")
	for _, want := range []int64{1, 1, 0} {
		deleted, err := worker.ProviderEvents.Sweep(t.Context(), b.now.Add(-time.Hour), 1)
		require.NoError(t, err)
		require.Equal(t, want, deleted)
	}
	for id, want := range map[string]bool{"evt_1": false, "evt_2": false, "evt_3": true, "evt_4": false} {
		kept, handled := keep(id)
		require.Equal(t, want, handled, id)
		require.Equal(t, id == "evt_4", kept.Row == open.Row, id)
	}
}
