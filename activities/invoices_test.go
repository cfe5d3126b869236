package activities_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// closes ends the first period and closes it. No event about its invoice arrives.
func (s *subscriber) closes() {
	s.Helper()
	s.quiesce(nil)
	s.fake.Advance(s.first.End.Add(100 * time.Hour).Sub(s.fake.Now()))
	s.quiesce(nil)
	s.closePeriods(nil)
	require.Equal(s, "open 0", s.reconciled())
}

// reconciled returns the reconciliation of the meter delta in the first period: its state, the billed
// quantity or amount, and the reason.
func (s *subscriber) reconciled() (text string) {
	s.Helper()
	list, err := dbtest.Items(s.store.Reconciliations.List(s.Context(), s.tenant, ledger.ReconciliationFilter{}, 100))
	require.NoError(s, err)
	for _, r := range list {
		if r.MeterSlug == "delta" && r.Period.Start.Equal(s.first.Start) {
			text = fmt.Sprintf("%s %s", r.State, r.Billed)
			if r.Reason != "" {
				text += ": " + string(r.Reason)
			}
		}
	}
	return text
}

// listInvoices runs the activity ListInvoices.
func (s *subscriber) listInvoices() (result activities.ListInvoicesResult, err error) {
	s.Helper()
	value, err := s.ExecuteActivity(s.do.ListInvoices, activities.TenantInput{TenantID: s.tenant})
	if err == nil {
		require.NoError(s, value.Get(&result))
	}
	return result, err
}

// lists checks that ListInvoices lists the invoices of the given number of customers.
func (s *subscriber) lists(customers int) {
	s.Helper()
	result, err := s.listInvoices()
	require.NoError(s, err)
	require.Equal(s, activities.ListInvoicesResult{Customers: customers}, result)
}

func TestTheInvoicesOfAnOpenReconciliationAreListedOnceADay(t *testing.T) {
	t.Parallel()
	s := newUnheard(t)
	s.uses("5")
	s.lists(0)
	s.closes()
	require.Zero(t, s.calls("/v1/invoices"))
	s.fake.Behave(stripetest.Behaviour{Status: 503, Times: 1, Path: "/v1/invoices"})
	result, err := s.listInvoices()
	require.NoError(t, err, "one silence is the customer's")
	require.Equal(t, activities.ListInvoicesResult{Failed: 1}, result)
	s.lists(0)
	s.fake.Advance(time.Hour)
	s.lists(1)
	require.Equal(t, "agreed 5", s.reconciled())
	asked := s.calls("/v1/invoices")
	s.fake.Advance(48 * time.Hour)
	s.lists(0)
	require.Equal(t, asked, s.calls("/v1/invoices"), "nothing is open")
}

func TestListInvoicesContinuesAfterFailureOfOneCustomer(t *testing.T) {
	t.Parallel()
	s := newUnheard(t)
	s.uses("5")
	s.closes()
	gone, err := s.store.Customers.Create(t.Context(), s.tenant, metering.Operator, metering.Customer{ExternalID: "gone", BillingProviderID: new("cus_gone")}, s.fake.Now())
	require.NoError(t, err)
	s.exec(`
		with p as (
		  insert into billing_periods (tenant_id, customer_id, starts_at, ends_at, subscription, subscription_start, subscription_end, closed_at)
		  select tenant_id, $2, starts_at, ends_at, 'sub_gone', subscription_start, subscription_end, closed_at
		  from billing_periods
		  where tenant_id = $1 and closed_at is not null
		  returning *),
		d as (
		  insert into billing_destinations (tenant_id, customer_id, connection_id, provider_customer)
		  select distinct tenant_id, $2::bigint, connection_id, 'cus_gone'
		  from billing_destinations
		  where tenant_id = $1
		  returning *),
		s as (
		  insert into billing_series (tenant_id, destination_id, kind, target, counting, meter_id, period_id, window_start, window_end)
		  select distinct on (x.meter_id) x.tenant_id, d.id, x.kind, x.target, x.counting, x.meter_id, p.id, p.starts_at, p.ends_at
		  from billing_series x, d, p
		  where x.tenant_id = $1 and x.kind = 'quantity')
		insert into billing_period_totals
		  (tenant_id, period_id, meter_id, meter_version_id, usage, event_count, price_version, charge, currency, working, billed, test, unreconciled)
		select distinct on (t.meter_id) t.tenant_id, p.id, t.meter_id, t.meter_version_id, t.usage, t.event_count, t.price_version, t.charge, t.currency, t.working, true, false, true
		from billing_period_totals t, p
		where t.tenant_id = $1`, s.tenant, gone.ID)
	s.exec(`update billing_destinations set invoices_due_at = $2 where tenant_id = $1 and customer_id <> $3`, s.tenant, s.fake.Now(), gone.ID)
	result, err := s.listInvoices()
	require.NoError(t, err)
	require.Equal(t, activities.ListInvoicesResult{Customers: 1, Failed: 1}, result)
	require.Equal(t, "agreed 5", s.reconciled())
}

// cancels cancels the subscription immediately, in its first period. how is the query of the request.
func (s *subscriber) cancels(how string) {
	s.Helper()
	s.fake.Advance(48 * time.Hour)
	s.happens(http.MethodDelete, "/v1/subscriptions/sub_1"+how, "")
}

func TestReconciliationIsCarriedAfterCancellationWithoutInvoice(t *testing.T) {
	t.Parallel()
	s := newUnheard(t)
	s.uses("5")
	s.cancels("")
	s.closes()
	s.lists(1)
	require.Equal(t, "carried 0: subscription_ended", s.reconciled())
	s.fake.Advance(48 * time.Hour)
	s.lists(0)
}

func TestImmediatelyCanceledSubscriptionIsBilledByItsLastInvoice(t *testing.T) {
	t.Parallel()
	s := newUnheard(t)
	s.uses("5")
	s.cancels("?invoice_now=true")
	s.closes()
	s.lists(1)
	require.Equal(t, "agreed 5", s.reconciled())
}

func TestReconciliationWaitsForDraftInvoiceOfEndedSubscription(t *testing.T) {
	t.Parallel()
	s := newUnheard(t)
	s.uses("5")
	s.happens(http.MethodPost, "/v1/subscriptions/sub_1", "pause_collection[behavior]=keep_as_draft")
	s.cancels("?invoice_now=true")
	s.closes()
	s.lists(1)
	require.Equal(t, "open 0", s.reconciled())
	invoices := s.fake.State().Accounts[0].Invoices
	s.happens(http.MethodPost, "/v1/invoices/"+invoices[len(invoices)-1].ID+"/finalize", "")
	s.lists(0)
	s.fake.Advance(24 * time.Hour)
	s.lists(1)
	require.Equal(t, "agreed 5", s.reconciled())
}
