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
)

// at sends one event of type call for each value, all of acme and at one instant.
func (b *bundle) at(t testing.TB, instant, model string, values ...string) {
	t.Helper()
	var events []string
	for _, v := range values {
		events = append(events, fmt.Sprintf(`{"event_type":"call","customer_id":"acme","timestamp":%q,"value":%s,"properties":{"model":%q}}`, instant, v, model))
	}
	result := b.ingest(t, "/v1/events/batch", `{"events":[`+strings.Join(events, ",")+`]}`)
	require.Equal(t, len(values), int(result.Accepted), result.Warnings)
}

// usage returns acme's usage of the meter calls for a query.
func (b *bundle) usage(t testing.TB, query string) client.UsageResult {
	t.Helper()
	a := b.send(t, "GET", "/v1/usage?meter=calls&customer=acme&"+query, "")
	require.Equal(t, 200, a.status, a.body)
	var result client.UsageResult
	require.NoError(t, json.Unmarshal([]byte(a.body), &result))
	return result
}

const january = "start=2026-01-01T00:00:00Z&end=2026-02-01T00:00:00Z"

func TestUsageResponseHasSpecifiedForm(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "model")
	b.at(t, "2026-01-05T10:15:00Z", "a", "1", "2.5")
	b.at(t, "2026-01-05T11:00:00Z", "a", "4")
	b.at(t, "2026-01-05T10:59:59.999999Z", "b", "0.1")
	a := b.send(t, "GET", "/v1/usage?meter=calls&customer=acme&granularity=hour&"+january, "")
	require.Equal(t, 200, a.status, a.body)
	var result map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &result))
	delete(result["meter"].(map[string]any), "id")
	groups := result["groups"].([]any)
	if groups[0].(map[string]any)["group_key"].(map[string]any)["model"] == "b" {
		groups[0], groups[1] = groups[1], groups[0] // groups are ordered by their hash
	}
	normal, err := json.Marshal(result)
	require.NoError(t, err)
	require.JSONEq(t, `{
		"meter": {"slug": "calls", "event_type": "call"},
		"customer_id": "acme",
		"period": {"start": "2026-01-01T00:00:00Z", "end": "2026-02-01T00:00:00Z"},
		"granularity": "hour",
		"groups": [
			{"group_key": {"model": "a"}, "subtotal": 7.5, "filter": "filter.model=a", "windows": [
				{"window_start": "2026-01-05T10:00:00Z", "window_end": "2026-01-05T11:00:00Z", "value": 3.5, "late_value": 0, "is_final": false},
				{"window_start": "2026-01-05T11:00:00Z", "window_end": "2026-01-05T12:00:00Z", "value": 4, "late_value": 0, "is_final": false}]},
			{"group_key": {"model": "b"}, "subtotal": 0.1, "filter": "filter.model=b", "windows": [
				{"window_start": "2026-01-05T10:00:00Z", "window_end": "2026-01-05T11:00:00Z", "value": 0.1, "late_value": 0, "is_final": false}]}
		],
		"total": 7.6, "has_more": false, "next_page_token": null
	}`, string(normal))
}

func TestGroupFilterNarrowsGroupsAndTotal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "model")
	b.at(t, "2026-01-05T10:15:00Z", "a", "1")
	b.at(t, "2026-01-05T10:15:00Z", "b", "2")
	result := b.usage(t, january+"&filter.model=b")
	require.Len(t, result.Groups, 1)
	require.Equal(t, map[string]any{"model": "b"}, result.Groups[0].GroupKey)
	require.Equal(t, "2", result.Total.String())
	require.Empty(t, b.usage(t, january+"&filter.model=nobody").Groups)
	b.send(t, "GET", "/v1/usage?meter=calls&customer=acme&filter.region=eu", "").problem(t, 422, "invalid")
}

