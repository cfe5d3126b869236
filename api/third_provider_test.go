package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/registry"
	"github.com/odometer-metering/odometer/providers/tallytest"
)

const tallyToken = "tally-CANARY-token"

// tallied returns a replica that also has the provider tally, at base.
func (b *bundle) tallied(t testing.TB, base string) *bundle {
	t.Helper()
	return b.talliedBy(t, tallytest.New(base))
}

// talliedBy starts a replica that also has the provider tally, and returns it.
func (b *bundle) talliedBy(t testing.TB, tally providers.Provider) *bundle {
	t.Helper()
	all := registry.New(guard, "")
	all[tallytest.Kind] = tally
	r := b.replica(t, func(d *api.Deps) { d.Providers = all })
	r.contract = contractOf(all)
	return r
}

// tallyServer starts the server of the provider tally, which accepts tallyToken, and returns its URL.
func tallyServer(t testing.TB) string {
	t.Helper()
	far := tallytest.NewServer()
	far.Issue(tallyToken, "tally-1")
	server := httptest.NewServer(far)
	t.Cleanup(server.Close)
	return server.URL
}

// TestAThirdProviderIsSavedAndShown saves a provider that only tests know.
func TestAThirdProviderIsSavedAndShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.tallied(t, tallyServer(t))

	saved := r.send(t, "PUT", "/v1/billing/provider", `{"type":"tally","tally_token":"`+tallyToken+`","tally_meters":{"calls":"count-of-calls"}}`)
	require.Equal(t, 200, saved.status, saved.body)
	got := r.send(t, "GET", "/v1/billing/provider", "")
	require.Equal(t, saved.body, got.body)
	require.NotContains(t, got.body, "CANARY")
	var shown map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.body), &shown))
	for _, when := range []string{"id", "validated_at", "created_at"} {
		require.NotEmpty(t, shown[when])
		delete(shown, when)
	}
	require.Equal(t, map[string]any{
		"type": "tally", "account": "tally-1", "livemode": false, "secret_last_four": "oken", "tally_meters": map[string]any{"calls": "count-of-calls"},
	}, shown)

	kept, err := b.store.Providers.Active(t.Context(), b.tenant.ID)
	require.NoError(t, err)
	require.False(t, kept.Statements)
	require.Empty(t, kept.SealedWebhookSecret)
	opened, err := b.deps.Keyring.Open(b.tenant.ID, seal.ProviderSecret, kept.SealedSecret)
	require.NoError(t, err)
	require.Equal(t, tallyToken, string(opened))

	for body, want := range map[string][2]string{
		`{"type":"tally","tally_token":"CANARY-other"}`:                                         {"provider_refused", "Tally refused"},
		`{"type":"tally","tally_token":"CANARY","url":"https://example.com"}`:                   {"invalid", "body.url is only for a provider of type webhook"},
		`{"type":"tally","tally_token":"CANARY","mapping":{}}`:                                  {"invalid", "body.mapping is only for a provider of type stripe"},
		`{"type":"webhook","url":"https://example.com","tally_token":"CANARY"}`:                 {"invalid", "body.tally_token is only for a provider of type tally"},
		`{"type":"tally","tally_token":"` + strings.Repeat("CANARY", 11) + `"}`:                 {"invalid", "body.tally_token"},
		`{"type":"tally","tally_token":"` + tallyToken + `","tally_meters":{"calls":"\u0000"}}`: {"invalid", "body.tally_meters must be UTF-8 without NUL"},
		`{"type":"tally","tally_token":"` + tallyToken + `","tally_meters":{"calls":1}}`:        {"invalid", "body.tally_meters.calls"},
		`{"type":"tally","tally_token":"` + tallyToken + `","token":"CANARY"}`:                  {"invalid", "body.token"},
	} {
		refused := r.send(t, "PUT", "/v1/billing/provider", body)
		refused.problem(t, 422, want[0])
		require.Contains(t, refused.body, want[1], body)
		require.NotContains(t, refused.body, "CANARY")
	}
	require.Equal(t, got.body, r.send(t, "GET", "/v1/billing/provider", "").body, "what was refused left no trace")
	again := r.send(t, "PUT", "/v1/billing/provider", `{"type":"tally"}`)
	require.Equal(t, 200, again.status, again.body)
	require.Contains(t, again.body, `"secret_last_four":"oken"`, "the token is kept")
	b.send(t, "PUT", "/v1/billing/provider", `{"type":"tally","tally_token":"`+tallyToken+`"}`).problem(t, 422, "invalid")
}

