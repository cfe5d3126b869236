package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// ingest sends events and returns the result.
func (b *bundle) ingest(t testing.TB, path, body string) client.IngestResult {
	t.Helper()
	a := b.send(t, "POST", path, body)
	require.Equal(t, 200, a.status, a.body)
	var result client.IngestResult
	require.NoError(t, json.Unmarshal([]byte(a.body), &result))
	return result
}

// total returns the body of the response with the customer's total usage.
func (b *bundle) total(t testing.TB, customer string) string {
	t.Helper()
	a := b.send(t, "GET", "/v1/usage/total?customer="+customer, "")
	require.Equal(t, 200, a.status, a.body)
	return strings.TrimSpace(a.body)
}

// meter creates a meter.
func (b *bundle) meter(t testing.TB, slug, eventType string, groupBy ...string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"slug": slug, "event_type": eventType, "group_by": append([]string{}, groupBy...)})
	require.NoError(t, err)
	a := b.send(t, "POST", "/v1/meters", string(body))
	require.Equal(t, 201, a.status, a.body)
}

// meterID returns the id of the meter with this slug.
func (b *bundle) meterID(t testing.TB, slug string) string {
	t.Helper()
	var shown struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(b.send(t, "GET", "/v1/meters/"+slug, "").body), &shown))
	return shown.ID
}

func TestAcceptedEventIsInTotalImmediately(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	require.JSONEq(t, `{"accepted":1,"rejected":0,"duplicates":0,"conflicts":0,"warnings":[],"errors":[]}`,
		b.send(t, "POST", "/v1/events", `{"event_type":"call","customer_id":"acme"}`).body)
	require.Equal(t, `{"total":1}`, b.total(t, "acme"))
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":0.1}`)
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":0.2,"unknown":"is ignored"}`)
	require.Equal(t, `{"total":1.3}`, b.total(t, "acme"))
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":999999999999999999.999999999999}`)
	require.Equal(t, `{"total":1000000000000000001.299999999999}`, b.total(t, "acme"))
}

func TestEachEventOfBatchIsValidatedSeparately(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	const canary = "CANARY"
	result := b.ingest(t, "/v1/events/batch", `{"ignored":[1,{"a":"b"}],"events":[
		{"event_type":"call","customer_id":"acme","value":2},
		{"event_type":7,"customer_id":"acme"},
		{"event_type":"call","customer_id":"acme","value":"CANARY"},
		null,
		"CANARY",
		{"event_type":"call","customer_id":"acme","timestamp":"CANARY"},
		{"event_type":"call","customer_id":"acme","timestamp":"1999-01-01T00:00:00Z"},
		{"event_type":"call","customer_id":"acme","properties":["CANARY"]},
		{"event_type":"call","customer_id":"acme","idempotency_key":{"CANARY":1}},
		{"event_type":"call","customer_id":"acme","value":1e-13},
		{"event_type":"call","customer_id":"acme","value":3}
	]}`)
	require.Equal(t, 2, int(result.Accepted))
	require.Equal(t, 9, int(result.Rejected))
	var codes []string
	for _, e := range result.Errors {
		codes = append(codes, fmt.Sprintf("%d %s", e.Index, e.Code))
		require.NotContains(t, e.Message, canary)
	}
	require.Equal(t, []string{
		"1 invalid_event_type", "2 invalid_value", "3 invalid_event_type", "4 invalid_event", "5 invalid_timestamp",
		"6 timestamp_too_old", "7 invalid_properties", "8 invalid_idempotency_key", "9 invalid_value",
	}, codes)
	require.Len(t, result.Warnings, 10)
	require.Equal(t, `unknown field "ignored" of the request is ignored`, result.Warnings[9])
	require.Equal(t, `{"total":5}`, b.total(t, "acme"))
}

func TestRepeatedEventIsAcceptedAndNotCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	const event = `{"event_type":"call","customer_id":"acme","value":5,"idempotency_key":"k"}`
	require.Equal(t, 0, int(b.ingest(t, "/v1/events", event).Duplicates))
	again := b.ingest(t, "/v1/events", event)
	require.Equal(t, client.IngestResult{Accepted: 1, Duplicates: 1, Warnings: []string{}, Errors: []client.IngestError{}}, again)
	other := b.ingest(t, "/v1/events/batch", `{"events":[{"event_type":"call","customer_id":"acme","value":6,"idempotency_key":"k"}]}`)
	require.Equal(t, 1, int(other.Duplicates))
	require.Equal(t, 1, int(other.Conflicts))
	require.Len(t, other.Warnings, 1)
	require.Contains(t, other.Warnings[0], "events[0] repeats an idempotency_key with other content")
	require.Equal(t, `{"total":5}`, b.total(t, "acme"))
}

