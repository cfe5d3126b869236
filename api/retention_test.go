package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

const fiftyDays = 50 * 24 * time.Hour

// eventAt returns an event of acme with this time, and with an idempotency key unless key is empty.
func eventAt(at time.Time, key string) string {
	event := map[string]any{"event_type": "call", "customer_id": "acme", "timestamp": at.Format(time.RFC3339Nano)}
	if key != "" {
		event["idempotency_key"] = key
	}
	text, _ := json.Marshal(event)
	return string(text)
}

func TestKeyedEventOlderThanRetentionIsRejected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dbtest.Meter(t, b.store, b.tenant.ID, "calls", "call")
	r := b.replica(t, func(d *api.Deps) { d.Retention = metering.Retention(fiftyDays) })
	tooOld, justIn := b.now().Add(time.Hour-time.Second-fiftyDays), b.now().Add(time.Hour+time.Minute-fiftyDays)

	p := r.send(t, "POST", "/v1/events", eventAt(tooOld, "k")).problem(t, 422, "invalid")
	require.Equal(t, "body.timestamp", p.Errors[0].Location)
	require.Equal(t, 200, r.send(t, "POST", "/v1/events", eventAt(tooOld, "")).status, "there is nothing to repeat")
	require.Equal(t, 200, r.send(t, "POST", "/v1/events", eventAt(justIn, "k")).status)
	require.Equal(t, 200, b.send(t, "POST", "/v1/events", eventAt(tooOld, "for ever")).status, "where keys are known for ever")
	a := r.send(t, "POST", "/v1/events/batch", `{"events":[`+eventAt(justIn, "k")+`,`+eventAt(tooOld, "l")+`]}`)
	require.JSONEq(t, `{"accepted":1,"rejected":1,"duplicates":1,"conflicts":0,
		"warnings":["events[1] is rejected: timestamp must not be more than 1199 hours in the past for an event with an idempotency_key"],
		"errors":[{"index":1,"code":"timestamp_too_old","message":"timestamp must not be more than 1199 hours in the past for an event with an idempotency_key"}]}`, a.body)
}

func TestRequestsThatNeedDroppedEventsAreRefused(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	b := setupAt(t, store) // a replica without the retention setting
	dbtest.Meter(t, store, b.tenant.ID, "calls", "call")
	noon := func(days int) time.Time {
		return b.now().UTC().Truncate(24*time.Hour).Add(12*time.Hour+7*time.Minute).AddDate(0, 0, -days)
	}
	for _, event := range []string{eventAt(noon(100), "old"), eventAt(noon(3), "young")} {
		require.Equal(t, 200, b.send(t, "POST", "/v1/events", event).status)
	}
	dropped, err := store.Maintenance.Retain(t.Context(), b.now().Add(-fiftyDays), b.now())
	require.NoError(t, err)
	require.Equal(t, 1, dropped)

	b.send(t, "POST", "/v1/events", eventAt(noon(100), "old")).problem(t, 422, "invalid")
	a := b.send(t, "POST", "/v1/events/batch", `{"events":[`+eventAt(noon(100), "old")+`,`+eventAt(noon(3), "young")+`]}`)
	var result struct{ Accepted, Rejected, Duplicates int }
	require.NoError(t, json.Unmarshal([]byte(a.body), &result))
	require.Equal(t, 1, result.Accepted)
	require.Equal(t, 1, result.Rejected)
	require.Equal(t, 1, result.Duplicates)

	span := func(start time.Time) string {
		return "?customer=acme&start=" + url.QueryEscape(start.Format(time.RFC3339))
	}
	end := "&end=" + url.QueryEscape(b.now().UTC().Truncate(24*time.Hour).Format(time.RFC3339))
	require.JSONEq(t, `{"total":2}`, b.send(t, "GET", "/v1/usage/total"+span(noon(100).Truncate(time.Hour))+end, "").body)
	for path, place := range map[string]string{
		"/v1/usage/total" + span(noon(100)) + end:            "query.start",
		"/v1/usage/summary" + span(noon(100)) + end:          "query.start",
		"/v1/usage" + span(noon(100)) + end + "&meter=calls": "query.start",
		"/v1/usage/total" + span(noon(100).Truncate(time.Hour)) + "&end=" + url.QueryEscape(noon(90).Format(time.RFC3339)): "query.end",
		"/v1/usage/breakdown?meter=calls&start=" + url.QueryEscape(noon(100).Format(time.RFC3339)) + end:                   "query.start",
		"/v1/usage/export" + span(noon(100).Truncate(time.Hour)) + end:                                                     "query.start",
	} {
		require.Equal(t, place, b.send(t, "GET", path, "").problem(t, 422, "invalid").Errors[0].Location, path)
	}
	preview := fmt.Sprintf(`{"event_type":"call","start":%q,"end":%q}`, noon(100).Format(time.RFC3339), noon(90).Format(time.RFC3339))
	require.Equal(t, "body.start", b.send(t, "POST", "/v1/meters/preview", preview).problem(t, 422, "invalid").Errors[0].Location)
	require.EqualValues(t, 1, b.previewMeter(t, "/v1/meters/preview", `{"event_type":"call"}`).EventsRead)
	var page client.EventPage
	for token, pages := "", 1; pages == 1 || page.HasMore; pages++ {
		require.LessOrEqual(t, pages, 2, "a key is searched for in all that are kept")
		a := b.send(t, "GET", "/v1/events?idempotency_key=young&page_size=1"+token, "")
		require.Equal(t, 200, a.status, a.body)
		require.NoError(t, json.Unmarshal([]byte(a.body), &page))
		require.Len(t, page.Data, 2-pages)
		if page.HasMore {
			token = "&page_token=" + *page.NextPageToken
		}
	}
	export := b.send(t, "GET", "/v1/usage/export?customer=acme", "")
	require.Equal(t, 200, export.status)

	var made, read struct {
		CountedFrom *time.Time `json:"counted_from"`
	}
	require.NoError(t, json.Unmarshal([]byte(b.send(t, "GET", "/v1/meters/calls", "").body), &read))
	require.Nil(t, read.CountedFrom)
	require.NoError(t, json.Unmarshal([]byte(b.send(t, "POST", "/v1/meters", `{"slug":"later","event_type":"call"}`).body), &made))
	require.NotNil(t, made.CountedFrom)
	require.True(t, made.CountedFrom.After(noon(100)) && made.CountedFrom.Before(noon(49)))
}
