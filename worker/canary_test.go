package worker_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oauth2-proxy/mockoidc"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
	"github.com/odometer-metering/odometer/workflows"
)

const (
	canaryHook     = "whsec_canary_endpoint_at_stripe_0123456789"
	canaryPassword = "canary password of the owner"
	canaryMeter    = "/v1/billing/meter_events"
)

// canary is a system of real processes that handle marked secrets and personal data. All personal data contains
// the word canary.
type canary struct {
	*testing.T
	environment []string
	database    string
	api, worker *proc.Process
	processes   []*proc.Process
	conn        *pgx.Conn
	temporal    client.Client
	namespace   string
	far         farEnd
	fake        *stripetest.Fake
	tenant, key string

	secrets map[string]string // by description
	shown   []string          // bodies of errors
	read    []string          // answers to GET
	kinds   map[string]bool   // of the inspected runs
}

// TestSecretsStayEncryptedAndPersonalDataStaysInItsRows runs every flow. It then inspects the recorded answers, and the
// logs, metrics, Temporal data and rows of the processes.
func TestSecretsStayEncryptedAndPersonalDataStaysInItsRows(t *testing.T) {
	t.Parallel()
	c := newCanary(t)
	for _, flow := range []struct {
		name string
		run  func()
	}{
		{"people", c.people}, {"keys", c.keys}, {"signatures", c.signatures}, {"usage", c.usage}, {"mistakes", c.mistakes}, {"messages", c.messages},
		{"webhook", c.webhook}, {"Auto-Sync", c.autoSync}, {"Stripe", c.stripe}, {"Stripe's events", c.events},
		{"maintenance", c.maintenance}, {"another encryption key", c.reseal},
	} {
		flow.run()
		require.False(t, t.Failed(), flow.name)
	}
	c.readBack()
	c.inspect()
	for _, kind := range []string{"sync-customer", "auto-sync", "provider-event", "rotate-credential", "backfill-meter",
		"close-period", "audit-usage", "maintain", "rotate-secrets", "deliver-webhooks"} {
		require.Contains(t, c.kinds, kind)
	}
}

// newCanary returns a canary with a tenant, and running processes.
func newCanary(t *testing.T) *canary {
	t.Helper()
	c := &canary{T: t, far: newFarEnd(t), fake: seededStripe(t, time.Now), secrets: map[string]string{}}
	address := temporalAddress(t)
	c.namespace = proc.Namespace(t, address)
	_, c.database = dbtest.Fresh(t)
	c.conn = connect(t, c.database)
	server := httptest.NewServer(c.fake)
	t.Cleanup(server.Close)
	secret := base64.StdEncoding.EncodeToString([]byte(rand.Text() + rand.Text()))
	c.secret("the service's secret", secret)
	for _, id := range "ab" {
		_, key, _ := strings.Cut(encryptionKey(byte(id)), ":")
		c.secret("encryption key "+string(id), key)
	}
	c.environment = []string{"TEMPORAL_NAMESPACE=" + c.namespace, "ODOMETER_SECRET=" + secret, "STRIPE_API_BASE=" + server.URL, "LOG_LEVEL=debug"}
	system := c.start(encryptionKey('a'))
	c.temporal = proc.Temporal(t, address, c.namespace)
	var made struct {
		Tenant   string `json:"tenant_id"`
		Key      string `json:"admin_key"`
		Password string `json:"password"`
	}
	output := system.Run(t, "tenant", "create", "--name", "Canary Ltd", "--owner-email", "canary-owner@example.com", "--json")
	require.NoError(t, json.Unmarshal([]byte(output), &made))
	c.tenant, c.key = made.Tenant, made.Key
	c.secret("the first admin key", made.Key)
	c.secret("the owner's first password", made.Password)
	return c
}

// start runs an API and a worker with these encryption keys.
func (c *canary) start(keys string) *proc.System {
	c.Helper()
	system := proc.New(c, proc.Config{
		DatabaseURL: c.database, TemporalAddress: temporalAddress(c), Env: append(c.environment, "ODOMETER_ENCRYPTION_KEYS="+keys),
	})
	c.api, c.worker = system.API(c), system.Worker(c)
	c.processes = append(c.processes, c.api, c.worker)
	return system
}

// secret marks a value as a secret that must not be shown unsealed.
func (c *canary) secret(what, value string) {
	c.Helper()
	require.Greater(c, len(value), 11, what)
	c.secrets[what] = value
}

