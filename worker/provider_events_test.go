package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
	"github.com/odometer-metering/odometer/workflows"
)

const meterEvents = "/v1/billing/meter_events"

// drafted returns the id of the invoice of a period that has just ended. Some usage of the period was not reported
// to Stripe.
func (s *stripeSystem) drafted() (invoice string) {
	s.Helper()
	end := s.soon()
	s.subscribeUntil(end, "delta")
	s.useOf("delta", "12.25")
	s.synced()
	s.clock.To(s, end.Add(time.Second))
	s.useAt("delta", "7.5", end.Add(-time.Second)) // 19.75 is rounded to 20
	return s.lastInvoice().ID
}

// lastInvoice returns the newest invoice at Stripe.
func (s *stripeSystem) lastInvoice() stripetest.InvoiceState {
	invoices := s.fake.State().Accounts[0].Invoices
	return invoices[len(invoices)-1]
}

func TestDraftInvoiceEventShowsWhyUsageWasNotSent(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("delta")
	s.work()
	invoice := s.drafted()
	s.fake.Behave(stripetest.Behaviour{Status: 403, Times: 1, Path: meterEvents})
	require.Equal(t, "the period's last usage was not sent: the API key lacks a permission at Stripe; grant it there, or save another key with PUT /v1/billing/provider; meters excluded: 1",
		s.happened("invoice.created", invoice, "cus_soon"))
	require.Equal(t, "4", s.lastInvoice().Total.String(), "12 at 0.3 cents")
}

// TestDraftInvoiceEventWaitsForOpenSyncDuringStripeOutage handles an event while the open run of a sync waits for the
// end of an outage of Stripe.
func TestDraftInvoiceEventWaitsForOpenSyncDuringStripeOutage(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("delta")
	s.work()
	invoice := s.drafted()
	s.fake.Behave(stripetest.Behaviour{Status: 503, Times: 1000, Path: meterEvents})
	asked := s.request()
	row := s.begins("invoice.created", invoice, "cus_soon")
	run := workflows.HandleProviderEventID(s.tenant, row)
	s.awaitDetails(run, "The run waits for its end until")
	require.Equal(t, 1, s.events(run, enumspb.EVENT_TYPE_EXTERNAL_WORKFLOW_EXECUTION_SIGNALED))
	require.NoError(t, s.update(workflows.SyncCustomerID(s.tenant, s.customer.ID), "retry-now"))
	s.fake.Behave(stripetest.Behaviour{}) // not earlier, or the run may end before the update
	require.Equal(t, metering.SyncSucceeded, s.await(asked).Status)
	dbtest.Eventually(t, func() error { // the longer the run waits, the less often it polls
		open, err := s.store.ProviderEvents.Open(t.Context(), s.clock.Now())
		if err == nil && len(open) > 0 {
			err = fmt.Errorf("it still waits")
		}
		return err
	})
	require.Equal(t, "the period's last usage was sent; meters excluded: 1", s.outcome(row))
	require.Equal(t, "6", s.lastInvoice().Total.String(), "20 at 0.3 cents")
}
