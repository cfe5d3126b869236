package main_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/expect"
	"github.com/odometer-metering/odometer/dev/receiver"
)

// send sends an event and returns its result.
func (o owner) send(t testing.TB, e client.Event) client.IngestResult {
	t.Helper()
	a, err := o.IngestEventWithResponse(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, 200, a.StatusCode(), string(a.Body))
	return *a.JSON200
}

// total returns the usage of a customer in the current month, as text.
func (o owner) total(t testing.TB, customer string) string {
	t.Helper()
	a, err := o.GetUsageTotalWithResponse(t.Context(), &client.GetUsageTotalParams{Customer: customer})
	require.NoError(t, err)
	require.Equal(t, 200, a.StatusCode(), string(a.Body))
	requireShape(t, `{"total":"number"}`, a.Body)
	return a.JSON200.Total.String()
}

// meter creates a meter of the event type call.
func (o owner) meter(t testing.TB, groupBy ...string) client.Meter {
	t.Helper()
	a, err := o.CreateMeterWithResponse(t.Context(), nil, client.CreateMeter{Slug: "calls", EventType: "call", GroupBy: &groupBy})
	require.NoError(t, err)
	require.Equal(t, 201, a.StatusCode(), string(a.Body))
	requireShape(t, `{"id":"string","slug":"string","event_type":"string"}`, a.Body)
	return *a.JSON201
}

// events checks the results of single events and of batches.
func events(t *testing.T, r running) {
	o := r.owner(t)
	o.meter(t)
	a, err := o.IngestEventWithResponse(t.Context(), client.Event{EventType: "call", CustomerId: awkward}) // by default, the value is 1 and the time is now
	require.NoError(t, err)
	requireShape(t, `{"accepted":"integer","rejected":"integer"}`, a.Body)
	require.Equal(t, client.IngestResult{Accepted: 1, Warnings: []string{}, Errors: []client.IngestError{}}, *a.JSON200)
	require.Equal(t, "1", o.total(t, awkward))
	found, err := o.GetCustomerWithResponse(t.Context(), awkward) // created by its first event
	require.NoError(t, err)
	require.Equal(t, 200, found.StatusCode())

	unknown := o.send(t, client.Event{EventType: "nobody's", CustomerId: awkward})
	require.EqualValues(t, 1, unknown.Accepted)
	require.Len(t, unknown.Warnings, 1)

	event := client.Event{EventType: "call", CustomerId: "batch", Value: number("2.5")}
	batch := func(n int) *client.IngestEventsResponse {
		b := client.EventBatch{Events: make([]client.Event, n)}
		for i := range b.Events {
			b.Events[i] = event
		}
		a, err := o.IngestEventsWithResponse(t.Context(), b)
		require.NoError(t, err)
		return a
	}
	require.EqualValues(t, 1000, batch(1000).JSON200.Accepted)
	require.Equal(t, 422, batch(1001).StatusCode())
	require.Equal(t, 422, batch(0).StatusCode())
	require.Equal(t, "2500", o.total(t, "batch"))

	mixed, err := o.IngestEventsWithResponse(t.Context(), client.EventBatch{Events: []client.Event{event, {EventType: "call"}}})
	require.NoError(t, err)
	require.EqualValues(t, 1, mixed.JSON200.Accepted)
	require.EqualValues(t, 1, mixed.JSON200.Rejected)
	require.Len(t, mixed.JSON200.Warnings, 1)
}

// repeats checks that an event with the same key counts once on both replicas.
func repeats(t *testing.T, r running) {
	o := r.owner(t)
	o.meter(t)
	e := client.Event{EventType: "call", CustomerId: awkward, Value: number("7"), IdempotencyKey: new(awkward)}
	for i := range 4 {
		result := o.at(t, r.replicas[i%2]).send(t, e)
		require.EqualValues(t, 1, result.Accepted)
		require.Zero(t, result.Rejected)
		require.Empty(t, result.Warnings)
	}
	require.Equal(t, "7", o.total(t, awkward))
}