func TestAThirdProviderNeedsItsSecretTheFirstTime(t *testing.T) {
	t.Parallel()
	r := setup(t).tallied(t, tallyServer(t))
	refused := r.send(t, "PUT", "/v1/billing/provider", `{"type":"tally"}`)
	refused.problem(t, 422, "invalid")
	require.Contains(t, refused.body, "body.tally_token is required when a provider of type tally is saved for the first time")
	require.Contains(t, refused.body, `"location":"body.tally_token"`)
}

func TestAThirdProviderIsNotSavedWhileItIsDown(t *testing.T) {
	t.Parallel()
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	t.Cleanup(down.Close)
	r := setup(t).tallied(t, down.URL)
	refused := r.send(t, "PUT", "/v1/billing/provider", `{"type":"tally","tally_token":"`+tallyToken+`"}`)
	refused.problem(t, 422, "provider_refused")
	require.Contains(t, refused.body, "the provider could not be validated: Tally did not answer")
	r.send(t, "GET", "/v1/billing/provider", "").problem(t, 409, "no_provider")
}

func TestProviderWithoutEventsHasNoWebhookEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.tallied(t, tallyServer(t))
	_, sends := any(tallytest.New("")).(providers.Events)
	require.False(t, sends)
	payload := delivery("evt_1", subscriptionUpdated, "")
	var said []string
	for range 2 { // before and after the provider is saved
		for _, kind := range []string{"tally", "webhook", "nobody"} {
			got := r.deliver(t, "/v1/provider-webhooks/"+kind+"/"+b.tenant.ID.String(), payload, r.signature(payload))
			got.problem(t, 404, "not_found")
			said = append(said, strings.Split(got.body, `"request_id"`)[0])
			require.Equal(t, said[0], said[len(said)-1])
		}
		saved := r.send(t, "PUT", "/v1/billing/provider", `{"type":"tally","tally_token":"`+tallyToken+`"}`)
		require.Equal(t, 200, saved.status, saved.body)
	}
}

// slowReads is the provider tally. It sends the id of a customer to began, and reads the customer once proceed is
// closed.
type slowReads struct {
	tallytest.Provider
	began   chan string
	proceed chan struct{}
}

// Read reads the customer once proceed is closed.
func (p slowReads) Read(ctx context.Context, c providers.Credentials, q providers.Question) (billing.Side, error) {
	select {
	case p.began <- q.Customer:
	case <-ctx.Done():
		return billing.Side{}, ctx.Err()
	}
	select {
	case <-p.proceed:
	case <-ctx.Done():
		return billing.Side{}, ctx.Err()
	}
	return p.Provider.Read(ctx, c, q)
}

// TestLinkingManyCustomersDoesNotBlockOtherTenants checks that a tenant reads at most two customers from its
// provider at the same time, so that another tenant can link a customer.
func TestLinkingManyCustomersDoesNotBlockOtherTenants(t *testing.T) {
	t.Parallel()
	slow := slowReads{tallytest.New(tallyServer(t)), make(chan string, 10), make(chan struct{})}
	r := setup(t).talliedBy(t, slow)
	other := r.of(t, dbtest.Tenant(t, r.store))
	for _, of := range []*bundle{r, other} {
		saved := of.send(t, "PUT", "/v1/billing/provider", `{"type":"tally","tally_token":"`+tallyToken+`"}`)
		require.Equal(t, 200, saved.status, saved.body)
	}
	var links sync.WaitGroup
	link := func(of *bundle, customer string) {
		links.Go(func() {
			linked := of.send(t, "POST", "/v1/customers", fmt.Sprintf(`{"external_id":%[1]q,"billing_provider_id":%[1]q}`, customer))
			if !assert.Equal(t, 201, linked.status, linked.body) {
				slow.began <- "none" // the test does not wait for the customer
			}
		})
	}
	for n := range 4 {
		link(r, fmt.Sprint("ours-", n))
	}
	for range 2 {
		require.Contains(t, <-slow.began, "ours")
	}
	link(other, "theirs")
	require.Equal(t, "theirs", <-slow.began)
	close(slow.proceed)
	for range 2 {
		require.Contains(t, <-slow.began, "ours")
	}
	links.Wait()
}
