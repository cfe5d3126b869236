package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// previewMeter returns the preview of a new or a changed meter.
func (b *bundle) previewMeter(t testing.TB, path, body string) (p client.MeterPreview) {
	t.Helper()
	a := b.send(t, "POST", path, body)
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	return p
}

func TestAPreviewOfAMeterSavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, properties := range []string{`{"tokens":"2.5","model":"a"}`, `{"tokens":7,"model":"free"}`, `{"model":"a"}`} {
		b.ingest(t, "/v1/events", `{"event_type":"llm","customer_id":"acme","properties":`+properties+`}`)
	}
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme"}`)
	const definition = `"event_type":"llm","value_property":"tokens","filters":[{"property":"model","operator":"ne","values":["free"]}],"group_by":["model"]`
	a := b.send(t, "POST", "/v1/meters/preview", `{`+definition+`}`)
	require.Equal(t, 200, a.status, a.body)
	require.NotContains(t, a.body, "current_value")
	require.Contains(t, a.body, `"uncounted":[{"code":"filtered_out","count":1},{"code":"value_missing","count":1}]`)
	require.Contains(t, a.body, `"customers":[{"customer_id":"acme","events_read":3,"counted":1,"value":2.5}],"other_customers":0`)
	require.Contains(t, a.body, `"rule":"value_missing","property":"tokens"`)
	require.Contains(t, a.body, `"rule":"filtered_out","property":"model"`)
	require.Contains(t, a.body, `"rule":"counted","value":2.5,"group_key":{"model":"a"}`)
	require.Contains(t, b.send(t, "GET", "/v1/meters", "").body, `"data":[]`)
	require.Contains(t, b.send(t, "GET", "/v1/audit-log", "").body, `"action":"event.list"`)

	start := b.now().Add(-time.Hour).UTC().Format(time.RFC3339Nano)
	inRange := b.previewMeter(t, "/v1/meters/preview", `{"aggregation":"count",`+definition+`,"start":"`+start+`"}`)
	require.Equal(t, "3 1 1 "+start, fmt.Sprint(inRange.EventsRead, " ", inRange.Counted, " ", inRange.Value, " ", inRange.Period.Start.Format(time.RFC3339Nano)))
}

func TestAPreviewOfAChangedMeterKeepsOmittedFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sent(t, 201, "POST", "/v1/meters", `{"slug":"tokens","event_type":"llm","value_property":"tokens","group_by":["model"]}`)
	b.ingest(t, "/v1/events", `{"event_type":"llm","customer_id":"acme","value":5,"properties":{"tokens":2}}`)
	b.ingest(t, "/v1/events", `{"event_type":"llm","customer_id":"other","properties":{"tokens":3}}`)
	p := b.previewMeter(t, "/v1/meters/tokens/preview", `{"aggregation":"count","name":"Tokens"}`)
	require.Equal(t, "2 5", fmt.Sprint(p.Value, " ", p.CurrentValue))
	require.Equal(t, []string{"other", "acme"}, []string{p.Customers[0].CustomerId, p.Customers[1].CustomerId})
	require.JSONEq(t, `{"model":null}`, toJSON(t, p.Sample[0].GroupKey))
	p = b.previewMeter(t, "/v1/meters/tokens/preview", `{"value_property":""}`)
	require.Equal(t, "6 5", fmt.Sprint(p.Value, " ", p.CurrentValue))
	require.Contains(t, b.send(t, "GET", "/v1/meters/tokens", "").body, `"value_property":"tokens"`)
}

// toJSON encodes a value as JSON.
func toJSON(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

func TestMeterPreviewWithoutEventsIsEmpty(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	for _, span := range []string{"", `,"start":"2026-01-01T00:00:00Z","end":"2026-01-02T00:00:00Z"`} {
		p := b.previewMeter(t, "/v1/meters/preview", `{"event_type":"unknown"`+span+`}`)
		require.Equal(t, "0 0 0 0 0 0\n", fmt.Sprintln(p.EventsRead, p.Counted, p.Value, len(p.Uncounted), len(p.Customers), len(p.Sample)))
	}
	require.Equal(t, "0", b.previewMeter(t, "/v1/meters/calls/preview", `{}`).CurrentValue.String())
	b.send(t, "POST", "/v1/meters/unknown/preview", `{}`).problem(t, 404, "not_found")
}

// TestMeterPreviewReadsOnlyItsTenant checks that a preview reads no events and no meter of another tenant.
func TestMeterPreviewReadsOnlyItsTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.ingest(t, "/v1/events", hello)
	other := b.keyOf(t, dbtest.Tenant(t, b.store).ID, metering.ScopeAdmin)
	for _, span := range []string{"", `,"start":"` + b.now().Add(-time.Hour).UTC().Format(time.RFC3339) + `"`} {
		a := b.send(t, "POST", "/v1/meters/preview", `{"event_type":"call"`+span+`}`, other.headers("")...)
		require.Contains(t, a.body, `"events_read":0`)
	}
	b.send(t, "POST", "/v1/meters/calls/preview", `{}`, other.headers("")...).problem(t, 404, "not_found")
}