// batchesAtOnce sends the same keys concurrently from many clients to two replicas.
func batchesAtOnce(t *testing.T, r running) {
	o := r.owner(t)
	o.meter(t)
	const size, clients = 200, 12
	b := client.EventBatch{Events: make([]client.Event, size)}
	for i := range b.Events {
		b.Events[i] = client.Event{EventType: "call", CustomerId: fmt.Sprint("c", i%5), Value: number("0.1"), IdempotencyKey: new(fmt.Sprint("k", i))}
	}
	var group sync.WaitGroup
	for c := range clients {
		replica := o.at(t, r.replicas[c%2])
		group.Go(func() {
			a, err := replica.IngestEventsWithResponse(t.Context(), b)
			if err != nil || a.StatusCode() != 200 || a.JSON200.Accepted != size {
				t.Errorf("batch: %v %s", err, a.Body)
			}
		})
	}
	group.Wait()
	for c := range 5 {
		require.Equal(t, "4", o.total(t, fmt.Sprint("c", c))) // 40 events of 0.1
	}
}

// monthStart returns the start of the current month. By default, usage covers the current month.
func monthStart() time.Time {
	now := time.Now().UTC()
	return time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// usage checks the time series, the summary and the total of grouped usage.
func usage(t *testing.T, r running) {
	o := r.owner(t)
	o.meter(t, "model")
	at := monthStart()
	for _, e := range []struct{ model, value string }{{"a", "1.5"}, {"a", "2"}, {"b", "10"}} {
		o.send(t, client.Event{EventType: "call", CustomerId: awkward, Value: number(json.Number(e.value)), Timestamp: &at, Properties: &map[string]any{"model": e.model}})
	}
	a, err := o.GetUsageWithResponse(t.Context(), &client.GetUsageParams{Meter: "calls", Customer: awkward})
	require.NoError(t, err)
	require.Equal(t, 200, a.StatusCode(), string(a.Body))
	requireShape(t, `{
		"meter": {"id":"string","slug":"string","event_type":"string"}, "customer_id":"string",
		"period": {"start":"time","end":"time"}, "granularity":"string", "total":"number",
		"groups": [{"group_key":"object","subtotal":"number","windows":[{"window_start":"time","window_end":"time","value":"number","is_final":"boolean"}]}]
	}`, a.Body)
	result := a.JSON200
	require.Equal(t, awkward, result.CustomerId)
	require.EqualValues(t, "hour", result.Granularity)
	require.Equal(t, "13.5", result.Total.String())
	subtotals := map[any]string{}
	for _, g := range result.Groups {
		subtotals[g.GroupKey["model"]] = g.Subtotal.String()
		require.Equal(t, at, g.Windows[0].WindowStart)
		require.Equal(t, at.Add(time.Hour), g.Windows[0].WindowEnd)
		require.False(t, g.Windows[0].IsFinal)
	}
	require.Equal(t, map[any]string{"a": "3.5", "b": "10"}, subtotals)

	end := at.AddDate(0, 1, 0)
	summary, err := o.GetUsageSummaryWithResponse(t.Context(), &client.GetUsageSummaryParams{Customer: awkward, Start: &at, End: &end})
	require.NoError(t, err)
	requireShape(t, `[{"meter_id":"string","meter_slug":"string","total_usage":"number"}]`, summary.Body)
	require.Equal(t, "13.5", (*summary.JSON200)[0].TotalUsage.String())
	require.Equal(t, "13.5", o.total(t, awkward))
	missing, err := o.GetUsageWithResponse(t.Context(), &client.GetUsageParams{Meter: "calls"})
	require.NoError(t, err)
	require.Equal(t, 422, missing.StatusCode())
}

// usagePages checks that pages of windows show each window once while events arrive.
func usagePages(t *testing.T, r running) {
	o := r.owner(t)
	o.meter(t)
	start := monthStart().AddDate(0, -1, 0)
	end := start.AddDate(0, 0, 1)
	for hour := range 10 {
		at := start.Add(time.Duration(hour) * time.Hour)
		o.send(t, client.Event{EventType: "call", CustomerId: awkward, Timestamp: &at})
	}
	var token *string
	var seen []time.Time
	for {
		a, err := o.GetUsageWithResponse(t.Context(), &client.GetUsageParams{
			Meter: "calls", Customer: awkward, Start: &start, End: &end, PageSize: new(int64(3)), PageToken: token,
		})
		require.NoError(t, err)
		require.Equal(t, 200, a.StatusCode(), string(a.Body))
		for _, w := range a.JSON200.Groups[0].Windows {
			seen = append(seen, w.WindowStart)
		}
		if token = a.JSON200.NextPageToken; token == nil {
			break
		}
		late := start.Add(time.Minute) // in a window that was already read
		o.send(t, client.Event{EventType: "call", CustomerId: awkward, Timestamp: &late})
	}
	require.Len(t, seen, 10)
	for i, at := range seen {
		require.Equal(t, start.Add(time.Duration(i)*time.Hour), at)
	}
}

// comparison checks the comparison of the current month with the previous month.
func comparison(t *testing.T, r running) {
	o := r.owner(t)
	o.meter(t)
	current := monthStart()
	previous := current.Add(-time.Hour)
	for at, value := range map[time.Time]json.Number{current: "1", previous: "3"} {
		o.send(t, client.Event{EventType: "call", CustomerId: awkward, Value: number(value), Timestamp: &at})
	}
	a, err := o.GetUsageComparisonWithResponse(t.Context(), &client.GetUsageComparisonParams{Customer: awkward, Meter: "calls"})
	require.NoError(t, err)
	requireShape(t, `{"current_total":"number","previous_total":"number","delta":"number","percent_change":"number"}`, a.Body)
	require.Equal(t, client.Comparison{CurrentTotal: "1", PreviousTotal: "3", Delta: "-2", PercentChange: "-66.67"}, *a.JSON200)
}

// digits reads the same number in every answer that can contain it.
func digits(t *testing.T, r running) {
	o, ctx := r.owner(t), t.Context()
	o.meter(t)
	o.send(t, client.Event{EventType: "call", CustomerId: awkward, Value: number(precise)})
	require.Equal(t, precise, o.total(t, awkward))
	u, err := o.GetUsageWithResponse(ctx, &client.GetUsageParams{Customer: awkward, Meter: "calls"})
	require.NoError(t, err)
	s, err := o.GetUsageSummaryWithResponse(ctx, &client.GetUsageSummaryParams{Customer: awkward})
	require.NoError(t, err)
	c, err := o.GetUsageComparisonWithResponse(ctx, &client.GetUsageComparisonParams{Customer: awkward, Meter: "calls"})
	require.NoError(t, err)
	p, err := o.PreviewBillingWithResponse(ctx, &client.PreviewBillingParams{Customer: awkward})
	require.NoError(t, err)
	e, err := o.ExportUsageWithResponse(ctx, &client.ExportUsageParams{Customer: awkward})
	require.NoError(t, err)
	for place, n := range map[string]json.Number{
		"total": u.JSON200.Total, "subtotal": u.JSON200.Groups[0].Subtotal, "window": u.JSON200.Groups[0].Windows[0].Value,
		"summary": (*s.JSON200)[0].TotalUsage, "comparison": c.JSON200.CurrentTotal, "delta": c.JSON200.Delta,
		"preview": (*p.JSON200)[0].Usage, "export": e.JSON200.Data[0].Value,
	} {
		require.Equal(t, json.Number(precise), n, place)
	}
	rows := o.csv(t, awkward, nil)
	require.Equal(t, precise, rows[1][4])
}

const (
	exported    = `{"id":"string","event_type":"string","customer_id":"string","timestamp":"time","value":"number","idempotency_key":"string?","properties":"object"}`
	exportShape = `{"data":[` + exported + `],"has_more":"boolean","next_page_token":"string?"}`
)

// exportJSON checks the export of a customer's events as JSON, and its default range of 30 days.
func exportJSON(t *testing.T, r running) {
	o := r.owner(t)
	recent, old := time.Now().UTC().Add(-29*24*time.Hour).Truncate(time.Microsecond), time.Now().UTC().Add(-31*24*time.Hour)
	o.send(t, client.Event{EventType: "call", CustomerId: awkward, Timestamp: &recent, IdempotencyKey: new("k"), Properties: &map[string]any{"n": 1.0}})
	o.send(t, client.Event{EventType: "call", CustomerId: awkward, Timestamp: &old})
	o.send(t, client.Event{EventType: "call", CustomerId: awkward})
	a, err := o.ExportUsageWithResponse(t.Context(), &client.ExportUsageParams{Customer: awkward})
	require.NoError(t, err)
	requireShape(t, exportShape, a.Body)
	require.Len(t, a.JSON200.Data, 2) // of the last 30 days
	require.Equal(t, recent, a.JSON200.Data[0].Timestamp)
	require.Equal(t, map[string]any{"n": 1.0}, a.JSON200.Data[0].Properties)

	start := time.Now().AddDate(0, 0, -62)
	var token *string
	seen := map[string]bool{}
	for {
		a, err := o.ExportUsageWithResponse(t.Context(), &client.ExportUsageParams{Customer: awkward, Start: &start, PageSize: new(int64(1)), PageToken: token})
		require.NoError(t, err)
		require.Equal(t, 200, a.StatusCode(), string(a.Body))
		require.Len(t, a.JSON200.Data, 1)
		require.Equal(t, awkward, a.JSON200.Data[0].CustomerId)
		seen[a.JSON200.Data[0].Id] = true
		if token = a.JSON200.NextPageToken; token == nil {
			break
		}
	}
	require.Len(t, seen, 3)
}

// csv exports a customer's usage as CSV and returns the rows.
func (o owner) csv(t testing.TB, customer string, check func(*http.Response)) [][]string {
	t.Helper()
	format := client.ExportUsageParamsFormat("csv")
	a, err := o.ExportUsageWithResponse(t.Context(), &client.ExportUsageParams{Customer: customer, Format: &format})
	require.NoError(t, err)
	require.Equal(t, 200, a.StatusCode(), string(a.Body))
	if check != nil {
		check(a.HTTPResponse)
	}
	rows, err := csv.NewReader(bytes.NewReader(a.Body)).ReadAll()
	require.NoError(t, err)
	return rows
}

// exportCSV checks the export of a customer's events as CSV.
func exportCSV(t *testing.T, r running) {
	o := r.owner(t)
	at := time.Now().UTC().Truncate(time.Microsecond)
	o.send(t, client.Event{EventType: "call", CustomerId: awkward, Timestamp: &at, Value: number("-2.5"), IdempotencyKey: new("=1+1"), Properties: &map[string]any{"q": `"a",b`}})
	rows := o.csv(t, awkward, func(response *http.Response) {
		require.Regexp(t, `^text/csv\b`, response.Header.Get("Content-Type"))
		require.Regexp(t, `^attachment; filename=`, response.Header.Get("Content-Disposition"))
	})
	require.Equal(t, []string{"id", "event_type", "customer_id", "timestamp", "value", "idempotency_key", "properties"}, rows[0])
	require.Len(t, rows, 2)
	require.Equal(t, []string{"call", awkward, at.Format(time.RFC3339Nano), "-2.5", "'=1+1"}, rows[1][1:6])
	require.JSONEq(t, `{"q":"\"a\",b"}`, rows[1][6])
}

// price sets the price of the meter calls.
func (o owner) price(t testing.TB, base, included, rate json.Number) {
	t.Helper()
	a, err := o.SetPricingWithResponse(t.Context(), "calls", client.SetPricing{BasePrice: &base, IncludedUnits: &included, OverageRate: &rate})
	require.NoError(t, err)
	require.Equal(t, 200, a.StatusCode(), string(a.Body))
}

// pricing checks that the preview of a bill charges the base price and the units beyond the included ones.
func pricing(t *testing.T, r running) {
	o := r.owner(t)
	made := o.meter(t)
	o.price(t, "10", "100", "0.5")
	for usage, amount := range map[json.Number]string{"100": "10", "40": "10", "120.5": "20.25"} {
		customer := awkward + usage.String()
		o.send(t, client.Event{EventType: "call", CustomerId: customer, Value: number(usage)})
		a, err := o.PreviewBillingWithResponse(t.Context(), &client.PreviewBillingParams{Customer: customer})
		require.NoError(t, err)
		requireShape(t, `[{"meter_slug":"string","meter_id":"string","usage":"number","unit_price":"number","amount":"number"}]`, a.Body)
		require.Len(t, *a.JSON200, 1)
		item := (*a.JSON200)[0]
		require.Equal(t, json.Number(amount), (*item.Steps)[len(*item.Steps)-2].Amount, "before it is rounded")
		item.Steps = nil
		require.Equal(t, client.PreviewItem{MeterSlug: "calls", MeterId: made.Id, Usage: usage, UnitPrice: "0.5", Currency: "USD", Amount: json.Number(amount), PriceSource: new(client.PreviewItemPriceSourceMeter)}, item)
	}
	_, text := callUntilAnswered(t, "GET", o.url+"/v1/meters/calls/pricing", o.key, "")
	requireShape(t, `{"versions":[{"base_price":"number","included_units":"number","overage_rate":"number"}]}`, []byte(text))
}

// billing checks that a sync without a provider is refused, and that a sync sends a signed statement to a webhook.
func billing(t *testing.T, r running) {
	o := r.owner(t)
	o.meter(t)
	o.price(t, "1", "0", "2")
	o.send(t, client.Event{EventType: "call", CustomerId: awkward, Value: number("3")})
	refused, err := o.SyncBillingWithResponse(t.Context(), client.SyncBilling{CustomerExternalId: awkward})
	require.NoError(t, err)
	require.Equal(t, 409, refused.StatusCode(), string(refused.Body)) // there is no provider

	hook, secret := newReceiver(t)
	saved, err := o.SaveBillingProviderWithResponse(t.Context(), client.SaveProvider{Type: "webhook", Url: &hook.URL, Secret: new(secret)})
	require.NoError(t, err)
	require.Equal(t, 200, saved.StatusCode(), string(saved.Body))
	require.NotContains(t, string(saved.Body), secret)

	var synced *client.SyncBillingResponse
	dbtest.Eventually(t, func() error { // the API waits only 25 seconds for a sync to end
		synced, err = o.SyncBillingWithResponse(t.Context(), client.SyncBilling{CustomerExternalId: awkward})
		return expect.Status("sync", synced, err, http.StatusOK)
	})
	require.EqualValues(t, "succeeded", synced.JSON200.Status, string(synced.Body))
	_, text := call(t, "GET", hook.URL+"/received", "", "")
	var received []receiver.Delivery
	require.NoError(t, json.Unmarshal([]byte(text), &received))
	last := received[len(received)-1]
	require.True(t, last.SignatureValid)
	requireShape(t, `{"data":{"tenant_id":"string","customer_external_id":"string","period":{"start":"time","end":"time"},"sequence":"integer",
		"meters":[{"meter_id":"string","meter_slug":"string","usage":"number","unit_price":"number","amount":"number"}]}}`, []byte(last.Body))
	require.Contains(t, last.Body, `"customer_external_id":"`+awkward+`"`)
	require.Contains(t, last.Body, `"amount":7`)
}
