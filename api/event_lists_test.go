package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

func TestEventsOfTheLastDayAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	began := b.now()
	at := func(ago time.Duration) string { return b.now().Add(-ago).UTC().Format(time.RFC3339) }
	b.ingest(t, "/v1/events/batch", fmt.Sprintf(`{"events":[
		{"event_type":"call","customer_id":"acme","value":1.50,"timestamp":%q},
		{"event_type":"call","customer_id":"acme","value":2,"timestamp":%q,"idempotency_key":"two","properties":{"model":"a"}},
		{"event_type":"token","customer_id":"con/toso","value":3,"timestamp":%q},
		{"event_type":"token","customer_id":"acme","value":4}]}`, at(25*time.Hour), at(23*time.Hour), at(time.Hour)))
	list := func(query string) (page client.EventPage) {
		t.Helper()
		a := b.send(t, "GET", "/v1/events"+query, "")
		require.Equal(t, 200, a.status, a.body)
		require.NoError(t, json.Unmarshal([]byte(a.body), &page))
		return page
	}
	values := func(page client.EventPage) (values []string) {
		for _, e := range page.Data {
			values = append(values, e.Value.String())
		}
		return values
	}
	require.Equal(t, []string{"4", "3", "2"}, values(list("")))
	require.Equal(t, []string{"4", "3", "2", "1.5"}, values(list("?start="+at(26*time.Hour))))
	require.Equal(t, []string{"4", "2"}, values(list("?customer=acme")))
	require.Equal(t, []string{"3"}, values(list("?customer="+url.QueryEscape("con/toso"))))
	require.Equal(t, []string{"4", "3"}, values(list("?event_type=token")))
	require.Equal(t, []string{"2"}, values(list("?idempotency_key=two")))
	require.Empty(t, list("?idempotency_key=tw").Data)
	require.Nil(t, list("?idempotency_key=two").SearchedUntil, "every event was searched")
	require.Equal(t, []string{"3", "2"}, values(list("?end="+at(time.Minute))))

	first := list("?page_size=1")
	require.True(t, first.HasMore)
	b.ingest(t, "/v1/events", `{"event_type":"token","customer_id":"acme","value":5}`)
	rest := list("?page_size=2&page_token=" + *first.NextPageToken)
	require.Equal(t, []string{"3", "2"}, values(rest), "the range is that of the first page")
	require.False(t, rest.HasMore)
	require.Nil(t, rest.NextPageToken)

	two := rest.Data[1]
	require.Equal(t, "acme two call", two.CustomerId+" "+*two.IdempotencyKey+" "+two.EventType)
	require.Equal(t, map[string]any{"model": "a"}, two.Properties)
	require.WithinRange(t, two.IngestedAt, began, b.now())
	require.Equal(t, []client.EventCounter{{MeterSlug: "calls"}}, two.CountedBy)
	require.Empty(t, rest.Data[0].CountedBy)
}

// TestUnfinishedEventSearchContinuesWithPageToken checks that a search that ended before it found an event continues
// with the token of its page.
func TestUnfinishedEventSearchContinuesWithPageToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ingest(t, "/v1/events", fmt.Sprintf(`{"event_type":"call","customer_id":"acme","value":7,"timestamp":%q}`, b.now().Add(-2*time.Hour).UTC().Format(time.RFC3339)))
	hasty := b.replica(t, func(d *api.Deps) { d.SearchTime = time.Nanosecond })
	var values []string
	token, searched, empty := "", b.now().Add(2*time.Hour), 0
	for pages := 0; ; pages++ {
		require.Less(t, pages, 24*60+2, "a minute or more a page")
		var page client.EventPage
		a := hasty.send(t, "GET", "/v1/events?event_type=call"+token, "")
		require.Equal(t, 200, a.status, a.body)
		require.NoError(t, json.Unmarshal([]byte(a.body), &page))
		require.True(t, page.SearchedUntil.Before(searched), "it gets on")
		searched = *page.SearchedUntil
		for _, e := range page.Data {
			values = append(values, e.Value.String())
		}
		if page.NextPageToken == nil || len(values) > 0 {
			break
		}
		require.True(t, page.HasMore)
		token, empty = "&page_token="+*page.NextPageToken, empty+1
	}
	require.Equal(t, []string{"7"}, values)
	require.Positive(t, empty)
}

// TestListingEventsIsAuditedOncePerHour checks that listing events is recorded at most once an hour for each caller and
// customer. A list of all customers is recorded separately.
func TestListingEventsIsAuditedOncePerHour(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	recorded := func() int {
		t.Helper()
		return strings.Count(b.send(t, "GET", "/v1/audit-log?action=event.list", "").body, `"event.list"`)
	}
	for range 3 {
		require.Equal(t, 200, b.send(t, "GET", "/v1/events", "").status)
	}
	require.Equal(t, 1, recorded())
	b.send(t, "GET", "/v1/events?customer=acme", "")
	b.send(t, "GET", "/v1/events?customer=acme&event_type=call", "")
	require.Equal(t, 2, recorded(), "whose events are read is in the log")
	another := b.newKey(t, metering.ScopeAdmin)
	b.send(t, "GET", "/v1/events", "", "Authorization: Bearer "+another)
	require.Equal(t, 3, recorded())
	b.ahead.Add(int64(time.Hour))
	b.send(t, "GET", "/v1/events", "")
	require.Equal(t, 4, recorded())
}

func TestListingEventsRequiresEventsRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for scope, status := range map[metering.Scope]int{metering.ScopeAdmin: 200, metering.ScopeReadWrite: 200, metering.ScopeReadOnly: 403, metering.ScopeIngestOnly: 403} {
		require.Equal(t, status, b.send(t, "GET", "/v1/events", "", "Authorization: Bearer "+b.newKey(t, scope)).status, scope)
	}
	for query, at := range map[string]string{
		"?start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z": "query.end",
		"?page_token=other":      "query.page_token",
		"?event_type=%00":        "query.event_type",
		"?idempotency_key=a%00b": "query.idempotency_key",
	} {
		require.Equal(t, at, b.send(t, "GET", "/v1/events"+query, "").problem(t, 422, "invalid").Errors[0].Location, query)
	}
	b.send(t, "GET", "/v1/events?customer=nobody", "").problem(t, 404, "not_found")
}
