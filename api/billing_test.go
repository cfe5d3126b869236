package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/receiver"
)

func TestBillingPreviewAddsBasePriceAndOverage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.meter(t, "free", "nothing")
	now := b.now().UTC().Format(time.RFC3339)
	b.at(t, now, "a", "100.5")
	set := b.confirmed(t, "PUT", "/v1/meters/calls/pricing", `{"base_price":19.99,"included_units":100,"overage_rate":0.000123}`)
	require.Equal(t, 200, set.status, set.body)
	preview := b.send(t, "GET", "/v1/billing/preview?customer=acme", "")
	var items []client.PreviewItem
	require.NoError(t, json.Unmarshal([]byte(preview.body), &items))
	require.Len(t, items, 2)
	require.Equal(t, [4]string{"calls", "100.5", "0.000123", "19.9900615"}, // 19.99 + 0.5 × 0.000123
		[4]string{items[0].MeterSlug, items[0].Usage.String(), items[0].UnitPrice.String(), items[0].Amount.String()})
	require.Equal(t, [4]string{"free", "0", "0", "0"},
		[4]string{items[1].MeterSlug, items[1].Usage.String(), items[1].UnitPrice.String(), items[1].Amount.String()})
}

func TestRevenueAddsRoundedChargesOfCustomers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	set := b.send(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":0.125}`)
	require.Equal(t, 200, set.status, set.body)
	// 0.125, 0.375 and 0.625 are ties and round to the even cent; 0.1250125 is no tie: 0.12 + 0.38 + 0.62 + 0.13.
	b.ingest(t, "/v1/events/batch", `{"events":[{"customer_id":"a","event_type":"call"},{"customer_id":"b","event_type":"call","value":3},
		{"customer_id":"c","event_type":"call","value":5},{"customer_id":"d","event_type":"call","value":1.0001}]}`)
	require.Contains(t, b.send(t, "GET", "/v1/billing/revenue", "").body, `"currency":"USD","amount":1.25,"customers":4`)

	set = b.confirmed(t, "PUT", "/v1/meters/calls/pricing", `{"base_price":1.5,"overage_rate":1,"currency":"JPY","effective_from":"2020-01-01T00:00:00Z"}`)
	require.Equal(t, 200, set.status, set.body)
	// 2.5, 4.5, 6.5 and 2.5001 in whole yen: 2 + 4 + 6 + 3.
	require.Contains(t, b.send(t, "GET", "/v1/billing/revenue", "").body, `"currency":"JPY","amount":15,"customers":4`)
}

func TestSecondPriceAppliesFromNextPeriod(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "PUT", "/v1/meters/calls/pricing", `{"base_price":1}`)
	b.send(t, "PUT", "/v1/meters/calls/pricing", `{"base_price":2,"currency":"CHF"}`)
	pricing, err := b.client.GetPricingWithResponse(t.Context(), "calls")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, pricing.StatusCode())
	require.Len(t, pricing.JSON200.Versions, 2)
	require.Equal(t, "1", pricing.JSON200.Current.BasePrice.String())
	require.Nil(t, pricing.JSON200.Versions[0].EffectiveFrom)
	now := b.now().UTC()
	require.Equal(t, time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC), *pricing.JSON200.Versions[1].EffectiveFrom)
	require.Equal(t, "CHF", pricing.JSON200.Versions[1].Currency)

	b.ahead.Store(int64(32 * 24 * time.Hour))
	pricing, err = b.client.GetPricingWithResponse(t.Context(), "calls")
	require.NoError(t, err)
	require.Equal(t, "2", pricing.JSON200.Current.BasePrice.String())
}

