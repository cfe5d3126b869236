package api_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
)

// TestStrictTenantRejectsUnknownCustomersAndEventTypes checks that a strict tenant rejects unknown customers and event
// types. A typo therefore creates no customer that is billed, and stores no event without a meter.
func TestStrictTenantRejectsUnknownCustomersAndEventTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	require.Contains(t, b.send(t, "GET", "/v1/tenant", "").body, `"strict":false`)
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme"}`)
	require.Contains(t, b.send(t, "PATCH", "/v1/tenant", `{"strict":true}`).body, `"strict":true`)

	refused := func(body string) []api.FieldProblem {
		return b.send(t, "POST", "/v1/events", body).problem(t, 422, "invalid").Errors
	}
	require.Equal(t, []api.FieldProblem{{Location: "body.customer_id", Message: "is not the external_id of a customer, and the tenant is strict", Code: "unknown_customer_id"}},
		refused(`{"event_type":"call","customer_id":"acmee"}`))
	require.Equal(t, []api.FieldProblem{{Location: "body.event_type", Message: "is not counted by any meter, and the tenant is strict", Code: "unknown_event_type"}},
		refused(`{"event_type":"cal","customer_id":"acme"}`))
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme"}`)

	result := b.ingest(t, "/v1/events/batch", `{"events":[
		{"event_type":"call","customer_id":"acmee"}, {"event_type":5,"customer_id":"acme"}, {"event_type":"call","customer_id":"acme","value":5},
		{"event_type":"cal","customer_id":"acme"}]}`)
	require.EqualValues(t, 1, result.Accepted)
	require.EqualValues(t, 3, result.Rejected)
	codes := map[string]bool{}
	for _, e := range result.Errors {
		codes[fmt.Sprint(e.Index, " ", e.Code)] = true
	}
	require.Equal(t, map[string]bool{"0 unknown_customer_id": true, "1 invalid_event_type": true, "3 unknown_event_type": true}, codes)
	require.EqualValues(t, 2, b.ingest(t, "/v1/events/batch", `{"events":[{"event_type":"a","customer_id":"b"},{"event_type":"call","customer_id":"b"}]}`).Rejected)
	b.send(t, "GET", "/v1/customers/acmee", "").problem(t, 404, "not_found")
	require.Equal(t, `{"total":7}`, b.total(t, "acme"))

	b.send(t, "POST", "/v1/customers", `{"external_id":"acmee"}`)
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acmee"}`)
	b.send(t, "PATCH", "/v1/tenant", `{"strict":false}`)
	b.ingest(t, "/v1/events", `{"event_type":"cal","customer_id":"anybody"}`)
	require.Equal(t, 200, b.send(t, "GET", "/v1/customers/anybody", "").status)
}

// TestAStrictTenantRejectsUnknownFields checks misspelled field names. An event with a misspelled value field
// would count as 1.
func TestAStrictTenantRejectsUnknownFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	const mistyped = `{"event_type":"call","customer_id":"acme","valeu":5,"idempotency_key":"k"}`
	require.Equal(t, []string{`unknown field "valeu" of events[0] is ignored`}, b.ingest(t, "/v1/events", mistyped).Warnings)
	b.send(t, "PATCH", "/v1/tenant", `{"strict":true}`)
	require.EqualValues(t, 1, b.ingest(t, "/v1/events", mistyped).Duplicates, "a repeat of what is stored")

	for name, rule := range map[string]string{
		"valeu": `did you mean "value"?`, "Val": `did you mean "value"?`, "eventType": `did you mean "event_type"?`, "idempotency-key": `did you mean "idempotency_key"?`,
		"customer": `did you mean "customer_id"?`, "property": `the fields of an event are event_type, customer_id, timestamp, value, properties, idempotency_key`,
		"": `the fields of an event are event_type, customer_id, timestamp, value, properties, idempotency_key`,
	} {
		p := b.send(t, "POST", "/v1/events", `{"event_type":"call","customer_id":"acme","`+name+`":5}`).problem(t, 422, "invalid")
		require.Equal(t, []api.FieldProblem{{Location: "body." + name, Message: "is not a field of an event, and the tenant is strict; " + rule, Code: "unknown_field"}}, p.Errors)
	}
	result := b.ingest(t, "/v1/events/batch", `{"events":[{"event_type":"call"},{"event_type":"call","customer_id":"acme"},{"event_type":"call","customer_id":"acme","valeu":5}]}`)
	require.EqualValues(t, 1, result.Accepted)
	require.EqualValues(t, 2, result.Rejected)
	require.Equal(t, []any{int64(2), "unknown_field"}, []any{result.Errors[1].Index, result.Errors[1].Code})
	require.Len(t, result.Warnings, 2)
	p := b.send(t, "POST", "/v1/events/batch", `{"event":{},"events":[{"event_type":"call","customer_id":"acme"}]}`).problem(t, 422, "invalid")
	require.Equal(t, "body.event", p.Errors[0].Location)
	require.Equal(t, `{"total":2}`, b.total(t, "acme"))
}

// TestStrictTenantAcceptsRepeatsOfStoredEvents checks that an event that was stored before the tenant became strict can
// be sent again.
func TestStrictTenantAcceptsRepeatsOfStoredEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stored := `{"event_type":"cal","customer_id":"acme","idempotency_key":"k1"}`
	b.ingest(t, "/v1/events", stored)
	b.send(t, "PATCH", "/v1/tenant", `{"strict":true}`)

	require.EqualValues(t, 1, b.ingest(t, "/v1/events", stored).Duplicates)
	result := b.ingest(t, "/v1/events/batch", `{"events":[`+stored+`,{"event_type":"cal","customer_id":"acme","idempotency_key":"k2"}]}`)
	require.EqualValues(t, 1, result.Accepted)
	require.EqualValues(t, 1, result.Duplicates)
	require.EqualValues(t, 1, result.Rejected)
	b.send(t, "POST", "/v1/events", `{"event_type":"cal","customer_id":"acmee","idempotency_key":"k1"}`).problem(t, 422, "invalid")
}
