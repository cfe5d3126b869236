package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// uncounted saves the sampled events, and returns a page of the meter's uncounted events.
func (b *bundle) uncounted(t testing.TB, meter, query string) (list client.ListUncountedEvent) {
	t.Helper()
	require.NoError(t, b.sampler.Flush(t.Context()))
	a := b.send(t, "GET", "/v1/meters/"+meter+"/uncounted-events?"+query, "")
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &list))
	return list
}

var uncountedWarning = regexp.MustCompile(`^events\[0\] is stored but not counted by meter "(\w+)" \((\w+)\): `)

// TestPropertyUncountedEventsEqualTheWarnings compares the uncounted events with the warnings, by meter, rule and
// event. Each event is sent alone. A strict tenant rejects such events and lists none.
func TestPropertyUncountedEventsEqualTheWarnings(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	for name, strict := range map[string]bool{"strict": true, "lenient": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupAt(t, store)
			b.sent(t, 201, "POST", "/v1/meters", `{"slug":"tokens","event_type":"llm","value_property":"usage.total","filters":[{"property":"model","operator":"ne","values":["free"]}]}`)
			b.sent(t, 201, "POST", "/v1/meters", `{"slug":"cost","event_type":"llm","value_property":"cost","filters":[{"property":"model","operator":"exists"}]}`)
			b.send(t, "PATCH", "/v1/tenant", fmt.Sprintf(`{"strict":%t}`, strict))
			customers := 0
			histories.Check(t, func(rt *rapid.T) {
				customers++
				customer := fmt.Sprint("customer-", customers)
				b.ahead.Add(int64(time.Hour)) // starts another hour, because a meter stores a limited number per hour
				b.send(t, "POST", "/v1/customers", `{"external_id":"`+customer+`"}`)
				warned := b.sendMeasured(rt, t, customer, strict)
				listed := map[string]bool{}
				for _, meter := range []string{"tokens", "cost"} {
					for _, e := range b.uncounted(t, meter, "page_size=1000&customer="+customer).Data {
						listed[strings.Join([]string{meter, string(e.Rule), *e.IdempotencyKey}, " ")] = true
					}
				}
				require.Equal(rt, warned, listed)
				require.False(rt, strict && len(listed) > 0, "a strict tenant rejects them")
			})
		})
	}
}

// sendMeasured sends drawn events of a customer. It returns the meter, the rule and the key of each warning that a
// meter does not count an event.
func (b *bundle) sendMeasured(rt *rapid.T, t testing.TB, customer string, strict bool) map[string]bool {
	warned := map[string]bool{}
	for i := range rapid.IntRange(1, 12).Draw(rt, "events") {
		key := fmt.Sprint(customer, "-", i)
		a := b.send(t, "POST", "/v1/events", `{"event_type":"llm","customer_id":"`+customer+`","idempotency_key":"`+key+`","properties":`+drawProperties(rt)+`}`)
		if a.status == 422 {
			require.True(rt, strict, a.body)
			continue
		}
		var result client.IngestResult
		require.NoError(rt, json.Unmarshal([]byte(a.body), &result))
		for _, warning := range result.Warnings {
			if found := uncountedWarning.FindStringSubmatch(warning); found != nil {
				warned[strings.Join([]string{found[1], found[2], key}, " ")] = true
			}
		}
	}
	return warned
}

// drawProperties returns the properties of an event that two meters read, or that a filter
// excludes.
func drawProperties(rt *rapid.T) string {
	values := rapid.SampledFrom([]string{`5`, `0.25`, `"7.5"`, `null`, `"many"`, `""`, `true`, `{}`, `[1]`, `1e17`, `1e18`, `"-1e18"`, `-3`})
	var properties []string
	for _, property := range []struct {
		name    string
		choices []string
	}{
		{"usage", []string{"", `{}`, `{"total":` + values.Draw(rt, "total") + `}`}},
		{"cost", []string{"", values.Draw(rt, "value")}},
		{"model", []string{"", `"free"`, `"large"`}},
	} {
		if value := rapid.SampledFrom(property.choices).Draw(rt, property.name); value != "" {
			properties = append(properties, fmt.Sprintf("%q:%s", property.name, value))
		}
	}
	return "{" + strings.Join(properties, ",") + "}"
}

func TestUncountedEventsAreFilteredAndPaged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sent(t, 201, "POST", "/v1/meters", `{"slug":"tokens","event_type":"llm","value_property":"total"}`)
	b.sent(t, 201, "POST", "/v1/meters", `{"slug":"calls","event_type":"llm","aggregation":"count"}`)
	first := b.now()
	for i, properties := range []string{`{}`, `{"total":"x"}`, `{"total":null}`, `{"total":2}`} {
		b.ingest(t, "/v1/events", fmt.Sprintf(`{"event_type":"llm","customer_id":"c%d","idempotency_key":"k%d","properties":%s}`, i%2, i, properties))
		b.ahead.Add(int64(time.Hour))
	}
	keys := func(query string) (all []string) {
		for token := ""; ; {
			page := b.uncounted(t, "tokens", query+token)
			for _, e := range page.Data {
				all = append(all, *e.IdempotencyKey)
			}
			if !page.HasMore {
				return all
			}
			token = "&page_token=" + url.QueryEscape(*page.NextPageToken)
		}
	}
	second := url.QueryEscape(first.Add(30 * time.Minute).Format(time.RFC3339))
	require.Equal(t, []string{"k2", "k1", "k0"}, keys("page_size=1"), "the latest received first")
	require.Equal(t, []string{"k2", "k0"}, keys("page_size=1&rule=value_missing"))
	require.Equal(t, []string{"k1"}, keys("customer=c1"))
	require.Equal(t, []string{"k2", "k1"}, keys("start="+second))
	require.Equal(t, []string{"k0"}, keys("end="+second))
	require.Empty(t, b.uncounted(t, "calls", "").Data)

	found := b.uncounted(t, "tokens", "rule=value_invalid").Data
	require.Len(t, found, 1)
	require.Equal(t, []any{"x", "c1", "calls"}, []any{found[0].Properties["total"], found[0].CustomerId, found[0].CountedBy[0].MeterSlug})
	require.Contains(t, b.send(t, "GET", "/v1/audit-log", "").body, `"event.list"`)

	b.send(t, "GET", "/v1/meters/none/uncounted-events", "").problem(t, 404, "not_found")
	b.send(t, "GET", "/v1/meters/tokens/uncounted-events?customer=none", "").problem(t, 404, "not_found")
	b.send(t, "GET", "/v1/meters/tokens/uncounted-events?rule=counted", "").problem(t, 422, "invalid")
	b.send(t, "GET", "/v1/meters/tokens/uncounted-events?start=2999-01-01T00:00:00Z", "").problem(t, 422, "invalid")
	stranger := setupAt(t, b.store)
	stranger.send(t, "GET", "/v1/meters/tokens/uncounted-events", "").problem(t, 404, "not_found")
	b.key = b.newKey(t, metering.ScopeReadOnly)
	b.send(t, "GET", "/v1/meters/tokens/uncounted-events", "").problem(t, 403, "forbidden")
}
