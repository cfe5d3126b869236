package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/registry"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

const stripeSecret = "whsec_stripe-endpoint-secret"

// striped returns a replica with a fake Stripe as the tenant's provider.
func (b *bundle) striped(t testing.TB) *bundle {
	t.Helper()
	fake := stripetest.New(stripetest.Options{})
	for _, key := range []string{"sk_live_CANARYkey", "sk_live_CANARYnext", "sk_test_CANARYtest"} {
		require.NoError(t, fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: key}}))
	}
	require.NoError(t, fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: "rk_test_CANARY", Permissions: []string{
		"accounts_kyc_basic_read", "subscription_read", "plan_read", "billing_meter_read", "billing_meter_event_read", "invoice_write", "event_read",
	}}}))
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	r := b.replica(t, func(d *api.Deps) {
		d.Providers, d.BaseURL = registry.New(guard, server.URL), "https://odometer.example.com"
	})
	saved := r.send(t, "PUT", "/v1/billing/provider", fmt.Sprintf(
		`{"type":"stripe","secret_key":"sk_live_CANARYkey","webhook_secret":%q,"mapping":{"calls":"price_1"}}`, stripeSecret))
	require.Equal(t, 200, saved.status, saved.body)
	require.NotContains(t, saved.body, "CANARY")
	return r
}

func TestProviderWebhookURLIsShownBeforeProviderIsSaved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.replica(t, func(d *api.Deps) { d.BaseURL = "https://odometer.example.com" })
	r.send(t, "GET", "/v1/billing/provider", "").problem(t, 409, "no_provider")
	var list struct {
		Data []struct {
			Type          string
			Connected     bool
			WebhookURL    string   `json:"webhook_url"`
			WebhookEvents []string `json:"webhook_events"`
		}
	}
	a := r.send(t, "GET", "/v1/billing/providers", "")
	require.NoError(t, json.Unmarshal([]byte(a.body), &list), a.body)
	require.Len(t, list.Data, 2)
	stripe, webhook := list.Data[0], list.Data[1]
	require.Equal(t, "stripe", stripe.Type)
	require.False(t, stripe.Connected)
	require.Equal(t, "https://odometer.example.com/v1/provider-webhooks/stripe/"+b.tenant.ID.String(), stripe.WebhookURL)
	require.Contains(t, stripe.WebhookEvents, "invoice.finalized")
	require.Equal(t, "webhook", webhook.Type)
	require.Empty(t, webhook.WebhookURL)
}