func TestLongGroupKeyProducesWarningAndIsCountedAsOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, 201, b.send(t, "POST", "/v1/meters", `{"slug":"calls","event_type":"call","aggregation":"count","group_by":["model"]}`).status)
	event := func(bytes int) string {
		return `{"event_type":"call","customer_id":"acme","properties":{"model":"` + strings.Repeat("x", bytes) + `"}}`
	}
	least := metering.MaxGroupKeyBytes - len(`{"model":""}`)
	answer := b.ingest(t, "/v1/events/batch", `{"events":[`+event(least)+`,`+event(least+1)+`,`+event(16_000)+`]}`)
	require.Equal(t, []string{
		`events[1] counts in the group $other of meter "calls": its group_by properties exceed 1024 bytes as JSON; send shorter values to keep groups apart`,
	}, answer.Warnings)
	require.Equal(t, `{"total":3}`, b.total(t, "acme"))
	other := b.usage(t, "filter.$other=true")
	require.Equal(t, "2", other.Total.String())
}

// TestANegativeValueOnACountMeterIsWarnedAboutOncePerMeter checks the warning of a negative value on a count
// meter. The event increases the charge that it is meant to correct.
func TestANegativeValueOnACountMeterIsWarnedAboutOncePerMeter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "seconds", "call")
	for _, slug := range []string{"calls", "all-calls"} {
		require.Equal(t, 201, b.send(t, "POST", "/v1/meters", `{"slug":"`+slug+`","event_type":"call","aggregation":"count"}`).status)
	}
	const negative = `{"event_type":"call","customer_id":"acme","value":-1}`
	require.Equal(t, []string{
		`events[1] has a negative value, but meter "calls" counts events: the event adds 1 and corrects nothing`,
		`events[1] has a negative value, but meter "all-calls" counts events: the event adds 1 and corrects nothing`,
	}, b.ingest(t, "/v1/events/batch", `{"events":[{"event_type":"call","customer_id":"acme"},`+negative+`,`+negative+`]}`).Warnings)
	require.Len(t, b.ingest(t, "/v1/events", negative).Warnings, 2)

	b.meter(t, "bytes", "upload")
	require.Empty(t, b.ingest(t, "/v1/events", `{"event_type":"upload","customer_id":"acme","value":-1}`).Warnings, "a sum is corrected by it")
}

func TestANegativeValueThatAMeterIgnoresIsWarnedAbout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	require.Equal(t, 201, b.send(t, "POST", "/v1/meters", `{"slug":"tokens","event_type":"call","value_property":"n"}`).status)
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","properties":{"n":5}}`)
	require.Equal(t, []string{
		`events[0] has a negative value, but meter "tokens" reads the property "n": its value is ignored; to correct the meter, send a negative "n"`,
	}, b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":-1,"properties":{"n":5}}`).Warnings)
	require.Empty(t, b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":0,"properties":{"n":-5}}`).Warnings)
}

// TestATypoInAnEventIsWarnedAbout checks the warnings of unknown fields and missing properties. With a misspelled
// idempotency_key, repeats are counted; with a misspelled property, the event is counted in the wrong group. Only
// the warnings show these errors.
func TestATypoInAnEventIsWarnedAbout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "model", "region")
	b.meter(t, "models", "call", "model")
	require.Equal(t, []string{`unknown field "idempotencyKey" of events[0] is ignored`},
		b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","idempotencyKey":"k","properties":{"model":"a","region":null}}`).Warnings)
	require.Equal(t, []string{
		`events[0] has no property "region", by which a meter of event type "call" groups: it counts in the group null`,
		`events[2] has no property "model", by which a meter of event type "call" groups: it counts in the group null`,
		`unknown field "a" of the request is ignored`,
		`unknown field "customer" of events[1] is ignored`,
		`unknown field "é\x00" of events[3] is ignored`,
	}, b.ingest(t, "/v1/events/batch", `{"a":[{"b":1}],"events":[
		{"event_type":"call","customer_id":"acme","properties":{"model":"a","Region":"eu"}},
		{"event_type":"call","customer_id":"acme","customer":5,"properties":{"model":"a","region":"eu"},"timestamp":7},
		{"event_type":"call","customer_id":"acme","idempotency_key":"k"},
		{"event_type":"call","customer_id":"acme","\u00e9\u0000":{"deep":"}"},"properties":{"model":"a","region":"eu"}, "customer":1},
		{"event_type":"call","customer_id":"acme"}
	]}`).Warnings[1:], "what breaks a rule is named too")
	require.Empty(t, b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","idempotency_key":"k"}`).Warnings, "of a repeat, nothing is counted")
	many := `{"event_type":"other","customer_id":"acme"`
	for i := range 100 {
		many += fmt.Sprintf(`,"%s%d":1`, strings.Repeat("x", 100), i)
	}
	warnings := b.ingest(t, "/v1/events", many+"}").Warnings
	require.Len(t, warnings, 1+20)
	require.Less(t, len(warnings[1]), 120)
}

func TestAnEventTypeWithoutMeterIsStoredAndWarnedAboutOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	result := b.ingest(t, "/v1/events/batch", `{"events":[{"event_type":"x","customer_id":"a"},{"event_type":"x","customer_id":"a"}]}`)
	require.Equal(t, 2, int(result.Accepted))
	require.Len(t, result.Warnings, 1)
	require.Contains(t, result.Warnings[0], `no meter counts event type "x"`)

	b.meter(t, "late", "x")
	require.Equal(t, fmt.Sprintf("backfill-meter/%d/", b.tenant.ID), strings.TrimRight(<-b.temporal.started, "0123456789"))
	a := b.send(t, "GET", "/v1/usage/total?customer=a&meter=late", "")
	a.problem(t, 503, "meter_backfilling")
	require.NotEmpty(t, a.header.Get("Retry-After"))
	for _, path := range []string{"/v1/usage?meter=late&customer=a", "/v1/usage/comparison?meter=late&customer=a", "/v1/billing/explain?meter=late&customer=a"} {
		b.send(t, "GET", path, "").problem(t, 503, "meter_backfilling")
	}
}

