package api_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

// conflicts returns a page of conflicting events.
func (b *bundle) conflicts(t testing.TB, query string) (list client.ListEventConflict) {
	t.Helper()
	a := b.send(t, "GET", "/v1/events/conflicts"+query, "")
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &list))
	return list
}

// TestEventWithKeyOfAnotherCustomerIsListedAsConflict checks that an event with an idempotency key of
// another customer is accepted as a repeat. The event is listed, so that the tenant can send it again.
func TestEventWithKeyOfAnotherCustomerIsListedAsConflict(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":5,"idempotency_key":"k"}`)
	const conflict = `{"event_type":"call","customer_id":"bob","value":0.10,"properties":{"model":"a"},"timestamp":"2026-11-01T00:00:00Z","idempotency_key":"k"}`
	require.Equal(t, client.IngestResult{
		Accepted: 1, Duplicates: 1, Conflicts: 1, Errors: []client.IngestError{},
		Warnings: []string{"events[0] repeats an idempotency_key with other content: it is not counted, because only the first event with a key counts; GET /v1/events/conflicts lists it"},
	}, b.ingest(t, "/v1/events", conflict))
	batch := b.ingest(t, "/v1/events/batch", `{"events":[`+conflict+`,{"event_type":"call","customer_id":"acme","value":5,"idempotency_key":"k"},{"event_type":"call","customer_id":"bob"}]}`)
	require.Equal(t, []int64{3, 2, 1}, []int64{batch.Accepted, batch.Duplicates, batch.Conflicts})
	require.Equal(t, `{"total":1}`, b.total(t, "bob"))

	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"carol","idempotency_key":"k"}`)
	first := b.conflicts(t, "?page_size=1")
	require.True(t, first.HasMore)
	require.Equal(t, "carol", first.Data[0].CustomerId)
	second := b.conflicts(t, "?page_size=1&page_token="+*first.NextPageToken)
	require.False(t, second.HasMore)
	found := second.Data[0]
	require.Equal(t, []string{"bob", "call", "k", "0.1"}, []string{found.CustomerId, found.EventType, *found.IdempotencyKey, found.Value.String()})
	require.Equal(t, map[string]any{"model": "a"}, found.Properties)

	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"bob","value":0.1,"idempotency_key":"of bob"}`)
	require.Equal(t, `{"total":1.1}`, b.total(t, "bob"))
	attention := b.listAttention(t, "kind=event_conflict")
	require.EqualValues(t, 2, attention.TotalItems)
	require.Equal(t, []string{"bob", "1 event", "/v1/events/conflicts"}, []string{attention.Data[0].Customer.ExternalId, attention.Data[0].Reference, attention.Data[0].Url})
	dismiss := "/v1/events/conflicts/" + found.Id + "/dismiss"
	b.send(t, "POST", dismiss, `{"reason":""}`).problem(t, 422, "invalid")
	setupAt(t, b.store).send(t, "POST", dismiss, `{"reason":"a stranger"}`).problem(t, 404, "not_found")
	require.Equal(t, 200, b.send(t, "POST", dismiss, `{"reason":"sent again"}`).status)
	b.send(t, "POST", dismiss, `{"reason":"sent again"}`).problem(t, 404, "not_found")
	b.send(t, "POST", "/v1/events/conflicts/none/dismiss", `{"reason":"sent again"}`).problem(t, 404, "not_found")
	require.Len(t, b.conflicts(t, "").Data, 1)
	require.EqualValues(t, 1, b.listAttention(t, "").TotalItems)
	require.Equal(t, found.Id, b.audited(t, "conflict.dismiss")[0].Resource)
	require.NotEmpty(t, b.audited(t, "event.list"))

	b.key = b.newKey(t, metering.ScopeReadOnly)
	b.send(t, "GET", "/v1/events/conflicts", "").problem(t, http.StatusForbidden, "forbidden")
	b.send(t, "POST", dismiss, `{"reason":"sent again"}`).problem(t, http.StatusForbidden, "forbidden")
}

func TestATenantMayRejectConflicts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	require.Contains(t, b.send(t, "GET", "/v1/tenant", "").body, `"idempotency_conflicts":"accept"`)
	b.send(t, "PATCH", "/v1/tenant", `{"idempotency_conflicts":"ignore"}`).problem(t, 422, "invalid")
	require.Contains(t, b.send(t, "PATCH", "/v1/tenant", `{"idempotency_conflicts":"reject"}`).body, `"idempotency_conflicts":"reject"`)

	const event, conflict = `{"event_type":"call","customer_id":"acme","idempotency_key":"k"}`, `{"event_type":"call","customer_id":"bob","idempotency_key":"k"}`
	within := b.ingest(t, "/v1/events/batch", `{"events":[`+event+`,{"event_type":"call","customer_id":"acme","value":2,"idempotency_key":"k"},`+event+`]}`)
	require.Equal(t, []int64{2, 1, 0, 1}, []int64{within.Accepted, within.Duplicates, within.Conflicts, within.Rejected}, "of two in one request the first stands")
	const message = "was already used for another customer or other content; send the event with a new key"
	p := b.send(t, "POST", "/v1/events", conflict).problem(t, 422, "invalid")
	require.Equal(t, "body.idempotency_key", p.Errors[0].Location)
	require.Equal(t, message, p.Errors[0].Message)
	result := b.ingest(t, "/v1/events/batch", `{"events":[{"event_type":"call","customer_id":"acme"},`+conflict+`,`+event+`]}`)
	require.Equal(t, []client.IngestError{{Index: 1, Code: "idempotency_conflict", Message: "idempotency_key " + message}}, result.Errors)
	require.Equal(t, []int64{2, 1, 0, 1}, []int64{result.Accepted, result.Duplicates, result.Conflicts, result.Rejected})
	require.Equal(t, `{"total":2}`, b.total(t, "acme"))
	require.Empty(t, b.conflicts(t, "").Data)
	b.send(t, "GET", "/v1/customers/bob", "").problem(t, 404, "not_found")
	require.NoError(t, b.counter.Flush(t.Context()))
	require.Equal(t, []client.EventRejections{{Code: "idempotency_conflict", Count: 3}}, b.counts(t, "").Rejections)
}
