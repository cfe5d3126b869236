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

// breakdown returns a page of the breakdown of the meter calls, and its rows as JSON.
func (b *bundle) breakdown(t testing.TB, query string) (page client.BreakdownResult, lines []string) {
	t.Helper()
	a := b.send(t, "GET", "/v1/usage/breakdown?meter=calls&"+january+query, "")
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &page))
	var raw struct{ Data []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(a.body), &raw))
	for _, row := range raw.Data {
		lines = append(lines, string(row))
	}
	return page, lines
}

// brokenDown returns a tenant with usage of three customers, two of which have a plan.
func brokenDown(t *testing.T) *bundle {
	b := setup(t)
	b.meter(t, "calls", "call", "model", "plan")
	for _, event := range []string{
		`"customer_id":"acme","timestamp":"2026-01-05T10:15:00Z","value":1,"properties":{"model":"large"}`,
		`"customer_id":"acme","timestamp":"2026-01-20T10:15:00Z","value":2.5,"properties":{"model":"small","plan":"free"}`,
		`"customer_id":"beta","timestamp":"2026-01-05T11:00:00Z","value":4,"properties":{"model":7}`,
		`"customer_id":"=cmd()","timestamp":"2026-01-31T23:59:59.999999Z","value":0.1,"properties":{"model":"7"}`,
		`"customer_id":"=cmd()","timestamp":"2026-02-01T00:00:00Z","value":100,"properties":{"model":"large"}`,
	} {
		b.ingest(t, "/v1/events", `{"event_type":"call",`+event+`}`)
	}
	for _, plan := range []string{"basic", "pro"} {
		require.Equal(t, 201, b.send(t, "POST", "/v1/plans", fmt.Sprintf(`{"slug":%q,"name":%q}`, plan, plan)).status)
	}
	b.confirmed(t, "PUT", "/v1/customers/acme/plan", `{"plan":"basic","effective_from":"2025-12-15T00:00:00Z"}`)
	b.confirmed(t, "PUT", "/v1/customers/beta/plan", `{"plan":"pro","effective_from":"2026-01-01T00:00:00Z"}`)
	b.confirmed(t, "PUT", "/v1/customers/acme/plan", `{"plan":"pro","effective_from":"2026-01-10T00:00:00Z"}`) // from February on
	return b
}

func TestABreakdownHasARowForEachCombination(t *testing.T) {
	t.Parallel()
	b := brokenDown(t)
	page, lines := b.breakdown(t, "")
	require.Equal(t, []string{`{"value":7.6}`}, lines)
	require.Equal(t, "7.6", page.Total.String())
	_, lines = b.breakdown(t, "&by=customer")
	require.Equal(t, []string{`{"customer":"beta","value":4}`, `{"customer":"acme","value":3.5}`, `{"customer":"=cmd()","value":0.1}`}, lines)
	_, lines = b.breakdown(t, "&by=plan")
	require.Equal(t, []string{`{"plan":"pro","value":4}`, `{"plan":"basic","value":3.5}`, `{"plan":"","value":0.1}`}, lines)
	_, lines = b.breakdown(t, "&by=customer,model&granularity=week")
	require.ElementsMatch(t, []string{
		`{"customer":"acme","group_key":{"model":"large"},"window_start":"2026-01-05T00:00:00Z","value":1}`,
		`{"customer":"acme","group_key":{"model":"small"},"window_start":"2026-01-19T00:00:00Z","value":2.5}`,
		`{"customer":"beta","group_key":{"model":7},"window_start":"2026-01-05T00:00:00Z","value":4}`,
		`{"customer":"=cmd()","group_key":{"model":"7"},"window_start":"2026-01-26T00:00:00Z","value":0.1}`,
	}, lines)
	_, lines = b.breakdown(t, "&by=customer&granularity=day&timezone=Asia/Tokyo")
	require.Contains(t, lines, `{"customer":"beta","window_start":"2026-01-04T15:00:00Z","value":4}`)
	_, lines = b.breakdown(t, "&by=property.plan&granularity=month")
	require.ElementsMatch(t, []string{
		`{"group_key":{"plan":null},"window_start":"2026-01-01T00:00:00Z","value":5.1}`, `{"group_key":{"plan":"free"},"window_start":"2026-01-01T00:00:00Z","value":2.5}`,
	}, lines)
}