func TestStripeIsSavedOnlyIfItAcceptsTheKey(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	require.Contains(t, b.send(t, "GET", "/v1/billing/providers", "").body, `{"type":"stripe","connected":true,`)
	got := b.send(t, "GET", "/v1/billing/provider", "")
	for _, part := range []string{
		`"type":"stripe"`, `"account":"acct_1"`, `"secret_last_four":"Ykey"`, `"webhook_secret_last_four":"cret"`, `"mapping":{"calls":"price_1"}`,
		`"webhook_url":"https://odometer.example.com/v1/provider-webhooks/stripe/` + b.tenant.ID.String() + `"`,
		`"webhook_events":["customer.subscription.updated","customer.subscription.deleted","invoice.created","invoice.finalized",` +
			`"invoice.voided","invoice.marked_uncollectible","credit_note.created","credit_note.voided"]`,
	} {
		require.Contains(t, got.body, part)
	}
	for body, want := range map[string][2]string{
		`{"type":"stripe","secret_key":"sk_test_CANARY","webhook_secret":"` + stripeSecret + `"}`:       {"provider_refused", "rejected the API key"},
		`{"type":"stripe","secret_key":"pk_test_CANARY","webhook_secret":"` + stripeSecret + `"}`:       {"provider_refused", "a publishable key"},
		`{"type":"stripe","secret_key":"whsec_CANARYCANARY","webhook_secret":"` + stripeSecret + `"}`:   {"provider_refused", "the signing secret of a webhook endpoint"},
		`{"type":"stripe","secret_key":"rk_test_CANARY","webhook_secret":"` + stripeSecret + `"}`:       {"provider_refused", "lacks these permissions: write meter events (rak_billing_meter_event_write)"},
		`{"type":"stripe","secret_key":"sk_live_CANARYkey","webhook_secret":"sk_live_CANARYkey"}`:       {"invalid", "body.webhook_secret must be the signing secret"},
		`{"type":"stripe","secret_key":"sk_live_CANARYkey","webhook_secret":"whsec_"}`:                  {"invalid", "body.webhook_secret must be the signing secret"},
		`{"type":"stripe","secret_key":"sk_live_CANARYkey","webhook_secret":"whsec_CANARY and more"}`:   {"invalid", "body.webhook_secret must be the signing secret"},
		`{"type":"stripe","secret_key":"sk_test_CANARYtest"}`:                                           {"invalid", "body.webhook_secret is required"},
		`{"type":"stripe","new_receiver":true}`:                                                         {"invalid", "body.new_receiver is only for a provider with a URL"},
		`{"type":"stripe","new_receiver":"yes"}`:                                                        {"invalid", "body.new_receiver"},
		`{"type":"webhook","url":"https://example.com","secret_key":"sk_live_CANARYkey"}`:               {"invalid", "body.secret_key is only for a provider of type stripe"},
		`{"type":"stripe","secret_key":"sk_live_x","webhook_secret":"whsec_12345678","url":"https://"}`: {"invalid", "body.url is only for a provider of type webhook"},
		withMapping(`{"calls\u0000":"price_1"}`):                                                        {"invalid", "body.mapping must be UTF-8 without NUL"},
		withMapping(`{"calls":"price_1\u0000"}`):                                                        {"invalid", "body.mapping must be UTF-8 without NUL"},
		`{"type":"stripe","bills":"credits"}`:                                                           {"invalid", "body.bills"},
		`{"type":"stripe","bills":"amounts"}`:                                                           {"invalid", "body.product is required to bill amounts, unless"},
		`{"type":"stripe","bills":"amounts","product":"prod\u0000"}`:                                    {"invalid", "body.product must be UTF-8 without NUL"},
		`{"type":"stripe","bills":"amounts","product":"prod_1","collection_method":"send_invoice"}`:     {"invalid", "body.days_until_due is required for the collection_method send_invoice"},
		`{"type":"stripe","bills":"amounts","product":"prod_1","days_until_due":3}`:                     {"invalid", "body.days_until_due is required for the collection_method send_invoice"},
		`{"type":"stripe","bills":"amounts","product":"prod_1","days_until_due":1.5}`:                   {"invalid", "body.days_until_due"},
		`{"type":"stripe","bills":"amounts","product":"prod_1","days_until_due":366}`:                   {"invalid", "body.days_until_due"},
		`{"type":"stripe","product":"prod_1"}`:                                                          {"invalid", "body.product needs bills"},
	} {
		refused := b.send(t, "PUT", "/v1/billing/provider", body)
		refused.problem(t, 422, want[0])
		require.Contains(t, refused.body, want[1])
		require.NotContains(t, refused.body, "CANARY")
	}
	require.Equal(t, got.body, b.send(t, "GET", "/v1/billing/provider", "").body, "what was refused left no trace")
}

// TestOmittedBillsKeepsBillingSettingsOfStripe checks that a request without bills keeps bills and the
// settings of invoices and their lines. A request with bills replaces all of them.
func TestOmittedBillsKeepsBillingSettingsOfStripe(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	require.Contains(t, b.send(t, "GET", "/v1/billing/provider", "").body, `"bills":"quantities"`)
	const said = `"product":"prod_1","products":{"calls":"prod_2"},"tax_behavior":"exclusive","tax_code":"txcd_10000000","collection_method":"send_invoice","days_until_due":30`
	saved := b.send(t, "PUT", "/v1/billing/provider", `{"type":"stripe","bills":"amounts",`+said+`}`)
	require.Equal(t, 200, saved.status, saved.body)
	for _, body := range []string{`{"type":"stripe"}`, `{"type":"stripe","bills":"quantities","tax_code":"txcd_1"}`} {
		got := b.send(t, "GET", "/v1/billing/provider", "").body
		for part := range strings.SplitSeq(`"bills":"amounts",`+said, ",") {
			require.Contains(t, got, part)
		}
		require.Equal(t, 200, b.send(t, "PUT", "/v1/billing/provider", body).status)
	}
	got := b.send(t, "GET", "/v1/billing/provider", "").body
	require.Contains(t, got, `"bills":"quantities"`)
	require.NotContains(t, got, "prod_")
}

