package api_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
)

func TestTenantSettingsAreReadAndChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.at(t, "2026-01-31T18:30:00Z", "a", "3") // February in Kathmandu
	settings := func(method, body string) map[string]any {
		a := b.send(t, method, "/v1/tenant", body)
		require.Equal(t, 200, a.status, a.body)
		var shown map[string]any
		require.NoError(t, json.Unmarshal([]byte(a.body), &shown))
		return shown
	}
	before := settings("GET", "")
	require.Equal(t, b.tenant.ID.String(), before["id"])
	require.Equal(t, before, settings("PATCH", `{}`))
	changed := settings("PATCH", `{"name":"Äcme","timezone":"Asia/Kathmandu","currency":"EUR","grace_hours":24,"late_policy":"report","requests_per_minute":7}`)
	require.Equal(t, changed, settings("GET", ""))
	delete(changed, "created_at")
	require.Equal(t, map[string]any{
		"id": b.tenant.ID.String(), "name": "Äcme", "timezone": "Asia/Kathmandu", "currency": "EUR", "grace_hours": 24.0, "late_policy": "report", "requests_per_minute": 7.0, "strict": false, "idempotency_conflicts": "accept", "v1_bodyless_writes": false,
		"invoice_hold": map[string]any{"enabled": false, "deadline_hours": 48.0},
	}, changed)
	require.Regexp(t, "backfill", <-b.temporal.started)
	for body, location := range map[string]string{
		`{"timezone":"Mars/Olympus"}`: "body.timezone", `{"currency":"euro"}`: "body.currency", `{"name":"a\u0000"}`: "body.name", `{"late_policy":"x"}`: "body.late_policy",
		`{"grace_hours":-1}`: "body.grace_hours", `{"requests_per_minute":0}`: "body.requests_per_minute", `{"requests_per_minute":60001}`: "body.requests_per_minute", `{"timezone":"Local"}`: "body.timezone", `{"timezone":""}`: "body.timezone", `{"timezone":"right/UTC"}`: "body.timezone",
		`{"currency":""}`: "body.currency", `{"currency":"ZZZ"}`: "body.currency", `{"currency":"XTS"}`: "body.currency",
	} {
		p := b.send(t, "PATCH", "/v1/tenant", body).problem(t, 422, "invalid")
		require.Equal(t, location, p.Errors[0].Location, body)
	}
}

func TestTenantRateLimitIsAtMostOperatorsMaximum(t *testing.T) {
	t.Parallel()
	b := setup(t).replica(t, func(d *api.Deps) { d.MaxRequestsPerMinute = 2 })
	p := b.send(t, "PATCH", "/v1/tenant", `{"requests_per_minute":3}`).problem(t, 422, "invalid")
	require.Equal(t, "must be at most 2, the limit set by the operators", p.Errors[0].Message)
	require.Contains(t, b.send(t, "GET", "/v1/tenant", "").body, `"requests_per_minute":2,`, "the stored limit is higher")
	for range 2 {
		b.ingest(t, "/v1/events", hello)
	}
	a := b.send(t, "POST", "/v1/events", hello)
	a.problem(t, 429, "rate_limited")
	require.Equal(t, "2", a.header.Get("X-RateLimit-Limit"))
	require.Equal(t, 200, b.send(t, "PATCH", "/v1/tenant", `{"requests_per_minute":1}`).status)
}
