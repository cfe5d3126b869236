package stripetest_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

func TestEventsAreListedForThirtyDays(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.reportCalls(100, noon)
	b.advanceTo(april.Add(2 * time.Hour))
	invoice := b.newestInvoice()["id"]
	b.mustPost("/v1/invoices/" + invoice.(string) + "/pay")
	require.Equal(t, []string{"invoice.paid", "invoice.finalized", "customer.subscription.updated", "invoice.created"},
		fields(b.firstPage("/v1/events"), "type"), "the newest first")

	finalized := b.firstPage("/v1/events?type=invoice.finalized")[0]
	require.EqualValues(t, april.Add(time.Hour).Unix(), finalized["created"])
	about := finalized["data"].(map[string]any)["object"].(map[string]any)
	require.Equal(t, []any{invoice, "open"}, []any{about["id"], about["status"]}, "as it was then")
	require.Equal(t, finalized, b.read("/v1/events/"+finalized["id"].(string)))

	ids := fields(b.firstPage("/v1/events"), "id")
	for query, want := range map[string][]string{
		"type=invoice.*": {ids[0], ids[1], ids[3]},
		"types[]=invoice.paid&types[]=invoice.created":         {ids[0], ids[3]},
		"types[0]=invoice.paid":                                {ids[0]},
		"limit=1&starting_after=" + ids[1]:                     {ids[2]},
		"limit=2&ending_before=" + ids[3]:                      {ids[1], ids[2]},
		fmt.Sprintf("created[gte]=%d", april.Unix()+3600):      {ids[0], ids[1]},
		fmt.Sprintf("created[lt]=%d", april.Unix()+3600):       {ids[2], ids[3]},
		fmt.Sprintf("created[gt]=%d", april.Unix()+3*3600):     nil,
		fmt.Sprintf("created=%d&type=invoice.*", april.Unix()): {ids[3]},
	} {
		require.Equal(t, want, fields(b.firstPage("/v1/events?"+query), "id"), query)
	}
	require.Equal(t, 400, b.call("GET", "/v1/events?type=invoice.paid&types[]=invoice.paid", "", "").status)
	require.Equal(t, 400, b.call("GET", "/v1/events?starting_after=evt_9", "", "").status)

	b.advanceTo(april.Add(time.Hour + 30*24*time.Hour))
	require.Contains(t, fields(b.firstPage("/v1/events?limit=100"), "id"), ids[1])
	b.Advance(time.Second)
	require.NotContains(t, fields(b.firstPage("/v1/events?limit=100"), "id"), ids[1], "they are kept for thirty days")
	require.Equal(t, 404, b.call("GET", "/v1/events/"+ids[1], "", "").status)
}

func TestDeliveredEventEqualsListedEvent(t *testing.T) {
	t.Parallel()
	b := plain(t, func(in *stripetest.Seed) {
		in.Account.APIVersion, in.Account.WebhookSecret = "2025-03-31.basil", "whsec_1"
	})
	b.advanceTo(april.Add(time.Hour))
	id := b.Happened("acct_1", "invoice.finalized")[0]
	b.mustPost("/v1/invoices/" + b.newestInvoice()["id"].(string) + "/void")
	payload, header, err := b.Event(&stripetest.Webhook{Event: id})
	require.NoError(t, err)
	require.Equal(t, stripetest.Sign(payload, "whsec_1", april.Add(time.Hour)), header)
	var delivered map[string]any
	require.NoError(t, json.Unmarshal(payload, &delivered))
	require.Equal(t, b.read("/v1/events/"+id), delivered)
	about := delivered["data"].(map[string]any)["object"].(map[string]any)
	require.Equal(t, "open", about["status"], "as it was when it happened, and not as it is")
	require.NotContains(t, about, "subscription", "in the account's version")
}

// TestLiveAndTestModeShareOnlyAccountID checks that the live mode and the test mode of an account share only its id.
func TestLiveAndTestModeShareOnlyAccountID(t *testing.T) {
	t.Parallel()
	const live = "sk_live_1"
	b := plain(t)
	require.NoError(t, b.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: live}, Customers: []stripetest.Customer{{ID: "cus_1"}}, Meters: []stripetest.Meter{{ID: "calls"}},
		Prices: []stripetest.Price{{ID: "price_calls", Meter: "calls"}}, Subscriptions: []stripetest.Subscription{{
			ID: "sub_1", Customer: "cus_1", Start: march.Unix(), End: april.Unix(), Items: []stripetest.Item{{ID: "si_1", Price: "price_calls"}},
		}},
	}))
	b.reportCalls(100, noon)
	b.advanceTo(april.Add(time.Hour))
	tried, earned := b.newestInvoice(), b.callAs(live, "GET", "/v1/invoices", "", "").body["data"].([]any)[0].(map[string]any)
	require.Equal(t, []any{false, 250.0}, []any{tried["livemode"], tried["total"]})
	require.Equal(t, []any{true, 0.0}, []any{earned["livemode"], earned["total"]})
	require.Equal(t, 404, b.callAs(live, "GET", "/v1/invoices/"+tried["id"].(string), "", "").status)
	require.Equal(t, "acct_1", b.callAs(live, "GET", "/v1/account", "", "").body["id"])
	for _, event := range b.callAs(live, "GET", "/v1/events", "", "").body["data"].([]any) {
		require.Equal(t, true, event.(map[string]any)["livemode"])
	}
	for _, livemode := range []bool{false, true} {
		payload, _, err := b.Event(&stripetest.Webhook{Type: "customer.subscription.updated", Object: "sub_1", Livemode: &livemode})
		require.NoError(t, err)
		require.Contains(t, string(payload), fmt.Sprintf(`"livemode":%t`, livemode))
	}
	require.Len(t, b.State().Accounts, 2)
}

