package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
)

const someHook = `{"url":"https://example.com/hook","event_types":["sync.succeeded"]}`

// makeHook creates a webhook.
func (b *bundle) makeHook(t testing.TB, body string, headers ...string) client.CreatedWebhook {
	t.Helper()
	a := b.send(t, http.MethodPost, "/v1/webhooks", body, headers...)
	require.Equal(t, 201, a.status, a.body)
	var made client.CreatedWebhook
	require.NoError(t, json.Unmarshal([]byte(a.body), &made))
	return made
}

// recordSync records a completed sync of acme, which creates a message for webhooks.
func (b *bundle) recordSync(t testing.TB) {
	t.Helper()
	c, _, err := b.store.Customers.Upsert(t.Context(), b.tenant.ID, metering.Operator, "acme", catalog.CustomerChange{}, b.now())
	require.NoError(t, err)
	require.NoError(t, b.store.Syncs.Record(t.Context(), b.tenant.ID, c.ID, ledger.Answer{}, b.now(), b.now()))
}

func TestAWebhooksSecretIsShownOnceAndSealed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.makeHook(t, someHook, "Idempotency-Key: once")
	require.Regexp(t, `^whk_\d+$`, made.Id)
	require.Regexp(t, `^whsec_[A-Za-z0-9+/]{43}=$`, made.Secret)
	require.Equal(t, made.Secret[len(made.Secret)-4:], made.SecretLastFour)
	require.True(t, made.Enabled)

	again := b.send(t, http.MethodPost, "/v1/webhooks", someHook, "Idempotency-Key: once")
	require.Equal(t, 409, again.status)
	require.Contains(t, again.body, made.Id+", which ends in "+made.SecretLastFour)
	list := b.send(t, http.MethodGet, "/v1/webhooks", "").body
	require.Equal(t, 1, strings.Count(list, `"id"`))
	require.NotContains(t, list+again.body, made.Secret)

	id, ok := metering.ParseEndpointID(made.Id)
	require.True(t, ok)
	stored, err := b.store.Webhooks.Get(t.Context(), b.tenant.ID, id)
	require.NoError(t, err)
	plain, err := b.deps.Keyring.Open(b.tenant.ID, seal.EndpointSecret, stored.Sealed)
	require.NoError(t, err)
	require.Equal(t, made.Secret, string(plain))

	asked := b.now()
	a := b.send(t, http.MethodPost, "/v1/webhooks/"+made.Id+"/rotate-secret", "", "Idempotency-Key: twice")
	require.Equal(t, 201, a.status, a.body)
	require.Equal(t, 409, b.send(t, http.MethodPost, "/v1/webhooks/"+made.Id+"/rotate-secret", "", "Idempotency-Key: twice").status)
	var rotated client.CreatedWebhook
	require.NoError(t, json.Unmarshal([]byte(a.body), &rotated))
	require.NotEqual(t, made.Secret, rotated.Secret)
	require.WithinRange(t, *rotated.FormerSecretUntil, asked.AddDate(0, 0, 1), b.now().AddDate(0, 0, 1))
	stored, err = b.store.Webhooks.Get(t.Context(), b.tenant.ID, id)
	require.NoError(t, err)
	for i, secret := range []string{rotated.Secret, made.Secret} {
		plain, err = b.deps.Keyring.Open(b.tenant.ID, seal.EndpointSecret, stored.Signing(b.now())[i])
		require.NoError(t, err)
		require.Equal(t, secret, string(plain))
	}

	own := "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	require.Equal(t, own, b.makeHook(t, fmt.Sprintf(`{"url":"https://example.com/","event_types":["discrepancy.detected"],"secret":%q}`, own)).Secret)
	for _, done := range []string{"webhook.create", "webhook.rotate_secret"} {
		require.Contains(t, strings.Join(b.auditActions(t), "\n"), done+" "+made.Id)
	}
}