func TestUsageIsGroupedOnlyByRequestedProperties(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "model", "region")
	for at, properties := range map[string]string{
		"2026-01-05T10:15:00Z": `{"model":"a","region":"eu"}`, "2026-01-05T10:30:00Z": `{"model":"a","region":"us"}`, "2026-01-12T09:00:00Z": `{"model":"b","region":"us"}`,
	} {
		a := b.send(t, "POST", "/v1/events", fmt.Sprintf(`{"event_type":"call","customer_id":"acme","timestamp":%q,"value":1,"properties":%s}`, at, properties))
		require.Equal(t, 200, a.status, a.body)
	}
	subtotals := func(query string) map[string]string {
		shown := make(map[string]string)
		for _, g := range b.usage(t, january+"&granularity=week&"+query).Groups {
			shown[fmt.Sprint(g.GroupKey)] = fmt.Sprintf("%s in %d", g.Subtotal, len(g.Windows))
		}
		return shown
	}
	require.Len(t, subtotals(""), 3)
	require.Equal(t, map[string]string{"map[model:a]": "2 in 1", "map[model:b]": "1 in 1"}, subtotals("group_by=model"))
	require.Equal(t, map[string]string{"map[region:eu]": "1 in 1", "map[region:us]": "2 in 2"}, subtotals("group_by=region"))
	require.Equal(t, map[string]string{"map[region:us]": "1 in 1"}, subtotals("group_by=region&filter.model=b"))
	require.Equal(t, map[string]string{"map[]": "3 in 2"}, subtotals("group_by="))
	require.Equal(t, subtotals(""), subtotals("group_by=region,model"))
	refused := b.send(t, "GET", "/v1/usage?meter=calls&customer=acme&group_by=model,user", "").problem(t, 422, "invalid")
	require.Equal(t, []api.FieldProblem{{Location: "query.group_by", Message: "must be properties that the meter groups by; available: model, region"}}, refused.Errors)
}

func TestPagesOfWindowsAddUpToWholeResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "model")
	for hour := range 5 {
		b.at(t, fmt.Sprintf("2026-01-05T%02d:00:00Z", hour), "a", "1")
		b.at(t, fmt.Sprintf("2026-01-05T%02d:00:00Z", hour), "b", "10")
	}
	whole := b.usage(t, january)
	seen := make(map[string]int)
	token := ""
	for pages := 0; ; pages++ {
		page := b.usage(t, january+"&page_size=3"+token)
		require.Equal(t, "55", page.Total.String())
		for _, g := range page.Groups {
			for _, w := range g.Windows {
				seen[fmt.Sprint(g.GroupKey, w.WindowStart, w.Value)]++
			}
			require.Contains(t, []string{"5", "50"}, g.Subtotal.String())
		}
		if !page.HasMore {
			require.Equal(t, 3, pages)
			break
		}
		token = "&page_token=" + *page.NextPageToken
	}
	windows := 0
	for _, g := range whole.Groups {
		for _, w := range g.Windows {
			windows++
			require.Equal(t, 1, seen[fmt.Sprint(g.GroupKey, w.WindowStart, w.Value)])
		}
	}
	require.Equal(t, 10, windows)
	require.Len(t, seen, 10)
}

func TestPageTokenIsValidOnlyForItsQuery(t *testing.T) {
	t.Parallel()
	ours, theirs := setup(t), setup(t)
	for _, b := range []*bundle{ours, theirs} {
		b.meter(t, "calls", "call")
		b.at(t, "2026-01-05T10:00:00Z", "a", "1")
		b.at(t, "2026-01-05T11:00:00Z", "a", "1")
	}
	token := url.QueryEscape(*ours.usage(t, january+"&page_size=1").NextPageToken)
	require.Len(t, ours.usage(t, january+"&page_size=7&page_token="+token).Groups, 1)
	altered := "A" + token[1:]
	if token[0] == 'A' {
		altered = "B" + token[1:]
	}
	for name, attempt := range map[string]answer{
		"another query":    ours.send(t, "GET", "/v1/usage?meter=calls&customer=acme&granularity=day&"+january+"&page_token="+token, ""),
		"another path":     ours.send(t, "GET", "/v1/customers?page_token="+token, ""),
		"another tenant":   theirs.send(t, "GET", "/v1/usage?meter=calls&customer=acme&"+january+"&page_size=1&page_token="+token, ""),
		"an altered one":   ours.send(t, "GET", "/v1/usage?meter=calls&customer=acme&"+january+"&page_token="+altered, ""),
		"no token":         ours.send(t, "GET", "/v1/usage?meter=calls&customer=acme&"+january+"&page_token=CANARY", ""),
		"a short one":      ours.send(t, "GET", "/v1/usage?meter=calls&customer=acme&"+january+"&page_token=AAAA", ""),
		"of the customers": ours.send(t, "GET", "/v1/customers?page_token=AAAAAAAAAAAAAAAAAAAAAAAAAAAA", ""),
	} {
		t.Run(name, func(t *testing.T) {
			p := attempt.problem(t, 422, "invalid")
			require.Equal(t, "query.page_token", p.Errors[0].Location)
		})
	}
}

