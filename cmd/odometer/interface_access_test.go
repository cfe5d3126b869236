package main_test

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/expect"
	"github.com/odometer-metering/odometer/dev/proc"
)

// sign returns a client that signs its requests.
func sign(t testing.TB, url, tenant, secret string, at time.Time) *client.ClientWithResponses {
	t.Helper()
	c, err := client.NewClientWithResponses(url, client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		var body []byte
		if r.GetBody != nil {
			copied, err := r.GetBody()
			if err != nil {
				return err
			}
			if body, err = io.ReadAll(copied); err != nil {
				return err
			}
		}
		timestamp, id := strconv.FormatInt(at.Unix(), 10), rand.Text()
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%s:%s:%s", timestamp, id, body)
		r.Header.Set("Authorization", "HMAC v1:"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		r.Header.Set("X-Timestamp", timestamp)
		r.Header.Set("X-Request-Id", id)
		r.Header.Set("X-Tenant-Id", tenant)
		return nil
	}))
	require.NoError(t, err)
	return c
}

// signatures checks that signed requests are accepted within 300 seconds of their time, and only with the tenant's own
// secret.
func signatures(t *testing.T, r running) {
	o, ctx := r.owner(t), t.Context()
	o.meter(t)
	made, err := o.CreateHmacSecretWithResponse(ctx, nil, client.CreateHMACSecret{Name: "service", Scope: "read_write"})
	require.NoError(t, err)
	require.Equal(t, 201, made.StatusCode(), string(made.Body))
	secret, event := made.JSON201.Secret, client.Event{EventType: "call", CustomerId: awkward}

	now := sign(t, o.url, o.tenant, secret, time.Now())
	sent, err := now.IngestEventWithResponse(ctx, event)
	require.NoError(t, err)
	require.Equal(t, 200, sent.StatusCode(), string(sent.Body))
	upserted, err := now.UpsertCustomerWithResponse(ctx, awkward, nil, client.CustomerFields{Name: new("é")})
	require.NoError(t, err)
	require.Equal(t, 200, upserted.StatusCode(), string(upserted.Body))
	read, err := now.GetUsageTotalWithResponse(ctx, &client.GetUsageTotalParams{Customer: awkward})
	require.NoError(t, err)
	require.Equal(t, "1", read.JSON200.Total.String())

	for skew, status := range map[time.Duration]int{-290 * time.Second: 200, 290 * time.Second: 200, -310 * time.Second: 401, 310 * time.Second: 401} {
		a, err := sign(t, o.url, o.tenant, secret, time.Now().Add(skew)).ListMetersWithResponse(ctx, nil)
		require.NoError(t, err)
		require.Equal(t, status, a.StatusCode(), skew)
	}
	for name, other := range map[string]*client.ClientWithResponses{
		"secret": sign(t, o.url, o.tenant, secret+"x", time.Now()), "tenant": sign(t, o.url, r.owner(t).tenant, secret, time.Now()),
	} {
		a, err := other.IngestEventWithResponse(ctx, event)
		require.NoError(t, err)
		require.Equal(t, 401, a.StatusCode(), name)
	}
	require.Equal(t, "1", o.total(t, awkward))
}

// scopes checks which requests an API key of each scope can make.
func scopes(t *testing.T, r running) {
	o := r.owner(t)
	o.meter(t)
	o.send(t, client.Event{EventType: "call", CustomerId: "acme"})
	requests := map[string]struct{ method, path, body string }{
		"send events":     {"POST", "/v1/events", `{"event_type":"call","customer_id":"acme"}`},
		"read usage":      {"GET", "/v1/usage/total?customer=acme", ""},
		"export usage":    {"GET", "/v1/usage/export?customer=acme", ""},
		"read meters":     {"GET", "/v1/meters", ""},
		"write meters":    {"PATCH", "/v1/meters/calls", `{"name":"Calls"}`},
		"read customers":  {"GET", "/v1/customers", ""},
		"write customers": {"PUT", "/v1/customers/acme/upsert", `{"name":"Acme"}`},
		"preview billing": {"GET", "/v1/billing/preview?customer=acme", ""},
		"manage keys":     {"GET", "/v1/api-keys", ""},
	}
	allowed := map[string][]string{
		"read_write":  {"send events", "read usage", "export usage", "read meters", "write meters", "read customers", "write customers"},
		"read_only":   {"read usage", "read meters", "read customers"},
		"ingest_only": {"send events"},
	}
	for name := range requests {
		allowed["admin"] = append(allowed["admin"], name)
	}
	for scope, operations := range allowed {
		made, err := o.CreateApiKeyWithResponse(t.Context(), nil, client.CreateAPIKey{Name: scope, Scope: client.CreateAPIKeyScope(scope)})
		require.NoError(t, err)
		for name, request := range requests {
			want := 403
			for _, operation := range operations {
				if operation == name {
					want = 200
				}
			}
			status, text := call(t, request.method, o.url+request.path, made.JSON201.Key, request.body)
			require.Equal(t, want, status, "%s by %s: %s", name, scope, text)
		}
	}
}

