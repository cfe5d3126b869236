package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// TestErrorMessagesUseStandardTerms checks that error messages use the standard terms of the domain, so that the
// caller knows how to correct the request.
func TestErrorMessagesUseStandardTerms(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "model", "region")
	b.meter(t, "plain", "call")
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","properties":{"model":"a","region":"eu"}}`)
	const time = "must be RFC 3339 with seconds and an offset, such as 2026-11-01T00:00:00Z"
	for _, c := range []struct{ method, path, body, location, message string }{
		{"GET", "/v1/usage/total?customer=acme&start=yesterday", "", "query.start", time},
		{"PUT", "/v1/meters/calls/pricing", `{"overage_rate":1,"effective_from":"tomorrow"}`, "body.effective_from", time},
		{"GET", "/v1/usage?meter=calls&customer=acme&filter.user=x", "", "query.filter.user", "must be a property that the meter groups by; available: model, region"},
		{"GET", "/v1/usage?meter=plain&customer=acme&filter.user=x", "", "query.filter.user", "must be a property that the meter groups by; it has none"},
		{"POST", "/v1/events", `[{"event_type":"call","customer_id":"acme"}]`, "body", "must be a single event; send an array of events to /v1/events/batch"},
	} {
		p := b.send(t, c.method, c.path, c.body).problem(t, 422, "invalid")
		require.Equal(t, "Validation failed", p.Title)
		require.Equal(t, c.location, p.Errors[0].Location, c.path)
		require.Equal(t, c.message, p.Errors[0].Message, c.path)
	}
	ingest := b.newKey(t, metering.ScopeIngestOnly)
	require.Equal(t, "API key scope ingest_only lacks permission usage:read",
		b.send(t, "GET", "/v1/usage/total?customer=acme", "", "Authorization: Bearer "+ingest).problem(t, 403, "forbidden").Detail)
}