// withMapping returns the body that saves a Stripe provider with a mapping.
func withMapping(mapping string) string {
	return `{"type":"stripe","secret_key":"sk_live_CANARYkey","webhook_secret":"` + stripeSecret + `","mapping":` + mapping + `}`
}

func TestAKeyIsNotSavedWhileStripeIsDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	t.Cleanup(down.Close)
	r := b.replica(t, func(d *api.Deps) { d.Providers = registry.New(guard, down.URL) })
	refused := r.send(t, "PUT", "/v1/billing/provider", `{"type":"stripe","secret_key":"sk_live_CANARYkey","webhook_secret":"`+stripeSecret+`"}`)
	refused.problem(t, 422, "provider_refused")
	require.Contains(t, refused.body, "could not be validated: Stripe did not answer")
	require.NotContains(t, refused.body, "CANARY")
	r.send(t, "GET", "/v1/billing/provider", "").problem(t, 409, "no_provider")
}

// TestProviderSavesAreLimitedPerMinute checks that a tenant can call a provider only some times a minute by
// saving settings. A refused save counts too.
func TestProviderSavesAreLimitedPerMinute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var calls atomic.Int64
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(down.Close)
	r := b.replica(t, func(d *api.Deps) { d.Providers = registry.New(guard, down.URL) })
	save := func() answer {
		return r.send(t, "PUT", "/v1/billing/provider", `{"type":"stripe","secret_key":"sk_live_CANARYkey","webhook_secret":"`+stripeSecret+`"}`)
	}
	for range 20 {
		save().problem(t, 422, "provider_refused")
	}
	before := calls.Load()
	require.Contains(t, save().problem(t, 429, "rate_limited").Detail, "at most 20 times a minute")
	require.Equal(t, before, calls.Load())
}