func TestErrorOfInvalidWebhookNamesItsField(t *testing.T) {
	t.Parallel()
	b := setup(t).replica(t, func(d *api.Deps) { d.Guard.AllowLoopback = false })
	made := b.makeHook(t, someHook)
	for body, field := range map[string]string{
		`{"event_types":["sync.succeeded"]}`:                                                              "body",
		`{"url":"https://example.com/"}`:                                                                  "body",
		`{"url":"https://example.com/","event_types":[]}`:                                                 "body.event_types",
		`{"url":"https://example.com/","event_types":["sync.succeeded","sync.succeeded"]}`:                "body.event_types",
		`{"url":"https://example.com/","event_types":["canary"]}`:                                         "body.event_types[0]",
		`{"url":"https://example.com/","event_types":["webhook.test"]}`:                                   "body.event_types[0]",
		`{"url":"http://example.com/canary","event_types":["sync.succeeded"]}`:                            "body.url",
		`{"url":"https://canary:canary@example.com/","event_types":["sync.succeeded"]}`:                   "body.url",
		`{"url":"https://10.0.0.1/canary","event_types":["sync.succeeded"]}`:                              "body.url",
		`{"url":"https://127.0.0.1/canary","event_types":["sync.succeeded"]}`:                             "body.url",
		`{"url":"https://example.com/","event_types":["sync.succeeded"],"secret":"canary"}`:               "body.secret",
		`{"url":"https://example.com/","event_types":["sync.succeeded"],"description":"canary\u0000"}`:    "body.description",
		`{"url":"https://example.com/","event_types":["sync.succeeded"],"description":"x","canary":true}`: "body.canary",
	} {
		a := b.send(t, http.MethodPost, "/v1/webhooks", body)
		require.Equal(t, 422, a.status, "%s: %s", body, a.body)
		require.Contains(t, a.body, `"location":"`+field+`"`, body)
		require.NotContains(t, strings.ReplaceAll(a.body, "body.canary", ""), "canary")
	}
	for body, field := range map[string]string{
		`{"url":"http://example.com/"}`: "body.url", `{"event_types":[]}`: "body.event_types", `{"enabled":"yes"}`: "body.enabled",
		`{"description":"\u0000"}`: "body.description",
	} {
		a := b.send(t, http.MethodPatch, "/v1/webhooks/"+made.Id, body)
		require.Equal(t, 422, a.status, "%s: %s", body, a.body)
		require.Contains(t, a.body, `"location":"`+field+`"`)
	}
	require.Equal(t, 1, strings.Count(b.send(t, http.MethodGet, "/v1/webhooks", "").body, `"id"`), "nothing half stored")
}