func TestErrorOfInvalidPriceNamesItsField(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`)
	for _, path := range []string{"/v1/meters/calls/pricing", "/v1/plans/pro/pricing/calls"} {
		for _, field := range []string{"base_price", "included_units", "overage_rate"} {
			p := b.send(t, "PUT", path, fmt.Sprintf(`{%q:1e400}`, field)).problem(t, 422, "invalid")
			require.Equal(t, "body."+field, p.Errors[0].Location)
			for value, rule := range map[string]string{
				"1e18": "must be smaller than 10^18 in absolute value", "0.0000000000001": "must have at most 12 decimals",
				"null": "must be a JSON number", "-1": "must not be negative",
			} {
				p := b.send(t, "PUT", path, fmt.Sprintf(`{%q:%s}`, field, value)).problem(t, 422, "invalid")
				require.Equal(t, []api.FieldProblem{{Location: "body." + field, Message: rule}}, p.Errors, value)
			}
		}
	}
}

const webhookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

func TestAProviderIsSavedOnlyAfterASignedPing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.send(t, "GET", "/v1/billing/provider", "").problem(t, 409, "no_provider")
	hooks := httptest.NewServer(receiver.NewIgnoringTime(webhookSecret))
	t.Cleanup(hooks.Close)

	wrong := b.send(t, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q}`, hooks.URL)) // with a newly created secret, which the receiver does not have
	require.Contains(t, wrong.problem(t, 422, "provider_refused").Detail, "POST /v1/billing/providers/{type}/secret")
	gone := b.send(t, "PUT", "/v1/billing/provider", `{"type":"webhook","url":"http://127.0.0.1:1/x"}`).problem(t, 422, "provider_refused")
	require.Contains(t, gone.Detail, "could not connect: connection refused; it must answer a signed ping with 2xx")
	b.send(t, "PUT", "/v1/billing/provider", `{"type":"webhook","url":"http://example.com"}`).problem(t, 422, "invalid")
	b.send(t, "PUT", "/v1/billing/provider", `{"type":"webhook","url":"https://10.0.0.1"}`).problem(t, 422, "invalid")
	b.send(t, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q,"secret":"CANARY"}`, hooks.URL)).problem(t, 422, "invalid")
	b.send(t, "GET", "/v1/billing/provider", "").problem(t, 409, "no_provider")

	saved := b.send(t, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q,"secret":%q}`, hooks.URL, webhookSecret))
	require.Equal(t, 200, saved.status, saved.body)
	got := b.send(t, "GET", "/v1/billing/provider", "")
	require.Equal(t, saved.body, got.body)
	require.NotContains(t, got.body, webhookSecret)
	require.Contains(t, got.body, `"secret_last_four":"`+webhookSecret[len(webhookSecret)-4:]+`"`)
}

// TestReceiverSecretCanBeCreatedBeforeProviderIsSaved creates the secret before it saves the provider, because saving
// sends a ping that is signed with the secret.
func TestReceiverSecretCanBeCreatedBeforeProviderIsSaved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.send(t, "POST", "/v1/billing/providers/webhook/secret", "")
	require.Equal(t, 200, made.status, made.body)
	var first struct{ Secret string }
	require.NoError(t, json.Unmarshal([]byte(made.body), &first))
	require.NotEqual(t, made.body, b.send(t, "POST", "/v1/billing/providers/webhook/secret", "").body)
	hooks := httptest.NewServer(receiver.NewIgnoringTime(first.Secret))
	t.Cleanup(hooks.Close)

	saved := b.send(t, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q,"secret":%q}`, hooks.URL, first.Secret))
	require.Equal(t, 200, saved.status, saved.body)
	require.NotContains(t, saved.body, first.Secret)

	b.send(t, "POST", "/v1/billing/providers/stripe/secret", "").problem(t, 422, "invalid")
	b.send(t, "POST", "/v1/billing/providers/none/secret", "").problem(t, 422, "invalid")
}

func TestCreatedProviderSecretIsShownOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(hooks.Close)
	saved := b.send(t, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q}`, hooks.URL))
	require.Equal(t, 200, saved.status, saved.body)
	var provider client.Provider
	require.NoError(t, json.Unmarshal([]byte(saved.body), &provider))
	require.True(t, strings.HasPrefix(*provider.Secret, "whsec_"))
	require.True(t, strings.HasSuffix(*provider.Secret, provider.SecretLastFour))
	require.NotContains(t, b.send(t, "GET", "/v1/billing/provider", "").body, *provider.Secret)
}

