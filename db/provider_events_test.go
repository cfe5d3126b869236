package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

func TestManyOpenEventsOfOneTenantHideNobodyElses(t *testing.T) {
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