func TestDaysAndMonthsFollowTenantsTimeZone(t *testing.T) {
	t.Parallel()
	b := setup(t, "Asia/Kathmandu") // UTC+05:45
	b.meter(t, "calls", "call")
	b.at(t, "2026-01-31T18:14:59Z", "a", "1")
	b.at(t, "2026-01-31T18:15:00Z", "a", "10")
	days := b.usage(t, "granularity=day&start=2026-01-30T18:15:00Z&end=2026-02-01T18:15:00Z")
	require.Len(t, days.Groups, 1)
	require.Len(t, days.Groups[0].Windows, 2)
	require.Equal(t, "2026-01-31T18:15:00Z", days.Groups[0].Windows[1].WindowStart.Format(time.RFC3339))
	require.Equal(t, "10", days.Groups[0].Windows[1].Value.String())
	months := b.usage(t, "granularity=month&start=2025-12-31T18:15:00Z&end=2026-02-28T18:15:00Z")
	require.Equal(t, "1", months.Groups[0].Windows[0].Value.String())
	require.Equal(t, "10", months.Groups[0].Windows[1].Value.String())
}

func TestARequestChoosesTheTimeZoneOfItsWindows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.at(t, "2026-01-05T14:59:59Z", "a", "1")
	b.at(t, "2026-01-05T15:00:00Z", "a", "10")
	windows := func(query string) (starts []string) {
		for _, w := range b.usage(t, query).Groups[0].Windows {
			starts = append(starts, w.WindowStart.Format(time.RFC3339)+" "+w.Value.String())
		}
		return starts
	}
	require.Equal(t, []string{"2026-01-05T00:00:00Z 11"}, windows(january+"&granularity=day"))
	require.Equal(t, []string{"2026-01-04T15:00:00Z 1", "2026-01-05T15:00:00Z 10"}, windows(january+"&granularity=day&timezone=Asia/Tokyo"))
	require.Equal(t, []string{"2026-01-05T14:00:00Z 1", "2026-01-05T15:00:00Z 10"}, windows(january+"&granularity=hour&timezone=Asia/Tokyo"))
	require.Equal(t, []string{"2026-01-01T00:00:00Z 11"}, windows(january+"&granularity=month&timezone=Europe/Berlin"))
	whole := b.usage(t, "timezone=Asia/Tokyo")
	require.Equal(t, "15:00", whole.Period.Start.UTC().Format("15:04"), "the default range is a month in that time zone")
	refused := b.send(t, "GET", "/v1/usage?meter=calls&customer=acme&timezone=Mars/Olympus", "").problem(t, 422, "invalid")
	require.Equal(t, "query.timezone", refused.Errors[0].Location)
	long := b.send(t, "GET", "/v1/usage?meter=calls&customer=acme&timezone=Asia/Tokyo&start=2020-01-01T00:00:00Z&end=2026-01-01T00:00:00Z", "")
	require.Equal(t, "query.granularity", long.problem(t, 422, "invalid").Errors[0].Location)
}