// TestRejectedMeterEventsAreReportedWithSamples checks that a report counts the meter events that were
// acknowledged and later rejected. It lists only a few of them.
func TestRejectedMeterEventsAreReportedWithSamples(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.Behave(stripetest.Behaviour{Mode: stripetest.RejectLater, Times: 5})
	for n := range 5 {
		require.Equal(t, 200, b.event("calls", "1", noon, fmt.Sprint("e", n)).status)
	}
	require.Empty(t, b.firstPage("/v2/core/events"), "not at once")
	b.Advance(10 * time.Second)
	report := b.firstPage("/v2/core/events?types=v1.billing.meter.error_report_triggered&object_id=calls")[0]
	require.Equal(t, report, b.read("/v2/core/events/"+report["id"].(string)))
	require.Equal(t, "calls", report["related_object"].(map[string]any)["id"])
	reason := report["data"].(map[string]any)["reason"].(map[string]any)
	require.EqualValues(t, 5, reason["error_count"])
	var samples []string
	for _, e := range reason["error_types"].([]any)[0].(map[string]any)["sample_errors"].([]any) {
		samples = append(samples, e.(map[string]any)["request"].(map[string]any)["identifier"].(string))
	}
	require.Equal(t, []string{"e0", "e1", "e2"}, samples)

	payload, _, err := b.Event(&stripetest.Webhook{Event: report["id"].(string)})
	require.NoError(t, err)
	require.NotContains(t, string(payload), "e0", "a thin event says where its data are")
	require.Equal(t, 404, b.call("GET", "/v1/events/"+report["id"].(string), "", "").status)
	require.Empty(t, b.firstPage("/v2/core/events?object_id=other"))

	b.Behave(stripetest.Behaviour{Mode: stripetest.RejectLater, Times: 1})
	b.reportCalls(1, noon)
	b.Advance(10 * time.Second)
	first := b.read("/v2/core/events?limit=1")
	require.NotEqual(t, report["id"], first["data"].([]any)[0].(map[string]any)["id"])
	require.Equal(t, report["id"], b.firstPage(first["next_page_url"].(string))[0]["id"])
	require.Equal(t, 400, b.call("GET", "/v2/core/events?limit=0", "", "").status)
}

// TestDroppedMeterEventIsInNoErrorReport checks the mode Drop: a meter event is acknowledged, and neither counted nor
// reported as rejected.
func TestDroppedMeterEventIsInNoErrorReport(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.Behave(stripetest.Behaviour{Mode: stripetest.Drop, Times: 1})
	require.Equal(t, 200, b.event("calls", "1", noon, "e").status)
	b.Advance(time.Hour)
	b.requireQuantity("0", "si_1")
	require.Empty(t, b.firstPage("/v2/core/events"))
	require.Equal(t, "e", b.State().Accounts[0].Rejected[0].Identifier)
}

// TestSummariesCanLagDaysBehindEvents checks that summaries can be days behind the events, and that invoices do not
// wait for them.
func TestSummariesCanLagDaysBehindEvents(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.reportCalls(100, noon.Add(-time.Hour))
	b.Behave(stripetest.Behaviour{Mode: stripetest.Stale, LagSeconds: 3 * 24 * 3600, Times: 1000, Path: "/v1/billing/meters"})
	path := fmt.Sprintf("/v1/billing/meters/calls/event_summaries?customer=cus_1&start_time=%d&end_time=%d", march.Unix(), april.Unix())
	b.Advance(3*24*time.Hour - time.Second)
	require.Empty(t, b.firstPage(path))
	b.Advance(time.Second)
	require.EqualValues(t, 100, b.firstPage(path)[0]["aggregated_value"])

	b.advanceTo(april.Add(-time.Minute))
	b.reportCalls(20, april.Add(-time.Minute))
	b.advanceTo(april.Add(time.Hour))
	require.EqualValues(t, 100, b.firstPage(path)[0]["aggregated_value"])
	require.EqualValues(t, 300, b.newestInvoice()["total"])
}

func TestListedEventIsDeliveredToWebhook(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.advanceTo(april)
	server := httptest.NewServer(nil)
	t.Cleanup(server.Close)
	var answered struct{ Status int }
	require.Equal(t, 200, b.control("/_webhook", map[string]any{"event": b.Happened("acct_1", "invoice.created")[0], "url": server.URL}, &answered))
	require.Equal(t, 404, answered.Status)
	require.Equal(t, 502, b.control("/_webhook", map[string]any{"event": "evt_9", "url": server.URL}, nil))
}
