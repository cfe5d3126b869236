package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// reconciled returns the tenant's only reconciliation. It returns an error while the reconciliation is missing or open.
func (s *stripeSystem) reconciled() (ledger.Reconciled, error) {
	list, err := dbtest.Items(s.store.Reconciliations.List(s.Context(), s.tenant, ledger.ReconciliationFilter{}, 10))
	if err == nil && (len(list) != 1 || list[0].State == billing.ReconciliationOpen) {
		err = fmt.Errorf("%d reconciliations: %+v", len(list), list)
	}
	if err != nil {
		return ledger.Reconciled{}, err
	}
	return list[0], nil
}

// handled returns the number of the tenant's provider events, or an error if some are not handled yet.
func (s *stripeSystem) handled() (events int, err error) {
	var open int
	err = s.connect().QueryRow(s.Context(), `
		select count(*), count(*) filter (where handled_at is null) from provider_events where tenant_id = $1`, s.tenant).Scan(&events, &open)
	if err == nil && open > 0 {
		err = fmt.Errorf("%d of %d are open", open, events)
	}
	return events, err
}

// TestAutoSyncReconcilesInvoiceWithoutDeliveredEvent delivers none of Stripe's events to the API. The next
// Auto-Sync lists the events at Stripe.
func TestAutoSyncReconcilesInvoiceWithoutDeliveredEvent(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	_, err := s.connect().Exec(t.Context(), `update tenants set grace = '0' where id = $1`, s.tenant)
	require.NoError(t, err)
	s.meters("delta")
	end := s.soon()
	s.subscribeUntil(end, "delta")
	s.work()
	s.schedule()
	s.useOf("delta", "12")
	s.synced()
	s.clock.To(t, end.Add(time.Second))
	s.fake.Advance(time.Hour) // the invoice is final

	_, result := s.autoSync()
	require.Equal(t, 3, result.Missed, "the renewal, its invoice, and that it is final")
	dbtest.Eventually(t, func() error {
		found, err := s.reconciled()
		if err == nil && found.State != billing.ReconciliationAgreed {
			err = fmt.Errorf("%+v", found)
		}
		return err
	})
	dbtest.Eventually(t, func() error { _, err := s.handled(); return err })
	events, err := s.handled()
	require.NoError(t, err)
	require.Equal(t, 3, events)

	invoice := s.lastInvoice().ID
	finals := s.fake.Happened("acct_canary", "invoice.finalized")
	_, handled, err := s.store.ProviderEvents.Store(t.Context(), s.tenant, metering.ProviderEvent{
		Connection: s.connected(), EventID: finals[len(finals)-1], Kind: "invoice.finalized", Invoice: true, ObjectID: invoice, Customer: "cus_soon", MadeAt: s.clock.Now(),
	}, s.clock.Now())
	require.NoError(t, err)
	require.True(t, handled, "it comes after all, and there is nothing left to do")
	before := s.rowsOf("billing_reconciliations")
	_, result = s.autoSync()
	require.Zero(t, result.Missed)
	require.Equal(t, before, s.rowsOf("billing_reconciliations"))
	require.Contains(t, s.activities(s.lastAutoSync()), "ListEvents")
}

// rowsOf returns the number of the tenant's rows in a table.
func (s *stripeSystem) rowsOf(table string) (n int) {
	s.Helper()
	require.NoError(s, s.connect().QueryRow(s.Context(), `select count(*) from `+table+` where tenant_id = $1`, s.tenant).Scan(&n))
	return n
}
