package api_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
)

func TestAnExportWalksEveryEventOnceInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var events []string
	for i := range 1000 {
		events = append(events, fmt.Sprintf(`{"event_type":"call","customer_id":"acme","value":%d,"timestamp":%q}`,
			i, b.now().UTC().Add(-time.Duration(i%7)*time.Hour).Format(time.RFC3339)))
	}
	for range 5 { // more events than one chunk of an export
		b.ingest(t, "/v1/events/batch", `{"events":[`+strings.Join(events, ",")+`]}`)
	}
	seen := make(map[string]bool)
	var last time.Time
	for token, pages := "", 0; ; pages++ {
		a := b.send(t, "GET", "/v1/usage/export?customer=acme&page_size=2100"+token, "")
		require.Equal(t, 200, a.status, a.body)
		require.Equal(t, "application/json", a.header.Get("Content-Type"))
		var page client.ListExportedEvent
		require.NoError(t, json.Unmarshal([]byte(a.body), &page))
		for _, e := range page.Data {
			require.False(t, seen[e.Id])
			require.False(t, e.Timestamp.Before(last))
			seen[e.Id], last = true, e.Timestamp
		}
		require.Equal(t, page.HasMore, page.NextPageToken != nil)
		if !page.HasMore {
			require.Equal(t, 2, pages)
			break
		}
		require.Len(t, page.Data, 2100)
		token = "&page_token=" + *page.NextPageToken
	}
	require.Len(t, seen, 5000)
}

func TestACSVExportIsAFileWithTheNextPageInItsHeader(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ingest(t, "/v1/events/batch", `{"events":[
		{"event_type":"=cmd()","customer_id":"+acme","value":-1.5,"idempotency_key":"@key","properties":{"a":"b,\"c\""},"timestamp":"2026-01-01T00:00:00Z"},
		{"event_type":"-1","customer_id":"+acme","timestamp":"2026-01-01T00:00:01Z"},
		{"event_type":"plain","customer_id":"+acme","timestamp":"2026-01-01T00:00:02.5Z"}
	]}`)
	path := "/v1/usage/export?customer=%2Bacme&format=csv&page_size=2&start=2026-01-01T00:00:00Z&end=2026-01-02T00:00:00Z"
	first := b.send(t, "GET", path, "")
	require.Equal(t, 200, first.status, first.body)
	require.Equal(t, "text/csv; charset=utf-8", first.header.Get("Content-Type"))
	require.Equal(t, `attachment; filename="usage-export.csv"`, first.header.Get("Content-Disposition"))
	rows := readCSV(t, first.body)
	require.Equal(t, []string{"event_type", "customer_id", "timestamp", "value", "idempotency_key", "properties"}, rows[0][1:])
	require.Equal(t, []string{"'=cmd()", "'+acme", "2026-01-01T00:00:00Z", "-1.5", "'@key"}, rows[1][1:6])
	require.JSONEq(t, `{"a":"b,\"c\""}`, rows[1][6])
	require.Equal(t, []string{"'-1", "'+acme", "2026-01-01T00:00:01Z", "1", "", "{}"}, rows[2][1:])
	require.Len(t, rows, 3)

	link := first.header.Get("Link")
	next, ok := strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	require.True(t, ok, link)
	second := b.send(t, "GET", next, "")
	require.Equal(t, 200, second.status, second.body)
	require.Empty(t, second.header.Get("Link"))
	require.Equal(t, []string{"plain", "'+acme", "2026-01-01T00:00:02.5Z", "1", "", "{}"}, readCSV(t, second.body)[1][1:])
}

// readCSV returns the rows of a CSV text.
func readCSV(t *testing.T, text string) [][]string {
	t.Helper()
	reader := csv.NewReader(strings.NewReader(text))
	rows, err := reader.ReadAll()
	require.NoError(t, err)
	require.NotErrorIs(t, err, io.EOF)
	return rows
}