func TestReceiverKeepsSecretAndConnectionWhenURLChanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one := httptest.NewServer(receiver.NewIgnoringTime(webhookSecret))
	another := httptest.NewServer(receiver.NewIgnoringTime(webhookSecret))
	t.Cleanup(one.Close)
	t.Cleanup(another.Close)
	first := b.provider(t, fmt.Sprintf(`{"type":"webhook","url":%q,"secret":%q}`, one.URL, webhookSecret))
	moved := b.provider(t, fmt.Sprintf(`{"type":"webhook","url":%q}`, another.URL))
	require.Nil(t, moved.Secret, "none is made")
	require.Equal(t, []string{first.Id, another.URL, first.SecretLastFour}, []string{moved.Id, *moved.Url, moved.SecretLastFour})

	b.send(t, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q,"new_receiver":true}`, one.URL)).
		problem(t, 422, "provider_refused") // with a newly created secret, which the receiver does not have
	anew := b.provider(t, fmt.Sprintf(`{"type":"webhook","url":%q,"secret":%q,"new_receiver":true}`, one.URL, webhookSecret))
	require.NotEqual(t, first.Id, anew.Id)
	require.Equal(t, anew.Id, b.provider(t, fmt.Sprintf(`{"type":"webhook","url":%q,"new_receiver":true}`, one.URL)).Id, "saved again")
	require.Equal(t, first.Id, b.provider(t, fmt.Sprintf(`{"type":"webhook","url":%q}`, another.URL)).Id, "it was at this URL last")
	require.Equal(t, anew.Id, b.provider(t, fmt.Sprintf(`{"type":"webhook","url":%q,"new_receiver":false}`, one.URL)).Id)
}

// provided saves a billing provider of the tenant and creates the customer acme.
func (b *bundle) provided(t testing.TB) {
	t.Helper()
	hooks := httptest.NewServer(receiver.NewIgnoringTime(webhookSecret))
	t.Cleanup(hooks.Close)
	saved := b.send(t, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q,"secret":%q}`, hooks.URL, webhookSecret))
	require.Equal(t, 200, saved.status, saved.body)
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
}

const syncAcme = `{"customer_external_id":"acme"}`

func TestSyncWithoutProviderIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.send(t, "POST", "/v1/billing/sync", syncAcme).problem(t, 404, "not_found")
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	b.send(t, "POST", "/v1/billing/sync", syncAcme).problem(t, 409, "no_provider")
}

// TestUrgentSyncRequestsAreLimitedPerMinute checks that only a bounded number of requested syncs per minute precedes
// scheduled syncs, for each tenant and for all tenants together.
func TestUrgentSyncRequestsAreLimitedPerMinute(t *testing.T) {
	t.Parallel()
	b := setup(t).replica(t, func(d *api.Deps) { d.SyncWait = time.Nanosecond })
	const urgent, scheduled = 1, 4
	request := func(of *bundle, n int, priority int64) {
		t.Helper()
		for range n {
			require.Equal(t, 202, of.send(t, "POST", "/v1/billing/sync", syncAcme).status)
			require.Equal(t, priority, b.temporal.priority.Load())
		}
	}
	tenants := []*bundle{b}
	for range 5 {
		tenants = append(tenants, b.of(t, dbtest.Tenant(t, b.store)))
	}
	for _, of := range tenants {
		of.provided(t)
	}
	for _, of := range tenants[:5] {
		request(of, 60, urgent)
		request(of, 1, scheduled)
	}
	request(tenants[5], 1, scheduled)
	b.ahead.Store(int64(time.Minute + time.Second))
	request(tenants[5], 1, urgent)
}