// TestMeterPreviewRefusesInvalidDefinitions checks that a preview refuses an invalid definition with the
// same errors as a request that saves it.
func TestMeterPreviewRefusesInvalidDefinitions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	for _, field := range []string{
		`"aggregation":"max"`, `"value_property":"a.b.c.d.e.f"`, `"value_property":"$a"`, `"value_property":5`, `"filters":[{"property":"a","operator":"eq"}]`,
		`"filters":[{"property":"a","operator":"gt","values":["1"]}]`, `"filters":[{"operator":"exists"}]`, `"group_by":["a","a"]`, `"group_by":["a","b","c","d","e","f"]`,
		`"event_type":""`, `"event_type":"` + strings.Repeat("x", 256) + `"`, `"event_type":"a\u0000"`, `"unknown":1`,
	} {
		for _, r := range []struct{ saves, previews, method, prefix string }{
			{"/v1/meters", "/v1/meters/preview", "POST", `"event_type":"call"`}, {"/v1/meters/calls", "/v1/meters/calls/preview", "PATCH", `"name":"Calls"`},
		} {
			if strings.HasPrefix(field, `"event_type"`) {
				r.prefix = `"group_by":[]`
			}
			body, slug := r.prefix+","+field, ""
			if r.method == "POST" {
				slug = `"slug":"odd",`
			}
			saved := b.send(t, r.method, r.saves, `{`+slug+body+`}`).problem(t, 422, "invalid")
			previewed := b.send(t, "POST", r.previews, `{`+body+`}`).problem(t, 422, "invalid")
			require.Equal(t, saved.Errors, previewed.Errors, field)
		}
	}
}

func TestTheRangeOfAPreviewIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for span, want := range map[string]string{
		`"start":"2026-01-02T00:00:00Z","end":"2026-01-02T00:00:00Z"`:        "body.end must be after start",
		`"start":"2026-01-01T00:00:00Z","end":"2026-04-03T00:00:00.000001Z"`: "body.start must be at most 92 days before the end",
		`"start":"0001-01-01T00:00:00Z"`:                                     "body.start must be at most 92 days before the end",
		`"start":"yesterday"`:                                                "body.start must be",
	} {
		p := b.send(t, "POST", "/v1/meters/preview", `{"event_type":"call",`+span+`}`).problem(t, 422, "invalid")
		require.Contains(t, p.Errors[0].Location+" "+p.Errors[0].Message, want)
	}
	b.previewMeter(t, "/v1/meters/preview", `{"event_type":"call","start":"2026-01-01T00:00:00Z","end":"2026-04-03T00:00:00Z"}`)
}

// TestLargeMeterPreviewCountsTowardsResponseMemory checks that a large preview takes memory from the tenant's share for
// responses, as a GET does.
func TestLargeMeterPreviewCountsTowardsResponseMemory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var events []string
	for i := range 300 {
		events = append(events, fmt.Sprintf(`{"event_type":"call","customer_id":"%s-%d"}`, strings.Repeat("x", 240), i))
	}
	b.ingest(t, "/v1/events/batch", `{"events":[`+strings.Join(events, ",")+`]}`)
	body := `{"event_type":"call","start":"` + b.now().Add(-time.Hour).UTC().Format(time.RFC3339) + `"}`
	require.Len(t, b.previewMeter(t, "/v1/meters/preview", body).Customers, 300)
	full := b.replica(t, func(d *api.Deps) { d.AnswersBytes = 64 << 10 })
	full.send(t, "POST", "/v1/meters/preview", body).problem(t, 503, "overloaded")
}
