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
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// audited returns the audit entries with this action.
func (b *bundle) audited(t testing.TB, action string) []metering.AuditEntry {
	t.Helper()
	entries, err := dbtest.Items(b.store.AuditLog.List(t.Context(), b.tenant.ID, access.AuditFilter{Action: action}, 0, 200))
	require.NoError(t, err)
	return entries
}

func TestRefusedRequestIsAudited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.newKey(t, metering.ScopeReadOnly)
	b.send(t, "POST", "/v1/customers", `{"external_id":"secret-name"}`, "Authorization: Bearer "+key, "X-Request-Id: refused-1").problem(t, 403, "forbidden")
	refused := b.audited(t, "request.refuse")
	require.Len(t, refused, 1)
	require.Regexp(t, "^key_", refused[0].Actor)
	require.Equal(t, [3]string{"POST /v1/customers", "127.0.0.1", "refused-1"}, [3]string{refused[0].Resource, refused[0].Address, refused[0].RequestID})
	require.JSONEq(t, `{"status":403,"detail":"API key scope read_only lacks permission customers:write"}`, string(refused[0].After))

	id := string(refused[0].Actor)
	require.Equal(t, 200, b.send(t, "POST", "/v1/api-keys/"+id+"/revoke", "").status)
	b.send(t, "GET", "/v1/customers", "", "Authorization: Bearer "+key).problem(t, 401, "unauthorized")
	used := b.audited(t, "api_key.refuse")
	require.Len(t, used, 1)
	require.Equal(t, id, used[0].Resource)
	require.JSONEq(t, `{"because":"revoked"}`, string(used[0].After))

	s := b.newSigner(t, metering.ScopeAdmin)
	s.revoke(t, b)
	b.send(t, "POST", "/v1/customers", `{}`, s.sign(`{}`)...).problem(t, 401, "unauthorized")
	used = b.audited(t, "hmac_secret.refuse")
	require.Len(t, used, 1)
	require.Equal(t, metering.Actor(s.id), used[0].Actor)
	s.secret = "hms_guess"
	b.send(t, "POST", "/v1/customers", `{}`, s.sign(`{}`)...).problem(t, 401, "unauthorized")
	require.Len(t, b.audited(t, "hmac_secret.refuse"), 1, "a guess is nobody's")
}

// TestAuditLogLimitsRefusalsPerMinute checks that the audit log records the first 20 refusals of a kind per minute. A
// further entry records the number of omitted refusals.
func TestAuditLogLimitsRefusalsPerMinute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stopping := make(chan struct{})
	r := b.replica(t, func(d *api.Deps) { d.Stopping = stopping })
	key := b.newKey(t, metering.ScopeReadOnly)
	for range 33 {
		r.send(t, "POST", "/v1/customers", `{}`, "Authorization: Bearer "+key).problem(t, 403, "forbidden")
	}
	require.Len(t, b.audited(t, "request.refuse"), 20)
	require.Equal(t, 201, r.send(t, "POST", "/v1/customers", `{"external_id":"c"}`).status, "what is done is recorded all the same")
	require.Len(t, b.audited(t, "customer.create"), 1)
	r.ahead.Store(int64(61 * time.Second))
	r.send(t, "POST", "/v1/customers", `{}`, "Authorization: Bearer "+key).problem(t, 403, "forbidden")
	require.Len(t, b.audited(t, "request.refuse"), 21)
	close(stopping)
	dbtest.Eventually(t, func() error {
		if last := b.audited(t, "request.refuse")[0]; string(last.After) != `{"omitted":13}` {
			return fmt.Errorf("%s: %s", last.Action, last.After)
		}
		return nil
	})
	_, breaks, err := b.store.AuditLog.Verify(t.Context(), b.tenant.ID, nil)
	require.NoError(t, err)
	require.Empty(t, breaks)
}

func TestExportsAndWebhookTestsAreAudited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	require.Equal(t, 200, b.send(t, "GET", "/v1/usage/export?customer=acme&format=csv&end=2026-01-02T00:00:00Z&start=2026-01-01T00:00:00Z", "").status)
	exported := b.audited(t, "usage.export")
	require.Len(t, exported, 1)
	require.Regexp(t, "^cus_", exported[0].Resource)
	require.JSONEq(t, `{"start":"2026-01-01T00:00:00Z","end":"2026-01-02T00:00:00Z","format":"csv"}`, string(exported[0].After))
	require.NotContains(t, fmt.Sprint(exported[0]), "acme", "an id of ours, none of the tenant's customers' names")

	var made struct{ ID string }
	a := b.send(t, "POST", "/v1/webhooks", `{"url":"https://1.example.com/","event_types":["sync.succeeded"]}`)
	require.Equal(t, 201, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &made))
	require.Equal(t, http.StatusAccepted, b.send(t, "POST", "/v1/webhooks/"+made.ID+"/test", "").status)
	require.Equal(t, made.ID, b.audited(t, "webhook.test")[0].Resource)
}

func TestAuditLogIsFilteredAndInvalidFilterIsNamed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`, "X-Request-Id: mine")
	actions := func(query string) string {
		a := b.send(t, "GET", "/v1/audit-log?"+query, "")
		require.Equal(t, 200, a.status, a.body)
		var list struct{ Data []struct{ Action string } }
		require.NoError(t, json.Unmarshal([]byte(a.body), &list))
		var all []string
		for _, e := range list.Data {
			all = append(all, e.Action)
		}
		return strings.Join(all, " ")
	}
	require.Equal(t, "customer.create meter.create api_key.create tenant.create", actions(""))
	require.Equal(t, "api_key.create tenant.create", actions("actor=operator"))
	require.Equal(t, "meter.create", actions("action=meter."))
	require.Equal(t, "customer.create", actions("request_id=mine"))
	require.Equal(t, "tenant.create", actions("resource="+b.tenant.ID.String()))
	require.Empty(t, actions("end=2020-01-01T00:00:00Z"))
	require.Empty(t, actions("start=2120-01-01T00:00:00Z"))
	for query, location := range map[string]string{
		"start=yesterday": "query.start", "end=x": "query.end", "actor=%00": "query.actor", "target=mtr_1": "query.target", "page_token=x": "query.page_token",
	} {
		p := b.send(t, "GET", "/v1/audit-log?"+query, "").problem(t, 422, "invalid")
		require.Equal(t, location, p.Errors[0].Location)
	}
}