// TestMappingSlugsAndValuesHaveMaximumLength checks the lengths of the slugs and values of a mapping.
func TestMappingSlugsAndValuesHaveMaximumLength(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	mapped := func(slug, value int) answer {
		return b.send(t, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"stripe","mapping":{%q:%q}}`, strings.Repeat("s", slug), strings.Repeat("v", value)))
	}
	require.Equal(t, 200, mapped(64, 255).status)
	for _, a := range []answer{mapped(65, 255), mapped(64, 256)} {
		require.Equal(t, "body.mapping", a.problem(t, 422, "invalid").Errors[0].Location)
	}
}

func TestNewKeyOfSameStripeAccountReplacesPreviousKey(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	saved := b.send(t, "PUT", "/v1/billing/provider", `{"type":"stripe","secret_key":"sk_live_CANARYnext","webhook_secret":"whsec_another-endpoint"}`)
	require.Equal(t, 200, saved.status, saved.body)
	got := b.send(t, "GET", "/v1/billing/provider", "").body
	for _, part := range []string{`"account":"acct_1"`, `"secret_last_four":"next"`, `"webhook_secret_last_four":"oint"`} {
		require.Contains(t, got, part)
	}
	require.NotContains(t, got, "mapping", "the mapping is saved with the rest")
	payload := delivery("evt_1", subscriptionUpdated, "")
	b.deliver(t, b.eventsPath(), payload, b.signature(payload)).problem(t, 400, "malformed")
	require.Equal(t, 200, b.deliver(t, b.eventsPath(), payload, stripetest.Sign([]byte(payload), "whsec_another-endpoint", b.now())).status)
}

func TestOmittedStripeSecretsAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	first := b.provider(t, `{"type":"stripe","mapping":{"calls":"price_2"}}`)
	require.Equal(t, []string{"Ykey", "cret"}, []string{first.SecretLastFour, *first.WebhookSecretLastFour})
	require.Equal(t, map[string]string{"calls": "price_2"}, *first.Mapping)
	payload := delivery("evt_1", subscriptionUpdated, "")
	require.Equal(t, 200, b.deliver(t, b.eventsPath(), payload, b.signature(payload)).status)

	next := b.provider(t, `{"type":"stripe","secret_key":"sk_live_CANARYnext"}`)
	require.Equal(t, first.Id, next.Id)
	require.Equal(t, []string{"next", "cret"}, []string{next.SecretLastFour, *next.WebhookSecretLastFour})
	next = b.provider(t, `{"type":"stripe","secret_key":"","webhook_secret":"whsec_another-endpoint"}`)
	require.Equal(t, []string{"next", "oint"}, []string{next.SecretLastFour, *next.WebhookSecretLastFour})

	other, err := seal.ParseKeyring("other:YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk=")
	require.NoError(t, err)
	r := b.replica(t, func(d *api.Deps) { d.Keyring = other })
	refused := r.send(t, "PUT", "/v1/billing/provider", `{"type":"stripe","webhook_secret":"whsec_another-endpoint"}`)
	refused.problem(t, 422, "invalid")
	require.Contains(t, refused.body, "body.secret_key is required, because the saved secret cannot be decrypted")
}

func TestFirstSaveOfStripeRequiresSecrets(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for body, field := range map[string]string{
		`{"type":"stripe","webhook_secret":"` + stripeSecret + `"}`: "body.secret_key",
		`{"type":"stripe","secret_key":"sk_live_CANARYkey"}`:        "body.webhook_secret",
	} {
		refused := r.send(t, "PUT", "/v1/billing/provider", body)
		refused.problem(t, 422, "invalid")
		require.Contains(t, refused.body, field+" is required when a provider of type stripe is saved for the first time")
		require.NotContains(t, refused.body, "CANARY")
	}
}

func TestTestAndLiveModeOfStripeAreTwoConnections(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	live := b.provider(t, `{"type":"stripe"}`)
	test := b.provider(t, `{"type":"stripe","secret_key":"sk_test_CANARYtest","webhook_secret":"whsec_of-test-mode"}`)
	require.NotEqual(t, live.Id, test.Id)
	require.Equal(t, live.Account, test.Account)
	require.Equal(t, []bool{true, false}, []bool{*live.Livemode, *test.Livemode})
	again := b.provider(t, `{"type":"stripe","secret_key":"sk_live_CANARYkey","webhook_secret":"`+stripeSecret+`"}`)
	require.Equal(t, live.Id, again.Id)
}

// provider saves the tenant's provider and returns it.
func (b *bundle) provider(t testing.TB, body string) (saved client.Provider) {
	t.Helper()
	answer := b.send(t, "PUT", "/v1/billing/provider", body)
	require.Equal(t, 200, answer.status, answer.body)
	require.NotContains(t, answer.body, "CANARY")
	require.NoError(t, json.Unmarshal([]byte(answer.body), &saved))
	return saved
}

// delivery returns an event about a subscription of the tenant's account, in live mode. more has further fields.
func delivery(id, kind, more string) string {
	return `{"id":"` + id + `","object":"event","type":"` + kind + `","created":1,"livemode":true` + more +
		`,"data":{"object":{"id":"sub_1","customer":"cus_1","status":"active"}}}`
}

const subscriptionUpdated = "customer.subscription.updated"

// eventsPath returns the path to which Stripe sends events for the tenant.
func (b *bundle) eventsPath() string { return "/v1/provider-webhooks/stripe/" + b.tenant.ID.String() }

// deliver sends a payload with a signature, as Stripe does.
func (b *bundle) deliver(t testing.TB, path, payload, signature string) answer {
	t.Helper()
	return b.send(t, "POST", path, payload, "Authorization: ", "Stripe-Signature: "+signature)
}

// signature signs a payload with the stored webhook secret.
func (b *bundle) signature(payload string) string {
	return stripetest.Sign([]byte(payload), stripeSecret, b.now())
}

func TestStripeEventIsStoredOnceAndStartsOneRun(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	updated := delivery("evt_1", subscriptionUpdated, "")
	first := b.deliver(t, b.eventsPath(), updated, b.signature(updated))
	require.Equal(t, 200, first.status, first.body)
	started := <-b.temporal.started
	require.Contains(t, started, fmt.Sprintf("provider-event/%d/", b.tenant.ID))
	again := b.deliver(t, b.eventsPath(), updated, b.signature(updated))
	require.Equal(t, 200, again.status, again.body)
	require.Equal(t, started, <-b.temporal.started, "the same run, as nobody has said that it is done")
}

func TestIrrelevantStripeEventStartsNoRun(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	for name, payload := range map[string]string{
		"another kind":        delivery("evt_1", "customer.created", ""),
		"a connected account": delivery("evt_2", subscriptionUpdated, `,"account":"acct_other"`),
		"test mode":           strings.Replace(delivery("evt_3", subscriptionUpdated, ""), `"livemode":true`, `"livemode":false`, 1),
		"no mode":             strings.Replace(delivery("evt_4", subscriptionUpdated, ""), `,"livemode":true`, ``, 1),
	} {
		got := b.deliver(t, b.eventsPath(), payload, b.signature(payload))
		require.Equal(t, 200, got.status, "%s: %s", name, got.body)
		require.Empty(t, b.temporal.started, name)
	}
	own := delivery("evt_5", subscriptionUpdated, `,"account":"acct_1"`)
	require.Equal(t, 200, b.deliver(t, b.eventsPath(), own, b.signature(own)).status)
	require.Contains(t, <-b.temporal.started, "provider-event/")
}

func TestStripeEventWithNULInIDIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	good := delivery("evt_1", subscriptionUpdated, "")
	for _, id := range []string{"evt_1", "sub_1", "cus_1"} {
		payload := strings.Replace(good, id, id+`\u0000`, 1)
		b.deliver(t, b.eventsPath(), payload, b.signature(payload)).problem(t, 400, "malformed")
	}
}

func TestStripeEventOfEachAPIVersionIsAccepted(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	for n, more := range []string{
		``, `,"api_version":null`, `,"api_version":"2020-08-27"`, `,"api_version":"2025-03-31.basil","context":null,"request":{"id":null}`, `,"api_version":"2031-01-01.unknown"`,
	} {
		payload := delivery(fmt.Sprintf("evt_%d", n), subscriptionUpdated, more)
		got := b.deliver(t, b.eventsPath(), payload, b.signature(payload))
		require.Equal(t, 200, got.status, got.body)
		require.Contains(t, <-b.temporal.started, "provider-event/")
	}
}

func TestStripeEventSignatureCoversExactBytes(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	odd := "\n { \"type\" : \"customer.created\",\r\n\t\"id\":\"evt_\\u0031\", \"note\":\"<&\u2028>\" }\n"
	require.Equal(t, 200, b.deliver(t, b.eventsPath(), odd, b.signature(odd)).status)
	now := b.now()
	rolled := stripetest.Sign([]byte(odd), "whsec_the-former-one", now) + "," + strings.Split(stripetest.Sign([]byte(odd), stripeSecret, now), ",")[1]
	require.Equal(t, 200, b.deliver(t, b.eventsPath(), odd, rolled).status, "signed with two secrets while one replaces the other")

	for name, header := range map[string]string{
		"tidied up":      b.signature(strings.TrimSpace(odd)),
		"another secret": stripetest.Sign([]byte(odd), "whsec_another-secret", b.now()),
		"too long ago":   stripetest.Sign([]byte(odd), stripeSecret, b.now().Add(-301*time.Second)),
		"too far ahead":  stripetest.Sign([]byte(odd), stripeSecret, b.now().Add(302*time.Second)),
		"no signature":   "t=1",
		"nothing":        "",
	} {
		got := b.deliver(t, b.eventsPath(), odd, header)
		got.problem(t, 400, "malformed")
		require.Contains(t, got.body, "is not a signature of this body with the webhook secret that the tenant has saved", name)
	}
	b.send(t, "POST", b.eventsPath(), odd, "Authorization: ").problem(t, 400, "malformed")
	b.deliver(t, b.eventsPath(), `{"id":1}`, b.signature(`{"id":1}`)).problem(t, 400, "malformed")
	large := strings.Repeat(" ", 1<<20) + odd
	b.deliver(t, b.eventsPath(), large, b.signature(large)).problem(t, 413, "too_large")
	require.Empty(t, b.temporal.started)
}

func TestProviderWebhookDoesNotRevealTenantsOfStripe(t *testing.T) {
	t.Parallel()
	b, billed := setup(t), setup(t).striped(t)
	payload := delivery("evt_1", subscriptionUpdated, "")
	said := func(path, header string) string {
		got := b.deliver(t, path, payload, header)
		got.problem(t, 400, "malformed")
		return strings.Split(got.body, `"request_id"`)[0]
	}
	refused := said(billed.eventsPath(), strings.Replace(b.signature(payload), "v1=", "v1=0", 1))
	for _, path := range []string{b.eventsPath(), "/v1/provider-webhooks/stripe/ten_999999999", "/v1/provider-webhooks/stripe/acme"} {
		require.Equal(t, refused, said(path, b.signature(payload)), path)
	}
	_, err := b.store.Providers.Save(t.Context(), b.tenant.ID, metering.Operator, metering.Provider{
		Kind: metering.Webhook, Statements: true, Address: "https://example.com", SealedSecret: []byte("x"), LastFour: "xxxx", ValidatedAt: metering.Instant(b.now()),
	})
	require.NoError(t, err)
	require.Equal(t, refused, said(b.eventsPath(), b.signature(payload)))
	b.deliver(t, "/v1/provider-webhooks/webhook/"+b.tenant.ID.String(), payload, b.signature(payload)).problem(t, 404, "not_found")
}

func TestStripeEventReturns503WhileTemporalIsUnavailable(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t)
	payload := delivery("evt_1", subscriptionUpdated, "")
	b.temporal.down.Store(true)
	b.deliver(t, b.eventsPath(), payload, b.signature(payload)).problem(t, 503, "unavailable")

	b.temporal.hangs.Store(true)
	b.deliver(t, b.eventsPath(), payload, b.signature(payload)).problem(t, 503, "unavailable") // although Temporal never responds

	open, err := b.store.ProviderEvents.Open(t.Context(), b.now().Add(time.Hour))
	require.NoError(t, err)
	require.Contains(t, tenantsOf(open), b.tenant.ID, "it is kept, and started when Temporal is back")
}

// tenantsOf returns the tenant of each event.
func tenantsOf(events []ledger.KeptEvent) (tenants []metering.TenantID) {
	for _, e := range events {
		tenants = append(tenants, e.Tenant)
	}
	return tenants
}

// TestForgedStripeEventsAreLimitedPerAddress checks that an address that has sent too many forged events for a
// tenant must wait. The exception is an address that has sent a signed event for the tenant before.
func TestForgedStripeEventsAreLimitedPerAddress(t *testing.T) {
	t.Parallel()
	b := setup(t).striped(t).strict(t, 5)
	updated := delivery("evt_1", subscriptionUpdated, "")
	deliver := func(address, path, payload, signature string) answer {
		return b.send(t, "POST", path, payload, "Authorization: ", "Stripe-Signature: "+signature, forwardedFor(address))
	}
	const stripe, forger = "192.0.2.1", "192.0.2.2"
	for range 10 {
		require.Equal(t, 200, deliver(stripe, b.eventsPath(), updated, b.signature(updated)).status, "signed events are no failures")
		<-b.temporal.started
	}
	for _, address := range []string{stripe, forger} {
		for range 5 {
			deliver(address, "/v1/provider-webhooks/stripe/ten_1", updated, "t=1,v1=00").problem(t, 400, "malformed")
		}
		deliver(address, "/v1/provider-webhooks/stripe/ten_1", updated, "t=1,v1=00").problem(t, 429, "rate_limited")
	}
	require.Equal(t, 200, deliver(forger, b.eventsPath(), updated, b.signature(updated)).status, "each tenant's events count by themselves")
	require.Equal(t, 200, deliver(stripe, b.eventsPath(), updated, b.signature(updated)).status)
}