// problems checks the status and the body of error responses, and that each type is the URL of a page.
func problems(t *testing.T, r running) {
	o := r.owner(t)
	for place, request := range map[string]struct {
		method, path, key, body string
		status                  int
		code                    string
	}{
		"no credentials":  {"GET", "/v1/customers", "", "", 401, "unauthorized"},
		"unknown key":     {"GET", "/v1/customers", "svc_adm_" + strings.Repeat("a", 32), "", 401, "unauthorized"},
		"unknown path":    {"GET", "/v2/customers", o.key, "", 404, "not_found"},
		"unknown method":  {"DELETE", "/v1/customers", o.key, "", 405, "method_not_allowed"},
		"unknown thing":   {"GET", "/v1/customers/nobody", o.key, "", 404, "not_found"},
		"missing field":   {"POST", "/v1/customers", o.key, `{}`, 422, "invalid"},
		"missing query":   {"GET", "/v1/usage/total", o.key, "", 422, "invalid"},
		"broken body":     {"POST", "/v1/customers", o.key, `{`, 400, "malformed"},
		"oversized batch": {"POST", "/v1/events/batch", o.key, `{"events":[` + strings.Repeat(`{},`, 1000) + `{}]}`, 422, "invalid"},
	} {
		status, text := call(t, request.method, o.url+request.path, request.key, request.body)
		require.Equal(t, request.status, status, "%s: %s", place, text)
		requireShape(t, `{"type":"string","title":"string","status":"integer","detail":"string"}`, []byte(text))
		var p client.Problem
		require.NoError(t, json.Unmarshal([]byte(text), &p))
		require.EqualValues(t, request.status, p.Status)
		require.True(t, strings.HasSuffix(p.Type, "/"+request.code), p.Type)
		page, _ := callUntilAnswered(t, "GET", p.Type, "", "")
		require.Equal(t, 200, page, p.Type)
	}
}

// rateLimit checks that requests with events beyond the tenant's limit return 429, and the headers of the limit.
func rateLimit(t *testing.T, r running) {
	event := client.Event{EventType: "call", CustomerId: awkward}
	var o owner
	var a *client.IngestEventResponse
	dbtest.Eventually(t, func() (err error) { // on a busy machine, the limit's minute may end between the requests
		_, key := r.system.LimitedTenant(t, 2)
		o = owner{ClientWithResponses: proc.Dial(t, r.replicas[0], key)}
		var remaining []string
		for range 2 {
			a, err = o.IngestEventWithResponse(t.Context(), event)
			require.NoError(t, expect.Status("send event", a, err, http.StatusOK))
			require.Equal(t, "2", a.HTTPResponse.Header.Get("X-RateLimit-Limit"))
			remaining = append(remaining, a.HTTPResponse.Header.Get("X-RateLimit-Remaining"))
		}
		if !slices.Equal(remaining, []string{"1", "0"}) {
			return fmt.Errorf("remaining requests: %q", remaining)
		}
		a, err = o.IngestEventWithResponse(t.Context(), event)
		return expect.Status("send event beyond the limit", a, err, http.StatusTooManyRequests)
	})
	requireShape(t, `{"type":"string","title":"string","status":"integer","detail":"string"}`, a.Body)
	seconds, err := strconv.Atoi(a.HTTPResponse.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, seconds)
	require.LessOrEqual(t, seconds, 60)
	require.Equal(t, "0", a.HTTPResponse.Header.Get("X-RateLimit-Remaining"))
	list, err := o.ListMetersWithResponse(t.Context(), nil) // the limit applies only to requests with events
	require.NoError(t, err)
	require.Equal(t, 200, list.StatusCode())

	var made struct {
		Key string `json:"admin_key"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.system.Run(t, "tenant", "create", "--name", "Default", "--json")), &made))
	first, err := proc.Dial(t, r.replicas[0], made.Key).IngestEventWithResponse(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, "1000", first.HTTPResponse.Header.Get("X-RateLimit-Limit"))
}

// tenantsApart checks that a tenant can neither read nor change the resources of another tenant.
func tenantsApart(t *testing.T, r running) {
	ours, theirs := r.owner(t), r.owner(t)
	theirs.meter(t)
	theirs.send(t, client.Event{EventType: "call", CustomerId: awkward})
	found, err := ours.GetCustomerWithResponse(t.Context(), awkward)
	require.NoError(t, err)
	require.Equal(t, 404, found.StatusCode())
	keys, err := theirs.ListApiKeysWithResponse(t.Context(), nil)
	require.NoError(t, err)
	revoked, err := ours.RevokeApiKeyWithResponse(t.Context(), keys.JSON200.Data[0].Id)
	require.NoError(t, err)
	require.Equal(t, 404, revoked.StatusCode())
	ours.meter(t)
	ours.send(t, client.Event{EventType: "call", CustomerId: awkward, Value: number("5")})
	require.Equal(t, "5", ours.total(t, awkward))
	require.Equal(t, "1", theirs.total(t, awkward))
}