// TestUrgentProviderEventsAreLimitedPerMinute checks that only a bounded number of events per minute precedes scheduled
// syncs, for each tenant and for all tenants together. Requested syncs have a bound of their own.
func TestUrgentProviderEventsAreLimitedPerMinute(t *testing.T) {
	t.Parallel()
	b := setup(t).replica(t, func(d *api.Deps) { d.SyncWait = time.Nanosecond }).striped(t)
	const urgent, scheduled = 1, 4
	events := 0
	deliver := func(of *bundle, n int, priority int64) {
		t.Helper()
		for range n {
			events++
			payload := delivery(fmt.Sprint("evt_", events), subscriptionUpdated, "")
			require.Equal(t, 200, of.deliver(t, of.eventsPath(), payload, of.signature(payload)).status)
			require.Equal(t, priority, b.temporal.priority.Load())
		}
	}
	tenants := []*bundle{b}
	for range 5 {
		of := b.of(t, dbtest.Tenant(t, b.store))
		of.provider(t, fmt.Sprintf(`{"type":"stripe","secret_key":"sk_live_CANARYkey","webhook_secret":%q}`, stripeSecret))
		tenants = append(tenants, of)
	}
	for _, of := range tenants[:5] {
		deliver(of, 60, urgent)
		deliver(of, 1, scheduled)
	}
	deliver(tenants[5], 1, scheduled)

	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	require.Equal(t, 202, b.send(t, "POST", "/v1/billing/sync", syncAcme).status)
	require.EqualValues(t, urgent, b.temporal.priority.Load())

	b.ahead.Store(int64(time.Minute + time.Second))
	deliver(tenants[5], 1, urgent)
}

func TestAProviderIsDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.send(t, "DELETE", "/v1/billing/provider", "").problem(t, 409, "no_provider")
	b.provided(t)
	require.JSONEq(t, `{"deleted":true}`, b.send(t, "DELETE", "/v1/billing/provider", "").body)
	b.send(t, "GET", "/v1/billing/provider", "").problem(t, 409, "no_provider")
	b.send(t, "POST", "/v1/billing/sync", syncAcme).problem(t, 409, "no_provider")
	deleted := b.audited(t, "provider.delete")
	require.Len(t, deleted, 1)
	require.Contains(t, string(deleted[0].Before), `"kind":"webhook"`)
	b.provided(t)
}

func TestSyncResponseContainsOutcomeOfRun(t *testing.T) {
	t.Parallel()
	b := setup(t).replica(t, func(d *api.Deps) { d.SyncWait = dbtest.Deadline })
	b.provided(t)
	go func() { // in place of a worker
		<-b.temporal.started
		customer, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
		if err != nil {
			return
		}
		pass, err := b.store.Syncs.Begin(t.Context(), b.tenant.ID, customer.ID, b.now())
		if err != nil {
			return
		}
		_, _ = b.store.Syncs.Finish(t.Context(), b.tenant.ID, customer.ID, pass.PassID, ledger.Answer{Error: "save the provider again"}, b.now())
	}()
	a := b.send(t, "POST", "/v1/billing/sync", syncAcme)
	require.Equal(t, 200, a.status, a.body)
	var run client.SyncRun
	require.NoError(t, json.Unmarshal([]byte(a.body), &run))
	require.Equal(t, "failed", string(run.Status))
	require.Equal(t, "save the provider again", run.Error)
	require.Equal(t, a.body, b.send(t, "GET", run.StatusUrl, "").body)
	setup(t).send(t, "GET", run.StatusUrl, "").problem(t, 404, "not_found")
}

func TestSyncRequestIsWithdrawnIfTemporalIsDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	b.temporal.down.Store(true)
	a := b.send(t, "POST", "/v1/billing/sync", syncAcme)
	a.problem(t, 503, "unavailable")
	require.NotEmpty(t, a.header.Get("Retry-After"))
	customer, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	pass, err := b.store.Syncs.Begin(t.Context(), b.tenant.ID, customer.ID, b.now())
	require.NoError(t, err)
	require.Zero(t, pass.Requests)
}

func TestLongSyncReturns202(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	a := b.send(t, "POST", "/v1/billing/sync", syncAcme)
	require.Equal(t, 202, a.status, a.body)
	var run client.SyncRun
	require.NoError(t, json.Unmarshal([]byte(a.body), &run))
	require.Equal(t, "requested", string(run.Status))
	require.Equal(t, 200, b.send(t, "GET", run.StatusUrl, "").status)
}
