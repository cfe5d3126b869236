package stripetest_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

func TestResumedFakeHasSameState(t *testing.T) {
	t.Parallel()
	var journal bytes.Buffer
	b := setupWith(t, &journal)
	require.Equal(t, http.StatusBadRequest, b.control("/_seed", map[string]any{"account": map[string]any{}}, nil))
	require.Equal(t, 200, b.record("si_", "set", 5, march.Add(time.Hour)).status)
	require.Equal(t, 200, b.event("sum", "7", noon, "once").status)
	b.Behave(stripetest.Behaviour{Status: 500, Times: 1, Done: true})
	require.Equal(t, 500, b.call("POST", "/v1/subscription_items/si_/usage_records", "quantity=3&timestamp=now", "kept").status)
	b.Behave(stripetest.Behaviour{Status: 503, Times: 1})
	require.Equal(t, 503, b.event("sum", "9", noon, "never").status)
	b.Behave(stripetest.Behaviour{Mode: stripetest.RejectLater, Times: 1})
	require.Equal(t, 200, b.event("sum", "11", noon, "rejected").status)
	b.Advance(45 * 24 * time.Hour)
	require.Equal(t, 200, b.event("sum", "13", time.Time{}, "").status)

	read := bytes.NewBuffer(bytes.Clone(journal.Bytes()))
	again := stripetest.New(stripetest.Options{Now: func() time.Time { return noon }})
	require.NoError(t, again.Resume(read))
	want, got := b.State(), again.State()
	require.Equal(t, want.Accounts, got.Accounts)
	require.Equal(t, want.Now, got.Now)
	require.Len(t, got.Accounts[0].Rejected, 1)
	require.Len(t, got.Accounts[0].Invoices, 2)

	require.Zero(t, read.Len())
	again.Advance(time.Hour)
	require.NotZero(t, read.Len(), "it goes on writing")
}

// TestResumedFakeReplaysSavedResponse checks that a call that is repeated after a restart gets the
// saved response.
func TestResumedFakeReplaysSavedResponse(t *testing.T) {
	t.Parallel()
	var journal bytes.Buffer
	before := setupWith(t, &journal)
	require.Equal(t, 200, before.call("POST", records, "quantity=3&timestamp=now&action=increment", "once").status)

	after := setupWith(t, &journal)
	repeated := after.call("POST", records, "quantity=3&timestamp=now&action=increment", "once")
	require.Equal(t, "true", repeated.header.Get("Idempotent-Replayed"))
	after.requireQuantity("3", "si_")
}

// TestResumedFakeHasSameEvents checks that objects created by the clock and by calls have the same
// ids and events after a restart.
func TestResumedFakeHasSameEvents(t *testing.T) {
	t.Parallel()
	var journal bytes.Buffer
	b := setupWith(t, &journal)
	require.NoError(t, b.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: key}, Customers: []stripetest.Customer{{ID: "cus_2"}},
		Subscriptions: []stripetest.Subscription{{
			ID: "sub_3", Customer: "cus_2", Start: march.Unix(), End: april.Unix(), ThresholdAmount: 50, BillingMode: "flexible", TrialEnd: noon.AddDate(0, 0, 1).Unix(),
			Items: []stripetest.Item{{ID: "si_3", Price: "price_sum"}},
		}},
	}))
	b.advanceTo(noon.AddDate(0, 0, 2))
	b.mustPost("/v1/billing/meter_events", "event_name", "sum", "payload[stripe_customer_id]", "cus_2", "payload[value]", "30")
	b.mustPost("/v1/billing/meter_events", "event_name", "sum", "payload[stripe_customer_id]", "cus_2", "payload[value]", "3")
	b.mustPost("/v1/subscription_items/si_3", "price", "price_count")
	b.advanceTo(april.Add(30 * time.Minute))
	b.mustPost("/v1/invoices/" + b.newestInvoice()["id"].(string) + "/finalize")
	b.charge("5", "")
	b.advanceTo(april.AddDate(0, 0, 10))
	b.Behave(stripetest.Behaviour{Mode: stripetest.RejectLater, Times: 1})
	require.Equal(t, 200, b.event("sum", "1", noon, "").status)
	b.advanceTo(april.AddDate(0, 1, 0).Add(2 * time.Hour))
	b.mustPost("/v1/invoices/" + b.newestInvoice()["id"].(string) + "/void")

	again := setupWith(t, bytes.NewBuffer(bytes.Clone(journal.Bytes())))
	for _, path := range []string{"/v1/events?limit=100", "/v2/core/events", "/v1/invoices?limit=100", "/v1/invoiceitems", "/v1/subscriptions?status=all"} {
		require.NotEmpty(t, b.firstPage(path), path)
		require.Equal(t, b.read(path), again.read(path), path)
	}
}