// TestBackfillOfOneMeterDoesNotHideOtherMeters checks that only the meter with a running backfill is marked as
// incomplete.
func TestBackfillOfOneMeterDoesNotHideOtherMeters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.pricing(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":2}`)
	b.ingest(t, "/v1/events/batch", `{"events":[{"event_type":"x","customer_id":"a"},{"event_type":"call","customer_id":"a","value":3}]}`)
	b.meter(t, "late", "x")
	b.pricing(t, "PUT", "/v1/meters/late/pricing", `{"base_price":5}`)
	b.ingest(t, "/v1/events", `{"event_type":"x","customer_id":"a"}`)

	require.Equal(t, `{"total":3,"backfilling":["late"]}`, b.total(t, "a"))
	require.Equal(t, `{"total":3}`, b.total(t, "a&meter=calls"))
	var summary []client.SummaryItem
	require.NoError(t, json.Unmarshal([]byte(b.send(t, "GET", "/v1/usage/summary?customer=a", "").body), &summary))
	require.Equal(t, "3", summary[0].TotalUsage.String())
	require.Nil(t, summary[0].Backfilling)
	require.Equal(t, "0", summary[1].TotalUsage.String())
	require.True(t, *summary[1].Backfilling)
	var preview []client.PreviewItem
	require.NoError(t, json.Unmarshal([]byte(b.send(t, "GET", "/v1/billing/preview?customer=a", "").body), &preview))
	require.Equal(t, "6", preview[0].Amount.String())
	require.Nil(t, preview[0].Excluded)
	require.Equal(t, "0 0", preview[1].Usage.String()+" "+preview[1].Amount.String())
	reason := billing.ExclusionReason{Code: billing.ExcludedBackfilling}.Text()
	require.Equal(t, client.Exclusion{Reason: "backfilling", Message: reason.Message, NextStep: reason.NextStep}, *preview[1].Excluded)
	require.Equal(t, 200, b.send(t, "GET", "/v1/billing/revenue", "").status)
}

func TestMeterIsCreatedWhileTemporalIsDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ingest(t, "/v1/events", `{"event_type":"x","customer_id":"a"}`)
	b.temporal.down.Store(true)
	b.meter(t, "late", "x")
}

func TestRejectedSingleEventReturns422(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.send(t, "POST", "/v1/events", `{"event_type":"call","customer_id":"acme","value":"CANARY"}`).problem(t, 422, "invalid")
	require.Equal(t, []api.FieldProblem{{Location: "body.value", Message: "must be a JSON number", Code: "invalid_value"}}, p.Errors)
	p = b.send(t, "POST", "/v1/events", `{"event_type":"call"}`).problem(t, 422, "invalid")
	require.Equal(t, []api.FieldProblem{{Location: "body.customer_id", Message: "is required", Code: "invalid_customer_id"}}, p.Errors)
}