func TestAnExportOfAllCustomersHasEachEventOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.of(t, dbtest.Tenant(t, b.store))
	other.ingest(t, "/v1/events", `{"event_type":"theirs","customer_id":"acme","timestamp":"2026-01-01T00:00:00Z"}`)
	for _, event := range []string{
		`"customer_id":"zeta","value":1,"timestamp":"2026-01-01T00:00:02Z"`, `"customer_id":"acme","value":2,"timestamp":"2026-01-20T00:00:00Z"`,
		`"customer_id":"zeta","value":3,"timestamp":"2026-01-01T00:00:01Z"`, `"customer_id":"acme","value":4,"timestamp":"2026-01-01T00:00:00Z"`,
		`"customer_id":"acme","value":5,"timestamp":"2026-02-01T00:00:00Z"`, `"customer_id":"acme","value":6,"timestamp":"2026-01-01T00:00:00Z"`,
	} {
		b.ingest(t, "/v1/events", `{"event_type":"call",`+event+`}`)
	}
	whole := b.send(t, "GET", "/v1/events/export?"+january, "")
	require.Equal(t, 200, whole.status, whole.body)
	var page client.ListExportedEvent
	require.NoError(t, json.Unmarshal([]byte(whole.body), &page))
	var values []string
	for _, e := range page.Data {
		values = append(values, e.CustomerId+" "+e.Value.String())
	}
	require.Equal(t, []string{"zeta 3", "zeta 1", "acme 4", "acme 6", "acme 2"}, values, "customers in order of creation")

	var lines []string
	for path := "/v1/events/export?format=jsonl&page_size=2&" + january; path != ""; {
		a := b.send(t, "GET", path, "")
		require.Equal(t, 200, a.status, a.body)
		require.Equal(t, "application/x-jsonlines", a.header.Get("Content-Type"))
		require.Equal(t, `attachment; filename="events-export.jsonl"`, a.header.Get("Content-Disposition"))
		lines = append(lines, strings.Split(strings.TrimSpace(a.body), "\n")...)
		path = a.next()
	}
	require.Len(t, lines, 5)
	for i, line := range lines {
		var e client.ExportedEvent
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		require.Equal(t, page.Data[i].Id, e.Id)
	}
	require.Len(t, readCSV(t, b.send(t, "GET", "/v1/events/export?format=csv&"+january, "").body), 6)
	log := b.send(t, "GET", "/v1/audit-log?action=usage.export&resource="+b.tenant.ID.String(), "")
	require.Equal(t, 5, strings.Count(log.body, `"action":"usage.export"`), log.body)
}

// TestAnExportDuringIngestHasEachEarlierEventOnce checks that an export contains each earlier event once. Events
// that arrive during the export move the ends of its pages, and no event falls between two pages.
func TestAnExportDuringIngestHasEachEarlierEventOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	batch := func(customer string, hour int) string {
		event := fmt.Sprintf(`{"event_type":"call","customer_id":%q,"timestamp":"2026-01-02T%02d:00:00Z"}`, customer, hour)
		return `{"events":[` + strings.Repeat(event+",", 99) + event + `]}`
	}
	for i := range 8 {
		b.ingest(t, "/v1/events/batch", batch(fmt.Sprint("customer-", i%4), 12))
	}
	ids := func(path string) (ids []string) {
		for path != "" {
			a := b.send(t, "GET", path, "")
			require.Equal(t, 200, a.status, a.body)
			for _, row := range readCSV(t, a.body)[1:] {
				ids = append(ids, row[0])
			}
			path = a.next()
		}
		return ids
	}
	before := ids("/v1/events/export?format=csv&" + january)
	require.Len(t, before, 800)
	ctx, stop := context.WithCancel(t.Context())
	var arriving errgroup.Group
	arriving.Go(func() error {
		for i := 0; ctx.Err() == nil; i++ {
			b.ingest(t, "/v1/events/batch", batch(fmt.Sprint("customer-", i%4), i%24))
		}
		return nil
	})
	seen := make(map[string]int)
	for _, id := range ids("/v1/events/export?format=csv&page_size=150&" + january) {
		seen[id]++
	}
	stop()
	require.NoError(t, arriving.Wait())
	for _, id := range before {
		require.Equal(t, 1, seen[id], id)
	}
	for id, times := range seen {
		require.Equal(t, 1, times, id)
	}
}

func TestEmptyExportHasJSONEnvelopeOrCSVHeader(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	require.JSONEq(t, `{"data":[],"has_more":false,"next_page_token":null}`, b.send(t, "GET", "/v1/usage/export?customer=acme", "").body)
	require.Equal(t, "id,event_type,customer_id,timestamp,value,idempotency_key,properties\n",
		b.send(t, "GET", "/v1/usage/export?customer=acme&format=csv", "").body)
}

func TestExportCoversLastThirtyDaysByDefault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ingest(t, "/v1/events/batch", fmt.Sprintf(`{"events":[
		{"event_type":"old","customer_id":"acme","timestamp":%q},{"event_type":"new","customer_id":"acme","timestamp":%q},{"event_type":"now","customer_id":"acme"}
	]}`, b.now().UTC().Add(-31*24*time.Hour).Format(time.RFC3339), b.now().UTC().Add(-29*24*time.Hour).Format(time.RFC3339)))
	a := b.send(t, "GET", "/v1/usage/export?customer=acme", "")
	require.NotContains(t, a.body, `"old"`)
	require.Contains(t, a.body, `"new"`)
	require.Contains(t, a.body, `"now"`)
}
