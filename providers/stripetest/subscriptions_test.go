package stripetest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

// TestSubscriptionCanceledAtPeriodEndGetsLastInvoice checks that a subscription that is canceled at its period's
// end gets the invoice of that period. The invoice is a draft that accepts usage for an hour.
func TestSubscriptionCanceledAtPeriodEndGetsLastInvoice(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.reportCalls(100, noon)
	s := b.mustPost("/v1/subscriptions/sub_1", "cancel_at_period_end", "true")
	require.Equal(t, []any{"active", true, float64(april.Unix()), float64(noon.Unix())},
		[]any{s["status"], s["cancel_at_period_end"], s["cancel_at"], s["canceled_at"]})
	b.advanceTo(april)
	require.Equal(t, []string{"subscription_cycle draft 250"}, b.invoices())
	b.reportCalls(20, april.Add(-time.Second))
	b.advanceTo(april.AddDate(0, 3, 0))
	require.Equal(t, []string{"subscription_cycle open 300"}, b.invoices(), "and no other")

	require.Empty(t, b.firstPage("/v1/subscriptions?customer=cus_1"))
	for _, status := range []string{"all", "canceled", "ended"} {
		require.Equal(t, []string{"sub_1 canceled"}, fields(b.firstPage("/v1/subscriptions?customer=cus_1&status="+status), "id", "status"), status)
	}
	require.EqualValues(t, april.Unix(), b.read("/v1/subscriptions/sub_1")["ended_at"])
	require.Len(t, b.Happened("acct_1", "customer.subscription.deleted"), 1)
	require.Contains(t, b.post("/v1/subscriptions/sub_1", "cancel_at_period_end", "false").message(), "can only update its cancellation_details")
}

func TestCancellationAtPeriodEndCanBeUndone(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.mustPost("/v1/subscriptions/sub_1", "cancel_at_period_end", "true")
	s := b.mustPost("/v1/subscriptions/sub_1", "cancel_at_period_end", "false")
	require.Equal(t, []any{false, nil, nil}, []any{s["cancel_at_period_end"], s["cancel_at"], s["canceled_at"]})
	b.advanceTo(april.AddDate(0, 1, 0))
	require.Len(t, b.invoices(), 2)
}

// TestImmediateCancellationBillsUsageOnlyOnRequest checks that the usage since the last invoice is billed only if the
// cancellation requests an invoice.
func TestImmediateCancellationBillsUsageOnlyOnRequest(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.reportCalls(100, noon)
	require.Equal(t, "canceled", b.call("DELETE", "/v1/subscriptions/sub_1", "", "").body["status"])
	b.advanceTo(april.Add(time.Hour))
	require.Empty(t, b.invoices())

	b = plain(t)
	b.reportCalls(100, noon)
	require.Equal(t, 200, b.charge("-50", "").status)
	b.Advance(time.Hour)
	require.Equal(t, "canceled", b.call("DELETE", "/v1/subscriptions/sub_1", "invoice_now=true", "").body["status"])
	require.Equal(t, []string{"manual draft 200"}, b.invoices())
	b.reportCalls(20, noon)
	b.reportCalls(20, noon.Add(time.Hour)) // after the subscription's end
	b.Advance(time.Hour)
	require.Equal(t, []string{"manual open 250"}, b.invoices())
	last := b.newestInvoice()
	require.Equal(t, []any{float64(march.Unix()), float64(noon.Add(time.Hour).Unix())}, []any{last["period_start"], last["period_end"]})
}

// TestFinalAtOnceFinalizesLastInvoiceImmediately checks the account setting FinalAtOnce. Stripe does not document
// whether the last invoice is a draft.
func TestFinalAtOnceFinalizesLastInvoiceImmediately(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"at its end", "at once"} {
		b := plain(t, func(in *stripetest.Seed) { in.Account.FinalAtOnce = true })
		b.reportCalls(100, noon.Add(-time.Hour))
		if way == "at once" {
			b.call("DELETE", "/v1/subscriptions/sub_1", "invoice_now=true", "")
		} else {
			b.mustPost("/v1/subscriptions/sub_1", "cancel_at_period_end", "true")
			b.advanceTo(april)
		}
		require.Equal(t, "open", b.newestInvoice()["status"], way)
		b.reportCalls(20, noon)
		require.EqualValues(t, 250, b.newestInvoice()["total"], way)
	}
}

// TestUsageInTrialIsFree checks that an invoice lists the usage of a trial at no cost, and that the next period
// begins when the trial ends.
func TestUsageInTrialIsFree(t *testing.T) {
	t.Parallel()
	end := noon.AddDate(0, 0, 5)
	b := plain(t, func(in *stripetest.Seed) { in.Subscriptions[0].TrialEnd = end.Unix() })
	s := b.read("/v1/subscriptions/sub_1")
	require.Equal(t, []any{"trialing", float64(end.Unix()), float64(end.Unix())}, []any{s["status"], s["trial_end"], s["current_period_end"]})
	b.reportCalls(100, noon)
	b.advanceTo(end)
	require.Equal(t, "active", b.read("/v1/subscriptions/sub_1")["status"])
	b.reportCalls(40, end)
	b.advanceTo(end.Add(time.Hour))
	require.Equal(t, []string{"subscription_cycle open 0"}, b.invoices())
	require.Equal(t, []string{"100 × price_calls (Free trial) 100 0"},
		fields(b.firstPage("/v1/invoices/"+b.newestInvoice()["id"].(string)+"/lines"), "description", "quantity", "amount"))
	b.advanceTo(end.AddDate(0, 1, 0).Add(time.Hour))
	require.Equal(t, []string{"subscription_cycle open 0", "subscription_cycle open 100"}, b.invoices())
}

