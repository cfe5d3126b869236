package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

// TestEventsAreCountedByOutcome sends valid, repeated and invalid events, alone and in batches, in two
// hours of the tenant's time zone.
func TestEventsAreCountedByOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t, "Asia/Kathmandu") // UTC+05:45
	zone, err := metering.LoadLocation("Asia/Kathmandu")
	require.NoError(t, err)
	hour := metering.WindowOf(b.now(), metering.Hour, zone)
	require.Empty(t, b.counts(t, "").Windows)

	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","idempotency_key":"a"}`)
	b.ingest(t, "/v1/events/batch", `{"events":[
		{"event_type":"call","customer_id":"acme","idempotency_key":"a"},
		{"event_type":"call","customer_id":"bob","idempotency_key":"a"},
		{"event_type":"call","customer_id":"acme"},
		{"event_type":"call"},
		{"event_type":"call","customer_id":"acme","value":"much"},
		{"event_type":"call","customer_id":""}]}`)
	b.send(t, "POST", "/v1/events", `{"event_type":"call","customer_id":"acme","timestamp":"1999-01-01T00:00:00Z"}`).problem(t, 422, "invalid")
	b.send(t, "POST", "/v1/events", `{"event_type":`).problem(t, 400, "malformed") // not counted, because no event can be read
	require.NoError(t, b.counter.Flush(t.Context()))
	b.ahead.Add(int64(time.Hour))
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme"}`)
	require.NoError(t, b.counter.Flush(t.Context()))

	first := client.CountedWindow{Start: hour.Start, End: hour.End, Accepted: 4, Duplicates: 2, Conflicts: 1, Rejected: 4, Rejections: []client.EventRejections{
		{Code: "invalid_customer_id", Count: 2}, {Code: "invalid_value", Count: 1}, {Code: "timestamp_too_old", Count: 1},
	}}
	next := client.CountedWindow{Start: hour.End, End: hour.End.Add(time.Hour), Accepted: 1, Rejections: []client.EventRejections{}}
	counts := b.counts(t, "")
	require.Equal(t, []client.CountedWindow{first, next}, counts.Windows)
	require.Equal(t, []int64{5, 2, 1, 4}, []int64{counts.Accepted, counts.Duplicates, counts.Conflicts, counts.Rejected})
	require.Equal(t, first.Rejections, counts.Rejections)
	require.Equal(t, []client.CountedWindow{next}, b.counts(t, "?start="+hour.End.Format(time.RFC3339)).Windows)

	day := metering.WindowOf(hour.Start, metering.Day, zone)
	daily := b.counts(t, "?granularity=day&start="+day.Start.Format(time.RFC3339))
	require.Equal(t, day.Start, daily.Windows[0].Start)
	require.Equal(t, day.End, daily.Windows[0].End)
	require.EqualValues(t, 5, daily.Accepted)

	stranger := setupAt(t, b.store)
	require.Empty(t, stranger.counts(t, "").Windows)
	b.send(t, "GET", "/v1/events/counts?start=2020-01-01T00:00:00Z", "").problem(t, 422, "invalid")
	b.send(t, "GET", "/v1/events/counts?start=2999-01-01T00:00:00Z", "").problem(t, 422, "invalid")
	b.key = b.newKey(t, metering.ScopeReadOnly)
	b.send(t, "GET", "/v1/events/counts", "").problem(t, http.StatusForbidden, "forbidden")
}

// counts returns the event counts for a query.
func (b *bundle) counts(t testing.TB, query string) (counts client.EventCounts) {
	t.Helper()
	a := b.send(t, "GET", fmt.Sprintf("/v1/events/counts%s", query), "")
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &counts))
	return counts
}
