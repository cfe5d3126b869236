package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// groupValues are JSON values that are easily confused with one another, or with the syntax around them.
var groupValues = []string{
	`null`, `true`, `false`, `0`, `0.0`, `-0`, `1e2`, `100`, `-1.5`, `123456789012345678901234567890`,
	`""`, `"null"`, `"true"`, `"false"`, `"0"`, `"0.0"`, `"1e2"`, `"100"`, `"1e999"`, `" 0"`, `"\"0\""`, `"\""`, `"\"a\" "`, `"\\u0000"`, `"\"\\u0000\""`, `"\"\\ud800\""`,
	`"a"`, `"a,b"`, `"a&b=c"`, `"+ %2F"`, `"<&>"`, `"é\u2028"`, `"$other"`, `"{\"$other\":true}"`, `"[1,2]"`, `"[1, 2]"`, `"{\"a\":\"<&>\"}"`,
	`[1,2]`, `[1, 2.0]`, `["<&>"]`, `{"a":"<&>"}`, `{"$other":true}`, `["\u2028"]`, `{"b":1,"a":[null,"0"]}`,
}

// drawEvent draws the properties of an event. A property may be absent.
func drawEvent(t *rapid.T, properties []string) string {
	var fields []string
	for _, property := range properties {
		if rapid.IntRange(0, 5).Draw(t, "absent") == 0 {
			continue
		}
		value := rapid.OneOf(rapid.SampledFrom(groupValues), rapid.Map(rapid.StringOf(rapid.RuneFrom([]rune(`"\0e1nulltrue[{,&=+%<>$é 😀`))), func(text string) string {
			quoted, err := json.Marshal(text)
			require.NoError(t, err)
			return string(quoted)
		})).Draw(t, "value")
		name, err := json.Marshal(property)
		require.NoError(t, err)
		fields = append(fields, fmt.Sprintf("%s:%s", name, value))
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// requireFiltersPartition checks that the filter of each group selects its subtotal, and that the subtotals add up
// to the total.
func requireFiltersPartition(t require.TestingT, b *bundle, tb testing.TB, query string) client.UsageResult {
	whole := b.usage(tb, query)
	var sum metering.Decimal
	filters := make(map[string]bool)
	for _, group := range whole.Groups {
		require.False(t, filters[group.Filter], "%s is the filter of two groups", group.Filter)
		filters[group.Filter] = true
		part := b.usage(tb, query+"&"+group.Filter)
		require.Equal(t, group.Subtotal, part.Total, "%v by %s", group.GroupKey, group.Filter)
		require.Len(t, part.Groups, 1)
		require.Equal(t, group.GroupKey, part.Groups[0].GroupKey)
		require.Equal(t, group.Windows, part.Groups[0].Windows)
		sum = sum.Add(metering.MustDecimal(part.Total.String()))
	}
	require.Equal(t, whole.Total.String(), sum.String())
	return whole
}

func TestPropertyFiltersPartitionTheUsage(t *testing.T) {
	t.Parallel()
	properties := []string{"a,b", "p&q=r", "é"}
	shared := setup(t)
	conn := dbtest.Conn(t)
	histories.Check(t, func(rt *rapid.T) {
		b := shared.of(t, dbtest.Tenant(t, shared.store))
		b.meter(t, "calls", "call", properties...)
		select {
		case <-b.temporal.started:
		default:
		}
		// With few groups left under the limit, most groups count in $other.
		full := rapid.Bool().Draw(rt, "full")
		if full {
			_, err := conn.Exec(t.Context(), `
				insert into usage_groups (tenant_id, meter_version_id, group_id, group_key)
				select v.tenant_id, v.id, gen_random_uuid(), jsonb_build_object('a,b', 'used', 'p&q=r', 'elsewhere', 'é', n)
				from meter_versions v, generate_series(1, $2) n
				where v.tenant_id = $1`, b.tenant.ID, metering.MaxGroupsPerMeter-rapid.IntRange(0, 3).Draw(rt, "places"))
			require.NoError(rt, err)
		}
		var events []string
		for i, drawn := range rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return drawEvent(t, properties) }), 1, 12).Draw(rt, "events") {
			events = append(events, fmt.Sprintf(`{"event_type":"call","customer_id":"acme","timestamp":"2026-01-05T10:%02d:00Z","value":%d,"properties":%s}`, 5*i, 1<<i, drawn))
		}
		result := b.ingest(t, "/v1/events/batch", `{"events":[`+strings.Join(events, ",")+`]}`)
		require.EqualValues(rt, len(events), result.Accepted, result.Warnings)

		span := january
		if rapid.Bool().Draw(rt, "part of the hour") {
			span = "start=2026-01-05T10:12:00Z&end=2026-01-05T10:33:00Z"
		}
		span += "&page_size=10000"
		requireFiltersPartition(rt, b, t, span)
		requireFiltersPartition(rt, b, t, span+"&group_by=")
		by := "&group_by=" + url.QueryEscape(rapid.SampledFrom(properties).Draw(rt, "group_by"))
		for _, group := range requireFiltersPartition(rt, b, t, span+by).Groups {
			require.LessOrEqual(rt, len(group.GroupKey), 1)
		}
		whole := requireFiltersPartition(rt, b, t, span+by+"&group_by="+url.QueryEscape(rapid.SampledFrom(properties).Draw(rt, "and by")))

		// If $other has usage, a filter by a value warns that usage of the value may be in $other.
		asked := url.QueryEscape("filter.a,b") + "=" + url.QueryEscape(rapid.SampledFrom(groupValues).Draw(rt, "asked"))
		others := b.usage(t, span+"&filter.%24other=true")
		part := b.usage(t, span+"&"+asked)
		if len(others.Groups) > 0 {
			require.Equal(rt, others.Total, *part.OtherTotal)
			require.NotEmpty(rt, *part.Warnings)
		} else {
			require.Nil(rt, part.OtherTotal)
		}
		if part.Warnings != nil && part.OtherTotal == nil {
			require.Contains(rt, (*part.Warnings)[0], "JSON type")
		}
		require.Nil(rt, whole.OtherTotal)
	})
}