// call sends a request with the admin key, unless the headers replace the key. It records errors and the answers to GET
// requests.
func (c *canary) call(method, path string, body any, headers ...string) (status int, answer map[string]any) {
	c.Helper()
	text, given := body.(string)
	if !given && body != nil {
		encoded, err := json.Marshal(body)
		require.NoError(c, err)
		text = string(encoded)
	}
	ctx, cancel := context.WithTimeout(c.Context(), dbtest.Deadline)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.api.URL+path, strings.NewReader(text))
	require.NoError(c, err)
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(c, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(c, err)
	switch {
	case response.StatusCode >= 400:
		c.shown = append(c.shown, fmt.Sprintf("%s %d: %s", method, response.StatusCode, raw))
	case method == http.MethodGet:
		c.read = append(c.read, string(raw))
	}
	_ = json.Unmarshal(raw, &answer) // exports are not objects
	return response.StatusCode, answer
}

// must sends a request like call, repeats it while the API answers 503, and requires the status.
func (c *canary) must(status int, method, path string, body any, headers ...string) map[string]any {
	c.Helper()
	var got int
	var answer map[string]any
	dbtest.Eventually(c, func() error {
		if got, answer = c.call(method, path, body, headers...); got == http.StatusServiceUnavailable { // as on a busy machine
			return fmt.Errorf("%v", answer)
		}
		return nil
	})
	require.Equal(c, status, got, "%s %s: %v", method, path, answer)
	return answer
}

type object = map[string]any

// people signs in, changes passwords and invites members.
func (c *canary) people() {
	first := c.must(200, "POST", "/v1/auth/login", object{"email": "canary-owner@example.com", "password": c.secrets["the owner's first password"]})
	c.secret("a session", first["token"].(string))
	bearer := "Authorization: Bearer " + first["token"].(string)
	c.must(200, "PUT", "/v1/auth/password", object{"current": c.secrets["the owner's first password"], "new": canaryPassword}, bearer)
	c.secret("the owner's password", canaryPassword)
	c.must(401, "POST", "/v1/auth/login", object{"email": "canary-owner@example.com", "password": "a wrong canary password"})
	c.secret("a wrong password", "a wrong canary password")
	invited := c.must(201, "POST", "/v1/tenant/members", object{"email": "canary-member@example.com", "name": "Canary Member", "role": "billing"})
	c.secret("an invitation's token", invited["token"].(string))
	renewed := c.must(200, "POST", "/v1/tenant/invitations/"+invited["id"].(string)+"/renew", nil)
	c.secret("an invitation's second token", renewed["token"].(string))
	in := c.must(200, "POST", "/v1/invitations/accept", object{"token": renewed["token"], "password": "canary password of a member"})
	c.secret("a member's session", in["token"].(string))
	c.secret("a member's password", "canary password of a member")
	c.must(409, "POST", "/v1/tenant/members", object{"email": "canary-member@example.com", "role": "viewer"})
	c.must(202, "POST", "/v1/password-resets", object{"email": "canary-member@example.com"})

	issuer, err := mockoidc.Run()
	require.NoError(c, err)
	c.Cleanup(func() { _ = issuer.Shutdown() })
	c.secret("the issuer's client secret", issuer.ClientSecret)
	c.must(200, "PUT", "/v1/tenant/oidc", object{"issuer": issuer.Issuer(), "client_id": issuer.ClientID, "client_secret": issuer.ClientSecret})
	c.must(422, "PUT", "/v1/tenant/oidc", object{"issuer": "http://127.0.0.1:1/canary", "client_id": "canary", "client_secret": "canary-client-secret"})
	c.secret("a refused client secret", "canary-client-secret")
	again := c.must(200, "POST", "/v1/tenant/members/"+in["member"].(object)["id"].(string)+"/reset", nil)
	c.secret("a reset's token", again["token"].(string))
	login := c.api.URL + "/v1/auth/oidc/" + c.tenant + "/login"
	for _, visit := range []struct{ subject, begin, body string }{
		{"canary-member", c.api.URL + "/v1/invitations/accept-at-issuer", fmt.Sprintf(`{"token":%q}`, again["token"])},
		{"canary-member", login, ""},
		{"canary-stranger", login, ""},
	} {
		issuer.QueueUser(&mockoidc.MockUser{Subject: visit.subject, Email: visit.subject + "@example.com", EmailVerified: true})
		c.signInAtIssuer(visit.begin, visit.body)
	}
}

