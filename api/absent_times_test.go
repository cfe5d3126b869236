package api_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const firstInstant = "0001-01-01T00:00:00Z" // Go's zero Time

func TestFirstInstantAsParameterIsNotTreatedAsOmitted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.at(t, b.now().AddDate(0, 0, -62).UTC().Format(time.RFC3339), "a", "3")
	b.at(t, b.now().UTC().Format(time.RFC3339), "a", "12")
	query := func(start, end string) string {
		return "customer=acme&" + url.Values{"start": {start}, "end": {end}}.Encode()
	}
	answered := func(path string) string {
		t.Helper()
		a := b.send(t, "GET", path, "")
		require.Equal(t, 200, a.status, a.body)
		return a.body
	}
	tomorrow := b.now().AddDate(0, 0, 1).UTC().Format(time.RFC3339)
	whole := query(firstInstant, tomorrow)
	require.Contains(t, answered("/v1/usage/total?"+whole), `"total":15`)
	require.Contains(t, answered("/v1/usage/total?meter=calls&"+whole), `"total":15`)
	require.Contains(t, answered("/v1/usage/summary?"+whole), `"total_usage":15`)
	require.Contains(t, answered("/v1/usage?meter=calls&"+whole), `"total":15`)
	for _, path := range []string{"/v1/usage/export?", "/v1/events?"} {
		events := answered(path + whole)
		require.Contains(t, events, `"value":3`)
		require.Contains(t, events, `"value":12`)
	}
	require.NotContains(t, answered("/v1/audit-log?start="+firstInstant), `"data":[]`)
	require.Contains(t, answered("/v1/audit-log?end="+firstInstant), `"data":[]`)

	for _, path := range []string{"/v1/usage/total?customer=acme", "/v1/usage/summary?customer=acme", "/v1/usage?meter=calls&customer=acme", "/v1/usage/export?customer=acme", "/v1/events?customer=acme", "/v1/events/counts?granularity=day"} {
		p := b.send(t, "GET", path+"&end="+firstInstant, "").problem(t, 422, "invalid")
		require.Equal(t, "query.end", p.Errors[0].Location, path)
	}
	p := b.send(t, "GET", "/v1/events/counts?start="+firstInstant, "").problem(t, 422, "invalid")
	require.Equal(t, "query.start", p.Errors[0].Location, "92 days are the most")
	b.send(t, "GET", "/v1/billing/explain?customer=acme&meter=calls&at="+firstInstant, "").problem(t, 404, "not_found")
	p = b.send(t, "GET", "/v1/billing/explain?customer=acme&meter=calls&period=per_1&at="+firstInstant, "").problem(t, 422, "invalid")
	require.Equal(t, "query.at", p.Errors[0].Location)
}

func TestExportDefaultRangeIsLastThirtyDaysAndNextHour(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ago := func(d time.Duration) string { return b.now().Add(-d).UTC().Format(time.RFC3339) }
	const window = 30 * 24 * time.Hour
	b.at(t, ago(window+time.Minute), "a", "1")
	b.at(t, ago(window-time.Minute), "a", "2")
	b.at(t, ago(-50*time.Minute), "a", "4")
	export := func(query string) string {
		t.Helper()
		a := b.send(t, "GET", "/v1/usage/export?customer=acme"+query, "")
		require.Equal(t, 200, a.status, a.body)
		return a.body
	}
	values := func(query string) (kept []bool) {
		for _, value := range []int{1, 2, 4} {
			kept = append(kept, strings.Contains(export(query), fmt.Sprintf(`"value":%d,`, value)))
		}
		return kept
	}
	require.Equal(t, []bool{false, true, true}, values(""))
	require.Equal(t, []bool{true, true, false}, values("&end="+ago(time.Hour)))
}