func TestBatchWithInvalidNumberOfEventsStoresNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	const event = `{"event_type":"call","customer_id":"acme"}`
	many := `{"events":[` + strings.Repeat(event+",", 1000) + event + `]}`
	for name, body := range map[string]string{
		"empty": `{"events":[]}`, "absent": `{}`, "null": `{"events":null}`, "object": `{"events":{}}`, "array": `[]`, "1,001": many,
		"empty at last": `{"events":[` + event + `],"events":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			p := b.send(t, "POST", "/v1/events/batch", body).problem(t, 422, "invalid")
			require.Len(t, p.Errors, 1)
		})
	}
	b.send(t, "GET", "/v1/customers/acme", "").problem(t, 404, "not_found")
	full := `{"events":[` + strings.Repeat(event+",", 999) + event + `]}`
	require.Equal(t, 1000, int(b.ingest(t, "/v1/events/batch", full).Accepted))
	require.Equal(t, `{"total":1000}`, b.total(t, "acme"))
}

func TestMalformedJSONErrorShowsOnlyBytePosition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const event = `{"event_type":"call","customer_id":"acme"}`
	for _, path := range []string{"/v1/events", "/v1/events/batch"} {
		for _, body := range []string{
			``, ` `, `CANARY`, `{`, `{"events":[`, `{"events":[` + event, `{"events":[` + event + `]`, `{"events":[` + event + `]}CANARY`,
			`{"events":[` + event + `,CANARY]}`, `{"events":[{"event_type":"CANARY]}`, event + event, `{"CANARY"}`, `{"CANARY":}`,
			`{"events":[` + event + `]}]`, `{"a":"` + "\x00CANARY" + `"}`,
		} {
			a := b.send(t, "POST", path, body)
			if path == "/v1/events" && strings.HasPrefix(body, `{"events":[`+event+`]}`) || a.status == 422 {
				continue // JSON, but not an event
			}
			p := a.problem(t, 400, "malformed")
			require.Contains(t, p.Detail, "byte", body)
			require.NotContains(t, a.body, "CANARY")
		}
	}
	b.send(t, "GET", "/v1/customers/acme", "").problem(t, 404, "not_found")
}

func TestBodyOverSizeLimitReturns413(t *testing.T) {
	t.Parallel()
	b := setup(t)
	big := `{"events":[{"event_type":"` + strings.Repeat("x", 8<<20) + `"}]}`
	b.send(t, "POST", "/v1/events/batch", big).problem(t, 413, "too_large")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/v1/events/batch", io.MultiReader(strings.NewReader(big))) // no Content-Length
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+b.key)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, 413, response.StatusCode)
}

func TestRequestReturns503IfBodyBudgetIsFull(t *testing.T) {
	t.Parallel()
	b := setup(t)
	full := b.replica(t, func(d *api.Deps) { d.BodyBytes = 100 })
	a := full.send(t, "POST", "/v1/events", `{"event_type":"call","customer_id":"acme"}`)
	a.problem(t, 503, "overloaded")
	require.Equal(t, "1", a.header.Get("Retry-After"))
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme"}`)
}

func TestAnotherMediaTypeIs415(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.send(t, "POST", "/v1/events", `event_type=call`, "Content-Type: application/x-www-form-urlencoded").problem(t, 415, "unsupported_media_type")
	b.send(t, "POST", "/v1/meters", `slug=calls`, "Content-Type: application/x-www-form-urlencoded").problem(t, 415, "unsupported_media_type")
}

// TestEventSchemaAndValidationAcceptSameEvents checks that the schema of the document and the hand-written validation
// accept the same events.
func TestEventSchemaAndValidationAcceptSameEvents(t *testing.T) {
	t.Parallel()
	document, _, err := documents()
	require.NoError(t, err)
	var parsed struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	require.NoError(t, json.Unmarshal(document, &parsed))
	schema := new(huma.Schema)
	require.NoError(t, json.Unmarshal(parsed.Components.Schemas["Event"], schema))
	now := time.Now()
	long, longest := strings.Repeat("x", 256), strings.Repeat("x", 255)
	for body, valid := range map[string]bool{
		`{"event_type":"a","customer_id":"b"}`:                                                 true,
		`{"event_type":"a","customer_id":"b","more":1}`:                                        true,
		`{"event_type":"a"}`:                                                                   false,
		`{"customer_id":"b"}`:                                                                  false,
		`{"event_type":"","customer_id":"b"}`:                                                  false,
		`{"event_type":"a","customer_id":""}`:                                                  false,
		`{"event_type":"a","customer_id":"b","idempotency_key":""}`:                            false,
		`{"event_type":"` + long + `","customer_id":"b"}`:                                      false,
		`{"event_type":"` + longest + `","customer_id":"` + longest + `"}`:                     true,
		`{"event_type":"a","customer_id":"` + long + `"}`:                                      false,
		`{"event_type":"a","customer_id":"b","idempotency_key":"` + long + `"}`:                false,
		`{"event_type":1,"customer_id":"b"}`:                                                   false,
		`{"event_type":"a","customer_id":true}`:                                                false,
		`{"event_type":"a","customer_id":"b","value":"1"}`:                                     false,
		`{"event_type":"a","customer_id":"b","value":-1.5}`:                                    true,
		`{"event_type":"a","customer_id":"b","properties":[]}`:                                 false,
		`{"event_type":"a","customer_id":"b","properties":{"a":{"b":[1,null]}}}`:               true,
		`{"event_type":"a","customer_id":"b","timestamp":"yesterday"}`:                         false,
		`{"event_type":"a","customer_id":"b","timestamp":1700000000}`:                          false,
		`{"event_type":"a","customer_id":"b","timestamp":"` + now.Format(time.RFC3339) + `"}`:  true,
		`{"event_type":"a","customer_id":"b","timestamp":"` + now.Format(time.RFC1123Z) + `"}`: false,
	} {
		var sent any
		require.NoError(t, json.Unmarshal([]byte(body), &sent))
		result := new(huma.ValidateResult)
		schema.PrecomputeMessages()
		for _, property := range schema.Properties {
			property.PrecomputeMessages()
		}
		huma.Validate(nil, schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, sent, result)
		require.Equal(t, valid, len(result.Errors) == 0, "schema: %.120s: %v", body, result.Errors)

		var event metering.SentEvent
		accepted := json.Unmarshal([]byte(body), &event) == nil
		if accepted {
			_, rejection := event.Judge(now)
			accepted = rejection == nil
		}
		require.Equal(t, valid, accepted, "code: %.120s", body)
	}
}

func TestEventsAPIIsRateLimitedPerTenant(t *testing.T) {
	t.Parallel()
	b, theirs := setup(t), setup(t)
	_, err := dbtest.Conn(t).Exec(t.Context(), `update tenants set requests_per_minute = 4 where id = $1`, b.tenant.ID)
	require.NoError(t, err)
	reader, s := b.newKey(t, metering.ScopeReadOnly), b.newSigner(t, metering.ScopeIngestOnly)
	batch := `{"events":[` + hello + `]}`
	b.send(t, "GET", "/v1/usage/total?customer=nobody", "").problem(t, 404, "not_found")
	steps := []func() (answer, int){
		func() (answer, int) { return b.send(t, "POST", "/v1/events", hello), 200 },
		func() (answer, int) { return b.send(t, "POST", "/v1/events/batch", batch, s.sign(batch)...), 200 },
		func() (answer, int) { return b.send(t, "POST", "/v1/events", `{`), 400 },
		func() (answer, int) {
			return b.send(t, "POST", "/v1/events", hello, "Authorization: Bearer "+reader), 403
		},
	}
	for i, step := range steps {
		a, status := step()
		require.Equal(t, status, a.status, a.body)
		require.Equal(t, "4", a.header.Get("X-RateLimit-Limit"))
		require.Equal(t, strconv.Itoa(3-i), a.header.Get("X-RateLimit-Remaining"))
	}
	b.ahead.Store(int64(20 * time.Second))
	for _, path := range []string{"/v1/events", "/v1/events/batch"} {
		a := b.send(t, "POST", path, strings.Repeat("x", 8<<20+1))
		p := a.problem(t, 429, "rate_limited") // not 413: the body is not read
		require.Contains(t, p.Detail, "4 requests")
		require.Equal(t, []string{"4"}, a.header.Values("X-RateLimit-Limit"))
		require.Equal(t, []string{"0"}, a.header.Values("X-RateLimit-Remaining"))
		require.Equal(t, "40", a.header.Get("Retry-After"))
	}
	require.Equal(t, 200, theirs.send(t, "POST", "/v1/events", hello).status)
	a := b.send(t, "GET", "/v1/usage/total?customer=acme", "")
	require.Equal(t, 200, a.status, "reading has a limit of its own")
	require.Equal(t, "3000", a.header.Get("X-RateLimit-Limit"))
	require.Equal(t, "2997", a.header.Get("X-RateLimit-Remaining"))
	a = b.send(t, "POST", "/v1/events", hello, "Authorization: Bearer guess")
	require.Equal(t, 401, a.status)
	require.Empty(t, a.header.Get("X-RateLimit-Limit"), "nobody knows whose")

	b.ahead.Store(int64(61 * time.Second))
	require.Equal(t, "3", b.send(t, "POST", "/v1/events", hello).header.Get("X-RateLimit-Remaining"))
}