// wayOn matches the URL to which a page or an answer sends the browser.
var wayOn = regexp.MustCompile(`(?:<a href=|"location":)"([^"]+)"`)

// signInAtIssuer signs in at the issuer and returns to the callback, as a browser does.
func (c *canary) signInAtIssuer(begin, body string) {
	c.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(c, err)
	browser := http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	visited := func(response *http.Response, err error) (onTo string) {
		require.NoError(c, err)
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		require.NoError(c, err)
		for _, cookie := range response.Cookies() {
			if len(cookie.Value) > 20 {
				c.secret("cookie "+cookie.Name+" of "+response.Request.URL.Path, cookie.Value)
			}
		}
		if response.StatusCode >= 400 {
			c.shown = append(c.shown, string(text))
		}
		if way := wayOn.FindSubmatch(text); way != nil {
			return strings.ReplaceAll(html.UnescapeString(string(way[1])), `\u0026`, "&")
		}
		return response.Header.Get("Location")
	}
	var address string
	if body == "" {
		address = visited(browser.Get(begin))
	} else {
		address = visited(browser.Post(begin, "application/json", strings.NewReader(body)))
	}
	callback := visited(browser.Get(address))
	require.Contains(c, callback, "/v1/auth/oidc/callback?")
	visited(browser.Get(callback))
}

// use ingests an event of a customer.
func (c *canary) use(customer, value string) {
	c.Helper()
	c.must(200, "POST", "/v1/events", object{"event_type": "canary-type", "customer_id": customer, "value": json.Number(value),
		"properties": object{"canary_property": "canary-value"}, "idempotency_key": "canary-" + rand.Text()})
}

// usage creates a customer, a meter and a price, and ingests and reads usage.
func (c *canary) usage() {
	c.must(201, "POST", "/v1/customers", object{"external_id": "canary-customer", "name": "Canary Person", "metadata": object{"canary": "canary"}})
	c.use("canary-customer", "3")
	c.must(201, "POST", "/v1/meters", object{"slug": "canary-meter", "event_type": "canary-type", "name": "Canary", "aggregation": "sum", "group_by": []string{"canary_property"}})
	dbtest.Eventually(c, func() error {
		if status, _ := c.call("GET", "/v1/usage/total?customer=canary-customer", nil); status != 200 {
			return fmt.Errorf("the past is still being counted")
		}
		return nil
	})
	price := object{"base_price": 1, "included_units": 0, "overage_rate": json.Number("0.25"), "currency": "USD"}
	asked := c.must(409, "PUT", "/v1/meters/canary-meter/pricing", price)
	price["confirm"] = asked["confirmation"].(object)["token"]
	c.must(200, "PUT", "/v1/meters/canary-meter/pricing", price)
	c.use("canary-customer", "4")
	c.use("canary-other", "5")
}