func TestABreakdownWithALimitSumsUpTheOtherRows(t *testing.T) {
	t.Parallel()
	b := brokenDown(t)
	page, lines := b.breakdown(t, "&by=customer&limit=1")
	require.Equal(t, []string{`{"customer":"beta","value":4}`, `{"value":3.6,"other":true}`}, lines)
	require.False(t, page.HasMore)
	page, lines = b.breakdown(t, "&by=customer&limit=2&page_size=1")
	require.Equal(t, []string{`{"customer":"beta","value":4}`}, lines)
	page, lines = b.breakdown(t, "&by=customer&limit=2&page_size=1&page_token="+*page.NextPageToken)
	require.Equal(t, []string{`{"customer":"acme","value":3.5}`, `{"value":0.1,"other":true}`}, lines)
	require.Nil(t, page.NextPageToken)
	_, lines = b.breakdown(t, "&by=customer&limit=3")
	require.Len(t, lines, 3, "there are no others")
	refused := b.send(t, "GET", "/v1/usage/breakdown?meter=calls&by=customer&limit=1&order=key", "").problem(t, 422, "invalid")
	require.Equal(t, "query.order", refused.Errors[0].Location)
}

func TestBreakdownIsFilteredByGroup(t *testing.T) {
	t.Parallel()
	b := brokenDown(t)
	page, lines := b.breakdown(t, "&by=customer&filter.model=large&filter.model=7&limit=1")
	require.Equal(t, []string{`{"customer":"beta","value":4}`, `{"value":1,"other":true}`}, lines)
	require.Equal(t, "5", page.Total.String())
	require.Nil(t, page.OtherTotal)
	page, lines = b.breakdown(t, "&by=model&filter.model=small&filter.plan=free")
	require.Equal(t, []string{`{"group_key":{"model":"small"},"value":2.5}`}, lines)
	require.Empty(t, page.Warnings)
	page, lines = b.breakdown(t, `&filter.model="large"&filter.plan=pro`)
	require.Empty(t, lines)
	require.Equal(t, "0", page.Total.String())
	first := b.send(t, "GET", "/v1/usage/breakdown?meter=calls&by=customer&filter.model=large&format=csv&"+january, "")
	require.Equal(t, [][]string{{"customer", "value"}, {"acme", "1"}}, readCSV(t, first.body))
	refused := b.send(t, "GET", "/v1/usage/breakdown?meter=calls&filter.region=eu", "").problem(t, 422, "invalid")
	require.Equal(t, "query.filter.region", refused.Errors[0].Location)
}

func TestPagesOfABreakdownHaveEachRowOnce(t *testing.T) {
	t.Parallel()
	b := brokenDown(t)
	for _, order := range []string{"value", "key"} {
		query := "&by=customer&by=model&granularity=day&order=" + order
		_, want := b.breakdown(t, query)
		require.Len(t, want, 4)
		var got []string
		for token := ""; ; {
			page, lines := b.breakdown(t, query+"&page_size=1"+token)
			require.Len(t, lines, 1)
			got = append(got, lines...)
			if !page.HasMore {
				break
			}
			token = "&page_token=" + *page.NextPageToken
		}
		require.Equal(t, want, got)
	}
}

