package api_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

const stripeSecret = "whsec_stripe-endpoint-secret"

// striped saves the fake of Stripe as the tenant's provider.
func (b *bundle) striped(t testing.TB) *bundle {
	t.Helper()
	fake := stripetest.New(stripetest.Options{})
	require.NoError(t, fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: "sk_live_CANARYkey"}}))
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	r := b.replica(t, func(d *api.Deps) { d.Stripe, d.BaseURL = stripe.New(server.URL), "https://odometer.example.com" })
	saved := r.send(t, "PUT", "/v1/billing/provider", fmt.Sprintf(
		`{"type":"stripe","secret_key":"sk_live_CANARYkey","webhook_secret":%q,"mapping":{"calls":"price_1"}}`, stripeSecret))
	require.Equal(t, 200, saved.status, saved.body)
	require.NotContains(t, saved.body, "CANARY")
	return r
}

func TestStripeIsSavedOnceItAcceptsTheKey(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	got := b.send(t, "GET", "/v1/billing/provider", "")
	for _, part := range []string{
		`"type":"stripe"`, `"account":"acct_1"`, `"secret_last_four":"Ykey"`, `"webhook_secret_last_four":"cret"`, `"mapping":{"calls":"price_1"}`,
		`"webhook_url":"https://odometer.example.com/v1/provider-webhooks/stripe/` + b.tenant.ID.String() + `"`,
	} {
		require.Contains(t, got.body, part)
	}
	for body, code := range map[string]string{
		`{"type":"stripe","secret_key":"sk_test_other","webhook_secret":"` + stripeSecret + `"}`:        "provider_refused",
		`{"type":"stripe","secret_key":"pk_test_other","webhook_secret":"` + stripeSecret + `"}`:        "provider_refused",
		`{"type":"stripe","secret_key":"sk_live_CANARYkey"}`:                                            "invalid",
		`{"type":"webhook","url":"https://example.com","secret_key":"sk_live_CANARYkey"}`:               "invalid",
		`{"type":"stripe","secret_key":"sk_live_x","webhook_secret":"whsec_12345678","url":"https://"}`: "invalid",
	} {
		refused := b.send(t, "PUT", "/v1/billing/provider", body)
		refused.problem(t, 422, code)
		require.NotContains(t, refused.body, "CANARY")
	}
	require.Equal(t, got.body, b.send(t, "GET", "/v1/billing/provider", "").body)
}

func TestAnEventOfStripesIsKeptOnceAndHandled(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	path := "/v1/provider-webhooks/stripe/" + b.tenant.ID.String()
	event := func(id, kind string) string {
		return `{"id":"` + id + `","object":"event","type":"` + kind + `","created":1,"data":{"object":{"id":"sub_1","customer":"cus_1","status":"active"}}}`
	}
	deliver := func(path, payload, signedWith string) answer {
		return b.send(t, "POST", path, payload, "Authorization: ", "Stripe-Signature: "+stripetest.Sign([]byte(payload), signedWith, time.Now()))
	}
	updated := event("evt_1", "customer.subscription.updated")
	first := deliver(path, updated, stripeSecret)
	require.Equal(t, 200, first.status, first.body)
	require.Contains(t, <-b.temporal.started, fmt.Sprintf("provider-event/%d/", b.tenant.ID))
	again := deliver(path, updated, stripeSecret)
	require.Equal(t, 200, again.status, again.body)
	<-b.temporal.started // the same run, as nobody has said that it is done
	require.Equal(t, 200, deliver(path, event("evt_2", "customer.created"), stripeSecret).status, "unknown kinds are harmless")
	require.Empty(t, b.temporal.started)

	deliver(path, updated, "whsec_another-secret").problem(t, 400, "malformed")
	deliver("/v1/provider-webhooks/stripe/ten_999999999", updated, stripeSecret).problem(t, 400, "malformed")
	deliver("/v1/provider-webhooks/stripe/acme", updated, stripeSecret).problem(t, 400, "malformed")
	deliver(path, `{"id":1}`, stripeSecret).problem(t, 400, "malformed")
	b.send(t, "POST", path, updated, "Authorization: ").problem(t, 400, "malformed")
	deliver(path, strings.Repeat(" ", 1<<20)+updated, stripeSecret).problem(t, 413, "too_large")

	b.temporal.down.Store(true)
	deliver(path, event("evt_3", "customer.subscription.updated"), stripeSecret).problem(t, 503, "unavailable")
}