// mistakes sends requests that are rejected. They contain marked values wherever possible.
func (c *canary) mistakes() {
	c.must(409, "POST", "/v1/customers", object{"external_id": "canary-customer"})
	c.must(422, "POST", "/v1/customers", object{"external_id": "canary\x00", "unknown": "canary"})
	c.must(422, "POST", "/v1/customers", `{"external_id":"canary-`+strings.Repeat("x", 300)+`"}`)
	c.must(400, "POST", "/v1/customers", `{"external_id":"canary`)
	c.must(404, "GET", "/v1/customers/canary-nobody", nil)
	c.must(404, "GET", "/v1/meters/canary-none", nil)
	c.must(404, "GET", "/canary/path", nil)
	c.must(405, "DELETE", "/v1/customers/canary-customer", nil)
	c.must(409, "POST", "/v1/meters", object{"slug": "canary-meter", "event_type": "canary-type"})
	c.must(422, "POST", "/v1/meters", object{"slug": "CANARY METER", "event_type": "canary-type"})
	c.must(404, "GET", "/v1/usage?meter=canary-none&customer=canary-customer", nil)
	c.must(404, "GET", "/v1/usage/total?customer=canary-nobody", nil)
	c.must(422, "GET", "/v1/usage/export?customer=canary-customer&format=canary", nil)
	c.must(422, "GET", "/v1/customers?page_token=canary", nil)
	c.must(422, "POST", "/v1/events", object{"event_type": "canary-type", "customer_id": "canary-customer", "value": "canary"})
	c.must(422, "POST", "/v1/events", object{"event_type": "canary-type", "customer_id": "canary-customer", "timestamp": "canary"})
	c.must(422, "POST", "/v1/events", object{"event_type": "canary-type", "customer_id": "canary-customer", "timestamp": "1999-01-01T00:00:00Z"})
	c.must(404, "POST", "/v1/billing/sync", object{"customer_external_id": "canary-nobody"})
	c.must(409, "POST", "/v1/billing/sync", object{"customer_external_id": "canary-customer"})
	c.secret("a password in a URL", "canary-password-in-a-url")
	for _, url := range []string{"https://canary:canary-password-in-a-url@example.com/", "https://canary.invalid/", "http://169.254.169.254/canary", "canary"} {
		c.must(422, "PUT", "/v1/billing/provider", object{"type": "webhook", "url": url, "secret": webhookSecret})
	}
	c.must(422, "PUT", "/v1/billing/provider", object{"type": "webhook", "url": c.far.url + "/canary", "secret": "whsec_canary"})
	c.must(422, "PUT", "/v1/billing/auto-sync", object{"enabled": true, "schedule": "canary canary"})
	c.secret("a key that Stripe refuses", "sk_test_canary_refused")
	c.must(422, "PUT", "/v1/billing/provider", object{"type": "stripe", "secret_key": "sk_test_canary_refused", "webhook_secret": canaryHook})
}

// sync requests a sync of a customer, waits until it ends, and requires its status.
func (c *canary) sync(customer, status string) {
	c.Helper()
	var sync object
	dbtest.Eventually(c, func() error { // Temporal may not answer a busy machine in time
		var code int
		if code, sync = c.call("POST", "/v1/billing/sync", object{"customer_external_id": customer}); code != 200 && code != 202 {
			return fmt.Errorf("%d: %v", code, sync)
		}
		return nil
	})
	page := sync["status_url"].(string)
	dbtest.Eventually(c, func() error { // the request for a sync waits only a few seconds
		if sync = c.must(200, "GET", page, nil); sync["finished_at"] == nil {
			return fmt.Errorf("it has not ended: %v", sync)
		}
		return nil
	})
	require.Equal(c, status, sync["status"], "%v", sync)
}

// webhook syncs a customer to a receiver of statements that refuses or loses some of them.
func (c *canary) webhook() {
	c.secret("the webhook's secret", webhookSecret)
	c.must(200, "PUT", "/v1/billing/provider", object{"type": "webhook", "url": c.far.url + "/canary-hook?token=canary", "secret": webhookSecret})
	c.sync("canary-customer", "succeeded")
	c.far.behave(`{"status":410,"times":1}`)
	c.use("canary-customer", "1")
	c.sync("canary-customer", "failed")
	c.far.behave(`{"drop_answer":true,"times":1}`)
	c.use("canary-customer", "1")
	c.sync("canary-customer", "succeeded")
}

// autoSync runs Auto-Sync while the receiver is unavailable.
func (c *canary) autoSync() {
	c.far.behave(`{"status":503,"times":1000}`)
	c.use("canary-customer", "1")
	c.use("canary-other", "1")
	c.must(200, "PUT", "/v1/billing/auto-sync", object{"enabled": true, "schedule": "daily"})
	dbtest.Eventually(c, func() error {
		if status, answer := c.call("POST", "/v1/billing/auto-sync/trigger", nil); status != 202 {
			return fmt.Errorf("%v", answer)
		}
		return nil
	})
	c.awaitFailing("auto-sync/", "SyncBatch")
	c.inspectTemporal() // during the outage, Temporal shows failures with the pending activity
	c.far.behave(`{"status":422,"times":1}`)
	dbtest.Eventually(c, func() error {
		return c.none(`select count(*) from billing_syncs where status in ('requested', 'running')`,
			`select 1 - least(1, count(*)) from billing_syncs where trigger = 'schedule' and status in ('failed', 'succeeded')`)
	})
}