func TestTrialCanBeEndedEarlyOrExtended(t *testing.T) {
	t.Parallel()
	b := plain(t)
	create := func(more ...string) map[string]any {
		return b.mustPost("/v1/subscriptions", append([]string{"customer", "cus_1", "collection_method", "send_invoice", "items[0][price]", "price_calls"}, more...)...)
	}
	days := create("trial_period_days", "7")
	require.Equal(t, []any{"trialing", float64(noon.AddDate(0, 0, 7).Unix())}, []any{days["status"], days["trial_end"]})
	path := "/v1/subscriptions/" + days["id"].(string)
	b.Advance(time.Hour)
	require.EqualValues(t, noon.AddDate(0, 0, 9).Unix(), b.mustPost(path, "trial_end", fmt.Sprint(noon.AddDate(0, 0, 9).Unix()))["current_period_end"])
	ended := b.mustPost(path, "trial_end", "now")
	require.Equal(t, []any{"active", float64(noon.Add(time.Hour).Unix()), float64(noon.Add(time.Hour).AddDate(0, 1, 0).Unix())},
		[]any{ended["status"], ended["current_period_start"], ended["current_period_end"]})
	require.Equal(t, []string{"subscription_cycle draft", "subscription_create paid"},
		fields(b.firstPage("/v1/invoices?subscription="+days["id"].(string)), "billing_reason", "status"))

	until := create("trial_end", fmt.Sprint(april.Unix()))
	require.EqualValues(t, april.Unix(), until["current_period_end"])
	for name, form := range map[string][2]string{"the past": {"trial_end", "1"}, "no days": {"trial_period_days", "0"}} {
		got := b.post("/v1/subscriptions", "customer", "cus_1", "collection_method", "send_invoice", "items[0][price]", "price_calls", form[0], form[1])
		require.Equal(t, 400, got.status, name)
	}
	require.Contains(t, b.post("/v1/subscriptions/sub_1", "trial_end", fmt.Sprint(april.Unix())).message(), "gives no trial")
}

// TestPausedCollectionAppliesBehaviorToInvoices follows https://docs.stripe.com/billing/subscriptions/pause-payment
func TestPausedCollectionAppliesBehaviorToInvoices(t *testing.T) {
	t.Parallel()
	for behavior, statuses := range map[string][2]string{
		"keep_as_draft":      {"draft", "draft"},
		"void":               {"void", "void"},
		"mark_uncollectible": {"uncollectible", "uncollectible"},
	} {
		b := plain(t)
		b.reportCalls(100, noon)
		s := b.mustPost("/v1/subscriptions/sub_1", "pause_collection[behavior]", behavior)
		require.Equal(t, map[string]any{"behavior": behavior, "resumes_at": nil}, s["pause_collection"])
		require.Equal(t, "active", s["status"])
		b.advanceTo(april)
		in := b.newestInvoice()
		require.Equal(t, []any{statuses[0], false, 250.0}, []any{in["status"], in["auto_advance"], in["total"]}, behavior)
		created := b.firstPage("/v1/events?type=invoice.created")[0]["data"].(map[string]any)["object"].(map[string]any)
		require.Equal(t, []any{"draft", false}, []any{created["status"], created["auto_advance"]}, behavior)
		b.advanceTo(april.Add(2 * time.Hour))
		require.Equal(t, statuses[1], b.newestInvoice()["status"], behavior)

		require.Nil(t, b.mustPost("/v1/subscriptions/sub_1", "pause_collection", "")["pause_collection"])
		b.advanceTo(april.AddDate(0, 1, 0).Add(time.Hour))
		require.Equal(t, "open", b.newestInvoice()["status"], behavior)
	}
}

func TestPausedCollectionResumesAutomatically(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.mustPost("/v1/subscriptions/sub_1", "pause_collection[behavior]", "void", "pause_collection[resumes_at]", fmt.Sprint(april.AddDate(0, 0, 1).Unix()))
	b.advanceTo(april.AddDate(0, 1, 0).Add(time.Hour))
	require.Equal(t, []string{"subscription_cycle void 0", "subscription_cycle open 0"}, b.invoices())
}

// TestAnnualSubscriptionHasSeparatePeriods checks that an annual and a monthly subscription of a customer have separate
// periods.
func TestAnnualSubscriptionHasSeparatePeriods(t *testing.T) {
	t.Parallel()
	b := plain(t, func(in *stripetest.Seed) {
		in.Prices = append(in.Prices, stripetest.Price{ID: "price_year", Meter: "calls", UnitAmount: "1", Months: 12})
		in.Subscriptions = append(in.Subscriptions, stripetest.Subscription{
			ID: "sub_year", Customer: "cus_1", Start: march.Unix(), End: march.AddDate(1, 0, 0).Unix(), Items: []stripetest.Item{{ID: "si_year", Price: "price_year"}},
		})
	})
	require.Equal(t, "year", b.firstPage("/v1/subscription_items?subscription=sub_year")[0]["price"].(map[string]any)["recurring"].(map[string]any)["interval"])
	b.reportCalls(100, noon)
	b.advanceTo(march.AddDate(2, 0, 0).Add(time.Hour))
	require.Equal(t, []string{"0", "100"}, fields(b.firstPage("/v1/invoices?subscription=sub_year"), "total"))
	require.Len(t, b.invoices(), 24)
}