// TestTimeZoneWithWindowsThatCutHoursIsRefused checks that a time zone is refused if its windows cut hours of the
// tenant's time zone. Usage is counted by these hours.
func TestTimeZoneWithWindowsThatCutHoursIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.at(t, "2026-01-05T18:30:00Z", "a", "10")
	for _, granularity := range []string{"hour", "day", "week", "month"} {
		for _, path := range []string{"/v1/usage?customer=acme&", "/v1/usage/breakdown?"} {
			query := "meter=calls&timezone=Asia/Kolkata&start=2026-01-01T00:00:00Z&end=2026-02-15T00:00:00Z&granularity=" + granularity
			refused := b.send(t, "GET", path+query, "").problem(t, 422, "invalid")
			require.Equal(t, []api.FieldProblem{{
				Location: "query.timezone",
				Message:  "must have windows that start at full hours of the tenant's time zone, UTC; request a time zone that differs from it by whole hours",
			}}, refused.Errors)
		}
	}
	summer := "&granularity=day&timezone=Australia/Lord_Howe&start=2026-01-01T00:00:00Z&end="
	require.Equal(t, "10", b.usage(t, summer+"2026-04-01T00:00:00Z").Total.String(), "eleven hours ahead")
	refused := b.send(t, "GET", "/v1/usage?meter=calls&customer=acme"+summer+"2026-05-01T00:00:00Z", "").problem(t, 422, "invalid")
	require.Equal(t, "query.timezone", refused.Errors[0].Location, "half an hour less since April 4")
}

func TestSummaryHasAnItemPerMeterAndTotalAddsThem(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.meter(t, "idle", "nothing")
	b.send(t, "POST", "/v1/meters", `{"slug":"number","event_type":"call","aggregation":"count"}`)
	b.at(t, b.now().UTC().Format(time.RFC3339), "a", "1.5", "2")
	summary, err := b.client.GetUsageSummaryWithResponse(t.Context(), &client.GetUsageSummaryParams{Customer: "acme"})
	require.NoError(t, err)
	var got []string
	for _, item := range *summary.JSON200 {
		got = append(got, item.MeterSlug+" "+item.TotalUsage.String())
	}
	require.Equal(t, []string{"calls 3.5", "idle 0", "number 2"}, got)
	require.Equal(t, `{"total":5.5,"meters":["calls","number"]}`, b.total(t, "acme"), "it says that it added what may differ in units")
	require.Equal(t, `{"total":2}`, b.total(t, "acme&meter=number"))
	require.Equal(t, `{"total":0}`, b.total(t, "acme&start=2020-01-01T00:00:00Z&end=2020-02-01T00:00:00Z"))
	b.send(t, "GET", "/v1/usage/total?customer=acme&meter=nope", "").problem(t, 404, "not_found")
}

func TestComparisonIsMonthOverMonth(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	now := b.now().UTC()
	thisMonth := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	compare := func() string {
		a := b.send(t, "GET", "/v1/usage/comparison?customer=acme&meter=calls", "")
		require.Equal(t, 200, a.status, a.body)
		return strings.TrimSpace(a.body)
	}
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	require.Equal(t, `{"current_total":0,"previous_total":0,"delta":0,"percent_change":0}`, compare())
	b.at(t, thisMonth.Format(time.RFC3339), "a", "10")
	require.Equal(t, `{"current_total":10,"previous_total":0,"delta":10,"percent_change":100}`, compare())
	b.at(t, thisMonth.Add(-time.Second).Format(time.RFC3339), "a", "30")
	require.Equal(t, `{"current_total":10,"previous_total":30,"delta":-20,"percent_change":-66.67}`, compare())
}

func TestAnEmptyRangeIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	for _, path := range []string{"/v1/usage?meter=calls&", "/v1/usage/summary?", "/v1/usage/total?", "/v1/usage/export?"} {
		for _, span := range []string{
			"start=2026-02-01T00:00:00Z&end=2026-01-01T00:00:00Z", "start=2026-02-01T00:00:00Z&end=2026-02-01T00:00:00Z",
		} {
			p := b.send(t, "GET", path+"customer=acme&"+span, "").problem(t, 422, "invalid")
			require.Equal(t, "query.end", p.Errors[0].Location)
		}
	}
}