// awaitFailing waits until an activity of the kind has failed and is being retried, in a run with the prefix.
func (c *canary) awaitFailing(prefix, kind string) {
	c.Helper()
	dbtest.Eventually(c, func() error {
		for _, run := range c.runs() {
			if !strings.HasPrefix(run.GetWorkflowId(), prefix) {
				continue
			}
			described, err := c.temporal.DescribeWorkflowExecution(c.Context(), run.GetWorkflowId(), run.GetRunId())
			if err != nil {
				return err
			}
			for _, pending := range described.GetPendingActivities() {
				if pending.GetActivityType().GetName() == kind && pending.GetLastFailure() != nil {
					return nil
				}
			}
		}
		return fmt.Errorf("no %s fails in %s", kind, prefix)
	})
}

// none returns an error if one of the queries returns a count above 0.
func (c *canary) none(queries ...string) error {
	for _, query := range queries {
		var n int
		if err := c.conn.QueryRow(c.Context(), query).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%d: %s", n, query)
		}
	}
	return nil
}

// stripe syncs a customer to Stripe, which refuses or loses some calls.
func (c *canary) stripe() {
	c.secret("Stripe's key", stripeKey)
	c.secret("the secret of Stripe's endpoint", canaryHook)
	c.must(200, "PUT", "/v1/billing/provider", object{"type": "stripe", "secret_key": stripeKey, "webhook_secret": canaryHook,
		"mapping": object{"canary-meter": "price_delta"}})
	c.must(200, "PUT", "/v1/customers/canary-customer/upsert", object{"billing_provider_id": "cus_canary", "name": "Canary Person"})
	c.use("canary-customer", "2")
	c.sync("canary-customer", "succeeded")
	c.fake.Behave(stripetest.Behaviour{Status: 403, Times: 1, Path: canaryMeter})
	c.use("canary-customer", "2")
	c.sync("canary-customer", "failed")
	c.fake.Behave(stripetest.Behaviour{DropAnswer: true, Times: 2})
	c.use("canary-customer", "2")
	c.sync("canary-customer", "succeeded")
	c.must(200, "PUT", "/v1/customers/canary-other/upsert", object{"billing_provider_id": "cus_canary_nobody"})
	c.use("canary-other", "2")
	c.sync("canary-other", "failed")
}

// events delivers events of Stripe, one of them with a wrong signature.
func (c *canary) events() {
	path := "/v1/provider-webhooks/stripe/" + c.tenant
	for i, kind := range []string{"customer.subscription.updated", "invoice.created", "customer.subscription.updated"} {
		payload := fmt.Sprintf(`{"id":"evt_canary_%d","object":"event","type":%q,"created":1,"data":{"object":{"id":"in_canary","customer":"cus_canary","status":"active"}}}`, i, kind)
		signed := stripetest.Sign([]byte(payload), canaryHook, time.Now())
		if i == 2 {
			c.must(400, "POST", path, payload+" ", "Stripe-Signature: "+signed)
			continue
		}
		c.must(200, "POST", path, payload, "Stripe-Signature: "+signed)
	}
	dbtest.Eventually(c, func() error {
		return c.none(`select count(*) from provider_events where handled_at is null`)
	})
}

// maintenance runs workflows that schedules would start, with a period that is due.
func (c *canary) maintenance() {
	var tenant metering.TenantID
	require.NoError(c, c.conn.QueryRow(c.Context(), `select id from tenants`).Scan(&tenant))
	_, err := c.conn.Exec(c.Context(), `update customers set created_at = created_at - interval '70 days'`)
	require.NoError(c, err)
	for id, run := range map[string]any{"close-period": workflows.ClosePeriod, "audit-usage": workflows.AuditUsage, "maintain": workflows.Maintain} {
		input := map[string][]any{"close-period": {workflows.ClosePeriodInput{TenantID: tenant}}, "audit-usage": {workflows.AuditUsageInput{}}}[id]
		started, err := c.temporal.ExecuteWorkflow(c.Context(), client.StartWorkflowOptions{ID: id + "/by-hand", TaskQueue: workflows.TaskQueue}, run, input...)
		require.NoError(c, err)
		require.NoError(c, started.Get(c.Context(), nil))
	}
}

// reseal restarts the processes with a new first encryption key, and rewraps all secrets.
func (c *canary) reseal() {
	c.api.Stop(c)
	c.worker.Stop(c)
	system := c.start(encryptionKey('b') + "," + encryptionKey('a'))
	require.Contains(c, system.Run(c, "rotate-secrets"), "Secrets that did not open 0\n")
	c.use("canary-customer", "1")
	c.sync("canary-customer", "succeeded")
}
