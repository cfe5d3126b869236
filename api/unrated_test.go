package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

// unrated returns a page of the usage without a price.
func (b *bundle) unrated(t testing.TB, query string) (list client.ListUnratedUsage) {
	t.Helper()
	a := b.send(t, "GET", "/v1/billing/unrated"+query, "")
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &list))
	return list
}

// reasonFields returns the JSON fields of a line or a total with the reason.
func reasonFields(reason billing.UnratedReason) string {
	text := reason.Text()
	return fmt.Sprintf(`"reason":%q,"message":%q,"next_step":%q`, reason, text.Message, text.NextStep)
}

// TestUsageBeforeTheFirstBillingPeriodIsWarnedAboutAndListed checks usage before the customer's first billing period.
// Such usage is accepted with one warning per meter, and listed with the charge that is not billed.
func TestUsageBeforeTheFirstBillingPeriodIsWarnedAboutAndListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	month := metering.WindowOf(b.now(), metering.Month, time.UTC)
	early := month.Start.AddDate(0, -2, 0) // closed even if the grace of the previous month is not over
	old := early.Format(time.RFC3339)
	send := func(customer string) []string {
		event := `{"event_type":"call","customer_id":"` + customer + `","value":30,"timestamp":"` + old + `"}`
		return b.ingest(t, "/v1/events/batch", `{"events":[{"event_type":"call","customer_id":"`+customer+`"},`+event+`,`+event+`]}`).Warnings
	}
	require.Empty(t, send("meters-only"), "the tenant only meters")
	require.Empty(t, b.unrated(t, "").Data)

	require.Equal(t, 200, b.confirmed(t, "PUT", "/v1/meters/calls/pricing", `{"base_price":2,"included_units":50,"overage_rate":0.015,"currency":"USD"}`).status)
	warnings := send("acme")
	require.Len(t, warnings, 1)
	require.Equal(t, `events[1] is older than its customer's first billing period: meter "calls" counts it, but it is never billed; GET /v1/billing/unrated lists such usage`, warnings[0])
	require.Empty(t, b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme"}`).Warnings)

	list := b.unrated(t, "?page_size=3")
	require.True(t, list.HasMore)
	found := slices.Concat(list.Data, b.unrated(t, "?page_size=3&page_token="+*list.NextPageToken).Data)
	var lines []string
	for _, l := range found {
		lines = append(lines, strings.Join([]string{l.ExternalId, string(l.Reason), string(l.Period.State), l.Usage.String(), l.Estimate.String(), *l.Currency}, " "))
	}
	require.Equal(t, []string{
		"meters-only before_first_period before 60 2.15 USD", "meters-only no_provider open 1 2 USD",
		"acme before_first_period before 60 2.15 USD", "acme no_provider open 2 2 USD",
	}, lines)
	require.Equal(t, month.Start, found[1].Period.Start.UTC())
	require.Len(t, b.unrated(t, "?months=1").Data, 2, "usage of this month")

	a := b.send(t, "GET", "/v1/billing/unrated/totals", "")
	require.Contains(t, a.body, `{`+reasonFields(billing.BeforeFirstPeriod)+`,"currency":"USD","customers":2,"lines":2,"estimate":4.3}`)
	require.Contains(t, a.body, `{`+reasonFields(billing.NoProvider)+`,"currency":"USD","customers":2,"lines":2,"estimate":4}`)
	require.Empty(t, setupAt(t, b.store).unrated(t, "").Data)

	first := b.listAttention(t, "kind=unrated_usage&page_size=1")
	require.EqualValues(t, 2, first.TotalItems)
	items := slices.Concat(first.Data, b.listAttention(t, "kind=unrated_usage&page_size=1&page_token="+*first.NextPageToken).Data)
	slices.SortFunc(items, func(x, y client.AttentionItem) int { return strings.Compare(x.Id, y.Id) })
	require.Equal(t, []string{"before_first_period/USD", "no_provider/USD"}, []string{items[0].Id, items[1].Id})
	require.Equal(t, []string{"2 customers", "the usage is older than the customer's first billing period", "/v1/billing/unrated", "4.3 USD"},
		[]string{items[0].Reference, items[0].Cause, items[0].Url, items[0].Amounts[0].Amount.String() + " " + items[0].Amounts[0].Currency})
	require.Equal(t, early, items[0].Since.UTC())

	b.key = b.newKey(t, metering.ScopeReadWrite)
	for _, path := range []string{"", "/totals"} {
		b.send(t, "GET", "/v1/billing/unrated"+path, "").problem(t, http.StatusForbidden, "forbidden")
	}
}

// TestUsageWithoutAPriceIsListedWithoutAnEstimate checks that usage of a meter without a price is unrated once
// another meter has a price.
func TestUsageWithoutAPriceIsListedWithoutAnEstimate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.meter(t, "images", "image")
	b.ingest(t, "/v1/events", `{"event_type":"image","customer_id":"acme"}`)
	require.Empty(t, b.unrated(t, "").Data)
	require.Equal(t, 200, b.confirmed(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":1,"currency":"USD"}`).status)
	a := b.send(t, "GET", "/v1/billing/unrated", "")
	require.Contains(t, a.body, reasonFields(billing.NoPrice)+`,"usage":1,"event_count":1,"estimate":null,"currency":null}`)
	require.Contains(t, b.send(t, "GET", "/v1/billing/unrated/totals", "").body, `{`+reasonFields(billing.NoPrice)+`,"currency":null,"customers":1,"lines":1,"estimate":null}`)
	b.confirmed(t, "PUT", "/v1/meters/images/pricing", `{"overage_rate":0,"currency":"USD"}`)
	require.NotContains(t, b.send(t, "GET", "/v1/billing/unrated", "").body, "no_price")
}