func TestAGroupFilterSelectsOneJSONValue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "p")
	for i, properties := range []string{`{}`, `{"p":null}`, `{"p":0}`, `{"p":"0"}`, `{"p":false}`, `{"p":"false"}`, `{"p":"null"}`, `{"p":["<&>"]}`, `{"p":"large"}`, `{"p":"7"}`} {
		b.ingest(t, "/v1/events", fmt.Sprintf(`{"event_type":"call","customer_id":"acme","timestamp":"2026-01-05T10:15:00Z","value":%d,"properties":%s}`, 1<<i, properties))
	}
	for value, total := range map[string]string{
		`null`: "3", `0`: "4", `-0.0`: "4", `"0"`: "8", `false`: "16", `"false"`: "32", `"null"`: "64", `["<&>"]`: "128", `"[\"<&>\"]"`: "128",
		`large`: "256", `"large"`: "256", `Large`: "0", `"7"`: "512", `7`: "0", `1e99`: "0", `1e999`: "0", `"\u0000"`: "0", `"\ud800"`: "0",
	} {
		result := b.usage(t, january+"&filter.p="+url.QueryEscape(value))
		require.Equal(t, total, result.Total.String(), value)
		require.Nil(t, result.OtherTotal)
		require.Equal(t, slices.Contains([]string{`null`, `"null"`, `0`, `-0.0`, `"0"`, `false`, `"false"`, `7`}, value), result.Warnings != nil, value)
	}
	require.Contains(t, (*b.usage(t, january+"&filter.p=7").Warnings)[0], "in double quotes")
	require.NotNil(t, b.usage(t, january+"&filter.p=large&filter.p=7").Warnings, "although another value matches")
	require.Nil(t, b.usage(t, january+"&filter.p=0&filter.p=%220%22").Warnings, "both types are asked for")
	refused := func(filter string) []api.FieldProblem {
		return b.send(t, "GET", "/v1/usage?meter=calls&customer=acme&"+filter, "").problem(t, 422, "invalid").Errors
	}
	require.Equal(t, []api.FieldProblem{{Location: "query.filter.$other", Message: "must be true, the only value of this group"}}, refused("filter.%24other=false"))
	require.Equal(t, "query.filter.$other", refused("filter.%24other=true&filter.p=0")[0].Location)
	require.Equal(t, "query.filter.p", refused(strings.Repeat("filter.p=0&", 101))[0].Location)
	require.Len(t, b.usage(t, january+strings.Repeat("&filter.p=large", 100)).Groups, 1)
	require.Equal(t, "query.group.p", refused("group.p=0")[0].Location, "the name of earlier versions")
	alternatives := b.usage(t, january+`&filter.p=0&filter.p=%220%22&filter.p=large`)
	require.Equal(t, "268", alternatives.Total.String())
	require.Len(t, alternatives.Groups, 3)
}

func TestAllFiltersTogetherHaveAtMost100Values(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "p", "q")
	b.ingest(t, "/v1/events", hello)
	refused := b.send(t, "GET", "/v1/usage?meter=calls&customer=acme"+strings.Repeat("&filter.p=0", 60)+strings.Repeat("&filter.q=0", 41), "").problem(t, 422, "invalid")
	require.Equal(t, []api.FieldProblem{{Location: "query.filter.q", Message: "must have at most 100 values together with the other filters"}}, refused.Errors)
}

func TestGroupPropertyNameMayContainComma(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "a", "b", "a,b")
	for i, properties := range []string{`{"a":1,"b":1,"a,b":1}`, `{"a":1,"b":2,"a,b":1}`, `{"a":1,"b":2,"a,b":2}`} {
		b.ingest(t, "/v1/events", fmt.Sprintf(`{"event_type":"call","customer_id":"acme","timestamp":"2026-01-05T10:15:00Z","value":%d,"properties":%s}`, 1<<i, properties))
	}
	for query, groups := range map[string]int{"group_by=a,b": 2, "group_by=a%2Cb&group_by=a": 2, "group_by=a&group_by=b": 2, "group_by=b,a": 2, "group_by=a,b&group_by=b": 3, "group_by=a": 1} {
		require.Len(t, b.usage(t, january+"&"+query).Groups, groups, query)
	}
	require.Contains(t, b.usage(t, january+"&group_by=a,b").Groups[0].GroupKey, "a,b")
	require.Equal(t, "3", b.usage(t, january+"&filter.a,b=1").Total.String())
	b.send(t, "GET", "/v1/usage?meter=calls&customer=acme&group_by=a,b,c", "").problem(t, 422, "invalid")
	b.send(t, "GET", "/v1/usage?meter=calls&customer=acme&group_by=&group_by=a", "").problem(t, 422, "invalid")
	b.send(t, "GET", "/v1/usage?meter=calls&meter=calls&customer=acme", "").problem(t, 422, "invalid")
}