func TestWebhookMessagesCanBeReadAndRedelivered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.makeHook(t, someHook)
	path := "/v1/webhooks/" + made.Id
	for range 3 {
		b.recordSync(t)
	}
	a := b.send(t, http.MethodPost, path+"/test", "")
	require.Equal(t, 202, a.status, a.body)
	var sent struct {
		ID        string
		StatusURL string `json:"status_url"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &sent))

	var seen []string
	next := path + "/deliveries?page_size=3&status=pending"
	for next != "" {
		var page client.ListDelivery
		require.NoError(t, json.Unmarshal([]byte(b.send(t, http.MethodGet, next, "").body), &page))
		for _, d := range page.Data {
			seen = append(seen, string(d.EventType))
			require.Equal(t, client.DeliveryStatusPending, d.Status)
		}
		next = ""
		if page.NextPageToken != nil {
			next = path + "/deliveries?page_size=3&status=pending&page_token=" + *page.NextPageToken
		}
	}
	require.Equal(t, []string{"webhook.test", "sync.succeeded", "sync.succeeded", "sync.succeeded"}, seen)
	require.JSONEq(t, `{"data":[],"has_more":false,"next_page_token":null}`, b.send(t, http.MethodGet, path+"/deliveries?status=failed", "").body)

	id, _ := metering.ParseEndpointID(made.Id)
	for range 4 {
		claimed, err := b.store.Deliveries.Claim(t.Context(), b.tenant.ID, id, b.now(), time.Minute)
		require.NoError(t, err)
		attempt := metering.Attempt{At: b.now(), Took: 42 * time.Millisecond, Status: 200}
		if claimed.Kind == metering.MessageWebhookTest {
			attempt.Status, attempt.Problem = 503, "the webhook answered 503"
		}
		require.NoError(t, b.store.Deliveries.Settle(t.Context(), *claimed, attempt, 0, b.now()))
	}
	var details client.DeliveryDetails
	require.NoError(t, json.Unmarshal([]byte(b.send(t, http.MethodGet, sent.StatusURL, "").body), &details))
	require.Equal(t, sent.ID, details.Id)
	require.Equal(t, client.DeliveryDetailsStatusPending, details.Status)
	require.Len(t, details.AttemptsMade, 1)
	require.EqualValues(t, 42, details.AttemptsMade[0].TookMs)
	require.EqualValues(t, 503, details.AttemptsMade[0].Status)
	require.NotNil(t, details.NextAttemptAt)
	require.Contains(t, details.Body, `{"type":"webhook.test","timestamp":"`)

	a = b.send(t, http.MethodPost, sent.StatusURL+"/redeliver", "")
	require.Equal(t, 202, a.status, a.body)
	a = b.send(t, http.MethodPatch, path, `{"enabled":false}`)
	require.Equal(t, 200, a.status, a.body)
	require.Contains(t, a.body, `"disabled_because":"tenant"`)
	for _, again := range []string{sent.StatusURL + "/redeliver", path + "/test"} {
		a = b.send(t, http.MethodPost, again, "")
		require.Equal(t, 409, a.status)
		require.Contains(t, a.body, "enable it first")
	}
	a = b.send(t, http.MethodPatch, path, `{"enabled":true,"event_types":["discrepancy.detected"],"description":"ops"}`)
	require.Equal(t, 200, a.status, a.body)
	require.Contains(t, a.body, `"enabled":true`)

	a = b.send(t, http.MethodDelete, path, "")
	require.JSONEq(t, fmt.Sprintf(`{"id":%q,"deleted":true}`, made.Id), a.body)
	for _, gone := range []string{path, path + "/deliveries", sent.StatusURL, "/v1/webhooks/whk_x", path + "/deliveries/x"} {
		require.Equal(t, 404, b.send(t, http.MethodGet, gone, "").status, gone)
	}
}

func TestWebhookTestsAreLimitedPerMinute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	test := func(id string) answer { return b.send(t, http.MethodPost, "/v1/webhooks/"+id+"/test", "") }
	first := b.makeHook(t, someHook)
	for range 10 {
		require.Equal(t, 202, test(first.Id).status)
	}
	require.Contains(t, test(first.Id).problem(t, 429, "rate_limited").Detail, "10 tests and redeliveries a minute")
	for n := range 5 { // each webhook is new and has its own allowance
		made := b.makeHook(t, fmt.Sprintf(`{"url":"https://example.com/%d","event_types":["discrepancy.detected"]}`, n))
		for range 10 {
			require.Equal(t, 202, test(made.Id).status)
		}
		require.Equal(t, 200, b.send(t, http.MethodDelete, "/v1/webhooks/"+made.Id, "").status)
	}
	again := b.makeHook(t, `{"url":"https://example.com/again","event_types":["discrepancy.detected"]}`)
	require.Contains(t, test(again.Id).problem(t, 429, "rate_limited").Detail, "60 tests and redeliveries a minute")
	b.ahead.Store(int64(time.Minute + time.Second))
	require.Equal(t, 202, test(again.Id).status)
	require.Equal(t, 409, b.send(t, http.MethodPost, "/v1/webhooks", someHook).status)
}

func TestARedeliveryCountsAsATest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hook := b.makeHook(t, someHook)
	var sent client.Sent
	require.NoError(t, json.Unmarshal([]byte(b.send(t, http.MethodPost, "/v1/webhooks/"+hook.Id+"/test", "").body), &sent))
	again := func() answer {
		return b.send(t, http.MethodPost, "/v1/webhooks/"+hook.Id+"/deliveries/"+sent.Id+"/redeliver", "")
	}
	for range 9 {
		require.Equal(t, 202, again().status)
	}
	refused := again()
	require.Contains(t, refused.problem(t, 429, "rate_limited").Detail, "10 tests and redeliveries a minute")
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Equal(t, 429, b.send(t, http.MethodPost, "/v1/webhooks/"+hook.Id+"/test", "").status)
}

func TestAnotherTenantsWebhookIsNotFound(t *testing.T) {
	t.Parallel()
	b, other := setup(t), setup(t)
	made := other.makeHook(t, someHook)
	path := "/v1/webhooks/" + made.Id
	sent := other.send(t, http.MethodPost, path+"/test", "")
	var message struct {
		StatusURL string `json:"status_url"`
	}
	require.NoError(t, json.Unmarshal([]byte(sent.body), &message))
	for _, r := range [][2]string{
		{"GET", path}, {"PATCH", path}, {"DELETE", path}, {"POST", path + "/rotate-secret"}, {"POST", path + "/test"},
		{"GET", path + "/deliveries"}, {"GET", message.StatusURL}, {"POST", message.StatusURL + "/redeliver"},
	} {
		body := ""
		if r[0] == "PATCH" {
			body = `{"enabled":false}`
		}
		require.Equal(t, 404, b.send(t, r[0], r[1], body).status, "%v", r)
	}
	require.Equal(t, 200, other.send(t, http.MethodGet, path, "").status)
}
