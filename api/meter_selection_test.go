package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
)

const tokenMeter = `{"slug":"tokens","event_type":"llm","unit":"tokens","value_property":"usage.total",
	"filters":[{"property":"model","operator":"in","values":["small","large"]},{"property":"size","operator":"lt","values":[10.50]},{"property":"cached","operator":"not_exists"}],
	"group_by":["user.team"]}`

func TestAMeterShowsItsValuePropertyFiltersAndUnit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.send(t, "POST", "/v1/meters", tokenMeter)
	require.Equal(t, 201, a.status, a.body)
	const shown = `"unit":"tokens","aggregation":"sum","value_property":"usage.total",` +
		`"filters":[{"property":"model","operator":"in","values":["small","large"]},{"property":"size","operator":"lt","values":[10.5]},{"property":"cached","operator":"not_exists"}],"group_by":["user.team"]`
	for _, body := range []string{a.body, b.send(t, "GET", "/v1/meters/tokens", "").body, b.send(t, "GET", "/v1/meters", "").body} {
		require.Contains(t, body, shown)
	}
	require.Contains(t, b.send(t, "PATCH", "/v1/meters/tokens", `{"unit":"","name":"Tokens"}`).body, strings.Replace(shown, `"unit":"tokens"`, `"unit":""`, 1), "the rest stays")
	b.ingest(t, "/v1/events", `{"event_type":"llm","customer_id":"acme","properties":{"model":"small","size":10,"usage":{"total":"7"}}}`)
	var m client.Meter
	require.NoError(t, json.Unmarshal([]byte(b.send(t, "PATCH", "/v1/meters/tokens", `{"value_property":"","filters":[]}`).body), &m))
	require.Equal(t, []any{"", 0, "backfilling", "usage.total", 3}, []any{m.ValueProperty, len(m.Filters), string(m.Status), m.Current.ValueProperty, len(m.Current.Filters)})
	require.Contains(t, b.send(t, "GET", "/v1/audit-log", "").body, `"value_property":"usage.total"`)
}

func TestErrorOfInvalidMeterNamesItsField(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	for field, location := range map[string]string{
		`"value_property":"a.b.c.d.e.f"`:                                                                           "body.value_property",
		`"value_property":"$a"`:                                                                                    "body.value_property",
		`"value_property":5`:                                                                                       "body.value_property",
		`"unit":"` + strings.Repeat("x", 65) + `"`:                                                                 "body.unit",
		`"filters":[{"property":"a","operator":"eq"}]`:                                                             "body.filters[0].values",
		`"filters":[{"property":"a","operator":"eq","values":[null]}]`:                                             "body.filters[0].values[0]",
		`"filters":[{"property":"a","operator":"eq","values":[[1]]}]`:                                              "body.filters[0].values[0]",
		`"filters":[{"property":"a","operator":"gt","values":["1"]}]`:                                              "body.filters[0].values[0]",
		`"filters":[{"property":"a","operator":"exists"},{"property":"b","operator":"no","values":[]}]`:            "body.filters[1].operator",
		`"filters":[{"operator":"exists"}]`:                                                                        "body.filters[0]",
		`"filters":[{"property":"","operator":"exists"}]`:                                                          "body.filters[0].property",
		`"filters":[{"property":"a.b.c.d.e.f","operator":"exists"}]`:                                               "body.filters[0].property",
		`"filters":[` + strings.TrimSuffix(strings.Repeat(`{"property":"a","operator":"exists"},`, 11), ",") + `]`: "body.filters",
	} {
		for _, r := range []struct{ method, path, body string }{
			{"POST", "/v1/meters", `{"slug":"odd","event_type":"call",` + field + `}`}, {"PATCH", "/v1/meters/calls", `{` + field + `}`},
		} {
			p := b.send(t, r.method, r.path, r.body).problem(t, 422, "invalid")
			require.Equal(t, location, p.Errors[0].Location, "%s: %s", field, p.Errors[0].Message)
		}
	}
}