func TestABreakdownAsCSV(t *testing.T) {
	t.Parallel()
	b := brokenDown(t)
	path := "/v1/usage/breakdown?meter=calls&by=customer,plan,model,property.plan&format=csv&limit=3&page_size=2&" + january
	first := b.send(t, "GET", path, "")
	require.Equal(t, 200, first.status, first.body)
	require.Equal(t, "text/csv; charset=utf-8", first.header.Get("Content-Type"))
	require.Equal(t, `attachment; filename="usage-breakdown.csv"`, first.header.Get("Content-Disposition"))
	next, ok := strings.CutSuffix(strings.TrimPrefix(first.header.Get("Link"), "<"), `>; rel="next"`)
	require.True(t, ok, first.header)
	second := b.send(t, "GET", next, "")
	require.Equal(t, 200, second.status, second.body)
	require.Empty(t, second.header.Get("Link"))
	require.Equal(t, [][]string{
		{"customer", "plan", "model", "property.plan", "value", "other"},
		{"beta", "pro", "7", "null", "4", "false"},
		{"acme", "basic", "small", "free", "2.5", "false"},
		{"customer", "plan", "model", "property.plan", "value", "other"},
		{"acme", "basic", "large", "null", "1", "false"},
		{"", "", "", "", "0.1", "true"},
	}, append(readCSV(t, first.body), readCSV(t, second.body)...))
	_, lines := b.breakdown(t, "&by=customer")
	require.Contains(t, lines, `{"customer":"=cmd()","value":0.1}`)
	require.Contains(t, b.send(t, "GET", "/v1/usage/breakdown?meter=calls&by=customer,model&format=csv&"+january, "").body, `'=cmd(),"""7""",0.1`)
}

// TestBreakdownWithoutGranularityAcceptsAnyTimeZone checks that any time zone is accepted without a granularity,
// because timezone then decides only the default range.
func TestBreakdownWithoutGranularityAcceptsAnyTimeZone(t *testing.T) {
	t.Parallel()
	b := brokenDown(t)
	_, want := b.breakdown(t, "&by=plan")
	_, got := b.breakdown(t, "&by=plan&timezone=Australia/Lord_Howe")
	require.Equal(t, want, got)
	long := b.send(t, "GET", "/v1/usage/breakdown?meter=calls&timezone=Asia/Kolkata&start=2024-01-01T00:00:00Z&end=2027-01-01T00:00:00Z", "")
	require.Equal(t, 200, long.status, long.body)
	require.Contains(t, long.body, `"data":[{"value":107.6}]`)
	month := b.send(t, "GET", "/v1/usage/breakdown?meter=calls&timezone=Asia/Kolkata", "")
	require.Equal(t, 200, month.status, month.body)
	require.Contains(t, month.body, `T18:30:00Z","end"`, "a month in that time zone")
}

// TestBreakdownDistinguishesPropertiesFromDimensions checks that each column of a CSV has its own name, and that each
// property can be requested.
func TestBreakdownDistinguishesPropertiesFromDimensions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "customer", "property.customer", "value")
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","timestamp":"2026-01-05T10:15:00Z","value":1,"properties":{"customer":"a","property.customer":"b","value":"$other"}}`)
	path := "/v1/usage/breakdown?meter=calls&format=csv&" + january + "&by="
	a := b.send(t, "GET", path+"customer,property.customer,property.property.customer,value", "")
	require.Equal(t, 200, a.status, a.body)
	require.Equal(t, [][]string{
		{"customer", "property.customer", "property.property.customer", "property.value", "value"},
		{"acme", "a", "b", `"$other"`, "1"},
	}, readCSV(t, a.body), "a string $other is in quotes, because $other alone means that the value is unknown")
}

func TestABreakdownRefusesUnknownDimensionsAndTooManyWindows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "model")
	b.ingest(t, "/v1/events", hello)
	refused := b.send(t, "GET", "/v1/usage/breakdown?meter=calls&by=user", "").problem(t, 422, "invalid")
	require.Equal(t, []api.FieldProblem{{Location: "query.by", Message: "must be customer, plan, or properties that the meter groups by; available: model"}}, refused.Errors)
	refused = b.send(t, "GET", "/v1/usage/breakdown?meter=calls&granularity=hour&start=2024-01-01T00:00:00Z&end=2026-01-01T00:00:00Z", "").problem(t, 422, "invalid")
	require.Equal(t, "query.granularity", refused.Errors[0].Location)
	b.send(t, "GET", "/v1/usage/breakdown?meter=none", "").problem(t, 404, "not_found")
}