// TestAnEventThatAMeterCannotCountWarnsOnceForEachMeterAndRule checks the warnings of a batch. The events that the
// meters can count are counted.
func TestAnEventThatAMeterCannotCountWarnsOnceForEachMeterAndRule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sent(t, 201, "POST", "/v1/meters", `{"slug":"tokens","event_type":"llm","value_property":"usage.total","filters":[{"property":"model","operator":"ne","values":["free"]}]}`)
	b.sent(t, 201, "POST", "/v1/meters", `{"slug":"cost","event_type":"llm","value_property":"cost"}`)
	var events []string
	for _, properties := range []string{
		`{"model":"a","usage":{"total":5},"cost":0.25}`, `{"model":"a","cost":"0.10000000000000003"}`, `{"model":"a","usage":{"total":null},"cost":0}`,
		`{"model":"a","usage":{"total":"many"},"cost":1e18}`, `{"model":"free","cost":1}`,
	} {
		events = append(events, `{"event_type":"llm","customer_id":"acme","properties":`+properties+`}`)
	}
	result := b.ingest(t, "/v1/events/batch", `{"events":[`+strings.Join(events, ",")+`]}`)
	require.EqualValues(t, 5, result.Accepted)
	require.ElementsMatch(t, []string{
		`events[1] is stored but not counted by meter "tokens" (value_missing): properties must have "usage.total", the value of meter "tokens"`,
		`events[3] is stored but not counted by meter "tokens" (value_invalid): properties must have a number with an absolute value below 10^18 as "usage.total", the value of meter "tokens"`,
		`events[3] is stored but not counted by meter "cost" (value_invalid): properties must have a number with an absolute value below 10^18 as "cost", the value of meter "cost"`,
	}, result.Warnings)
	require.NoError(t, b.counter.Flush(t.Context()))
	require.Contains(t, b.send(t, "GET", "/v1/events/counts", "").body, `"accepted":5,"duplicates":0,"conflicts":0,"rejected":0,"rejections":[],"uncounted":[{"code":"value_missing","count":2},{"code":"value_invalid","count":1}]`)
	body := b.send(t, "GET", "/v1/usage/summary?customer=acme", "").body
	require.Contains(t, body, `"meter_slug":"tokens","total_usage":5}`, body)
	require.Contains(t, body, `"meter_slug":"cost","total_usage":1.35}`, body)
}

// TestAStrictTenantRejectsAnEventThatAMeterCannotCount checks that a strict tenant rejects such an event before the
// event's idempotency key is used.
func TestAStrictTenantRejectsAnEventThatAMeterCannotCount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sent(t, 201, "POST", "/v1/meters", `{"slug":"tokens","event_type":"llm","value_property":"total"}`)
	stored := `{"event_type":"llm","customer_id":"acme","idempotency_key":"stored","properties":{}}`
	b.ingest(t, "/v1/events", stored)
	b.send(t, "PATCH", "/v1/tenant", `{"strict":true}`)
	event := func(properties string) string {
		return fmt.Sprintf(`{"event_type":"llm","customer_id":"acme","idempotency_key":"k","properties":%s}`, properties)
	}
	require.Equal(t, []api.FieldProblem{{Location: "body.properties", Code: "value_missing", Message: `must have "total", the value of meter "tokens", and the tenant is strict`}},
		b.send(t, "POST", "/v1/events", event(`{}`)).problem(t, 422, "invalid").Errors)
	result := b.ingest(t, "/v1/events/batch", `{"events":[`+event(`{"total":true}`)+`,{"event_type":"llm","customer_id":"acme","properties":{"total":2}}]}`)
	require.Equal(t, []any{int64(1), int64(1), "value_invalid"}, []any{result.Accepted, result.Rejected, result.Errors[0].Code})
	require.EqualValues(t, 1, b.ingest(t, "/v1/events", stored).Duplicates, "a repeat of what is stored")
	corrected := b.ingest(t, "/v1/events", event(`{"total":3}`))
	require.Equal(t, []int64{1, 0}, []int64{corrected.Accepted, corrected.Duplicates}, "the key is free")
	require.Equal(t, `{"total":5}`, b.total(t, "acme"))
}

// TestChangeOfMeterSelectionRequiresConfirmation checks that a change of a meter's selection needs a confirmation,
// although the new charges are unknown until the events are counted.
func TestChangeOfMeterSelectionRequiresConfirmation(t *testing.T) {
	t.Parallel()
	b := priceless(t)
	b.confirmed(t, "PUT", setPrice, someTerms)
	require.Equal(t, "50 USD", b.preview(t))
	for _, change := range []string{`{"value_property":"total"}`, `{"filters":[{"property":"model","operator":"exists"}]}`, `{"filters":[{"property":"model","operator":"exists"}],"aggregation":"count"}`} {
		c := b.unconfirmed(t, "PATCH", "/v1/meters/calls", change)
		require.Equal(t, 2, c.Customers)
		require.Empty(t, c.Changes, "what they come to is not counted yet")
		require.Equal(t, []string{b.meterID(t, "calls")}, c.Uncounted)
		require.Equal(t, "complete", string(b.sent(t, 200, "GET", "/v1/meters/calls", "").Status), "nothing is changed")
	}
	for _, change := range []string{`{"unit":"tokens"}`, `{"value_property":""}`, `{"filters":[]}`, `{"group_by":["model.name"]}`} {
		b.sent(t, 200, "PATCH", "/v1/meters/calls", change)
	}
	require.Equal(t, "backfilling", string(b.sent(t, 200, "GET", "/v1/meters/calls", "").Status))
	require.Equal(t, "total", b.patchConfirmed(t, "/v1/meters/calls", `{"value_property":"total"}`).ValueProperty)
}

// patchConfirmed changes a meter, with a confirmation, and returns the meter.
func (b *bundle) patchConfirmed(t *testing.T, path, body string) (m client.Meter) {
	t.Helper()
	a := b.confirmed(t, "PATCH", path, body)
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &m))
	return m
}
