package main_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/dev/receiver"
)

// The names and numbers that are hardest to carry unchanged.
const (
	awkward = `a/b ?#%é`
	precise = "123456789012345678.123456789012"
)

// running is two replicas and a worker, known by nothing but their base URLs.
type running struct {
	system   *proc.System
	replicas []string
}

// owner is all that a user of the service is given: a base URL, a tenant's id
// and its admin key.
type owner struct {
	*client.ClientWithResponses
	url, tenant, key string
}

func (r running) owner(t testing.TB) owner {
	t.Helper()
	id, key := r.system.Tenant(t)
	return owner{dial(t, r.replicas[0], key), r.replicas[0], id, key}
}

// at is the same owner at another replica.
func (o owner) at(t testing.TB, url string) owner {
	t.Helper()
	return owner{dial(t, url, o.key), url, o.tenant, o.key}
}

// TestTheInterface holds running processes to everything that users of the
// service were promised, section by section.
func TestTheInterface(t *testing.T) {
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: temporalAddress(t)})
	r := running{system, []string{system.API(t).URL, system.API(t).URL}}
	system.Worker(t)
	for name, section := range map[string]func(*testing.T, running){
		"Customers": customers, "CustomerPagesAreStable": customerPages, "APIKeys": apiKeys, "Events": events,
		"ARepeatCountsOnce": repeats, "BatchesAtOnceCountOnce": batchesAtOnce, "Usage": usage, "UsagePages": usagePages,
		"Comparison": comparison, "DigitsSurvive": digits, "ExportAsJSON": exportJSON, "ExportAsCSV": exportCSV,
		"Pricing": pricing, "Billing": billing, "Signatures": signatures, "Scopes": scopes, "Problems": problems,
		"RateLimit": rateLimit, "TenantsAreApart": tenantsApart,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); section(t, r) })
	}
}

// requireShape holds a JSON text to a template: every name of the template is
// there, with a value of the kind that the template names ("string", "number",
// "integer", "boolean", "object", "time", each with a "?" where null is an answer
// too), or of the same shape, for objects and every item of an array.
func requireShape(t testing.TB, template string, text []byte) {
	t.Helper()
	var want, got any
	require.NoError(t, json.Unmarshal([]byte(template), &want), template)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&got), string(text))
	shaped(t, "body", want, got)
}

func shaped(t testing.TB, place string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		require.True(t, ok, "%s is no object: %v", place, got)
		for name, inner := range want {
			require.Contains(t, object, name, place)
			shaped(t, place+"."+name, inner, object[name])
		}
	case []any:
		items, ok := got.([]any)
		require.True(t, ok, "%s is no array: %v", place, got)
		require.NotEmpty(t, items, place)
		for i, item := range items {
			shaped(t, fmt.Sprintf("%s[%d]", place, i), want[0], item)
		}
	case string:
		kind, nullable := strings.CutSuffix(want, "?")
		if got == nil && nullable {
			return
		}
		require.True(t, isOfKind(kind, got), "%s is no %s: %v", place, kind, got)
	}
}

func isOfKind(kind string, value any) bool {
	text, isText := value.(string)
	number, isNumber := value.(json.Number)
	switch kind {
	case "string":
		return isText
	case "time": // ISO 8601, UTC
		_, err := time.Parse(time.RFC3339Nano, text)
		return err == nil && strings.HasSuffix(text, "Z")
	case "number":
		return isNumber && !strings.ContainsAny(number.String(), "eE")
	case "integer":
		_, err := number.Int64()
		return err == nil
	case "boolean":
		_, ok := value.(bool)
		return ok
	case "object":
		_, ok := value.(map[string]any)
		return ok
	}
	return false
}

const customerShape = `{"id":"string","tenant_id":"string","external_id":"string","name":"string","billing_provider_id":"string?","metadata":"object","created_at":"time"}`

func customers(t *testing.T, r running) {
	o, ctx := r.owner(t), t.Context()
	made, err := o.CreateCustomerWithResponse(ctx, nil, client.CreateCustomer{
		ExternalId: awkward, Name: new("Äcme"), BillingProviderId: new("cus_9"), Metadata: &map[string]any{"plan": "gold", "deep": map[string]any{"n": 1.0}},
	})
	require.NoError(t, err)
	require.Equal(t, 201, made.StatusCode(), string(made.Body))
	requireShape(t, customerShape, made.Body)
	require.Equal(t, o.tenant, made.JSON201.TenantId)
	require.Equal(t, awkward, made.JSON201.ExternalId)
	require.Equal(t, map[string]any{"plan": "gold", "deep": map[string]any{"n": 1.0}}, made.JSON201.Metadata)

	least, err := o.CreateCustomerWithResponse(ctx, nil, client.CreateCustomer{ExternalId: "least"})
	require.NoError(t, err)
	requireShape(t, customerShape, least.Body)
	require.Nil(t, least.JSON201.BillingProviderId)
	require.Equal(t, map[string]any{}, least.JSON201.Metadata)

	byPath, err := o.GetCustomerWithResponse(ctx, awkward)
	require.NoError(t, err)
	require.Equal(t, made.JSON201, byPath.JSON200)
	byQuery, err := o.GetCustomerByExternalIdWithResponse(ctx, &client.GetCustomerByExternalIdParams{ExternalId: awkward})
	require.NoError(t, err)
	require.Equal(t, made.JSON201, byQuery.JSON200)

	replaced, err := o.UpsertCustomerWithResponse(ctx, awkward, client.CustomerFields{Name: new("Acme 2")})
	require.NoError(t, err)
	require.Equal(t, 200, replaced.StatusCode(), string(replaced.Body))
	require.Equal(t, made.JSON201.Id, replaced.JSON200.Id)
	require.Equal(t, "Acme 2", replaced.JSON200.Name)
	created, err := o.UpsertCustomerWithResponse(ctx, awkward+"2", client.CustomerFields{})
	require.NoError(t, err)
	require.Equal(t, 201, created.StatusCode(), string(created.Body))
	require.Equal(t, awkward+"2", created.JSON201.ExternalId)

	for _, odd := range []string{"..", ".", "by-external-id", "+", "a%2Fb", "'", "日本"} {
		_, err := o.CreateCustomerWithResponse(ctx, nil, client.CreateCustomer{ExternalId: odd})
		require.NoError(t, err)
		found, err := o.GetCustomerByExternalIdWithResponse(ctx, &client.GetCustomerByExternalIdParams{ExternalId: odd})
		require.NoError(t, err)
		require.Equal(t, 200, found.StatusCode(), "%s %s", odd, found.Body)
		require.Equal(t, odd, found.JSON200.ExternalId)
	}
}

func customerPages(t *testing.T, r running) {
	o := r.owner(t)
	add := func(name string) {
		a, err := o.CreateCustomerWithResponse(t.Context(), nil, client.CreateCustomer{ExternalId: name})
		require.NoError(t, err)
		require.Equal(t, 201, a.StatusCode(), string(a.Body))
	}
	for i := range 9 {
		add(fmt.Sprint("before-", i))
	}
	seen := map[string]int{}
	var token *string
	for page := 0; ; page++ {
		// The next page is read from the other replica, after rows were added.
		a, err := o.at(t, r.replicas[page%2]).ListCustomersWithResponse(t.Context(), &client.ListCustomersParams{PageSize: new(int64(2)), PageToken: token})
		require.NoError(t, err)
		requireShape(t, `{"data":[`+customerShape+`],"has_more":"boolean","next_page_token":"string?"}`, a.Body)
		require.Equal(t, a.JSON200.NextPageToken != nil, a.JSON200.HasMore)
		for _, c := range a.JSON200.Data {
			seen[c.ExternalId]++
		}
		if token = a.JSON200.NextPageToken; token == nil {
			break
		}
		if page < 3 {
			add(fmt.Sprint("meanwhile-", page))
		}
	}
	for name, times := range seen {
		require.Equal(t, 1, times, name)
	}
	for i := range 9 {
		require.Contains(t, seen, fmt.Sprint("before-", i))
	}
	foreign, err := r.owner(t).ListCustomersWithResponse(t.Context(), &client.ListCustomersParams{PageToken: new("AAAA")})
	require.NoError(t, err)
	require.Equal(t, 422, foreign.StatusCode())
}

func apiKeys(t *testing.T, r running) {
	o, ctx := r.owner(t), t.Context()
	secrets := map[string]string{}
	for scope, prefix := range map[string]string{"admin": "svc_adm_", "read_write": "svc_rw_", "read_only": "svc_ro_", "ingest_only": "svc_ink_"} {
		made, err := o.CreateApiKeyWithResponse(ctx, nil, client.CreateAPIKey{Name: scope, Scope: client.CreateAPIKeyScope(scope)})
		require.NoError(t, err)
		require.Equal(t, 201, made.StatusCode(), string(made.Body))
		requireShape(t, `{"id":"string","key":"string","prefix":"string","scope":"string","created_at":"time"}`, made.Body)
		require.Equal(t, prefix, made.JSON201.Prefix)
		require.Regexp(t, "^"+prefix+"[A-Za-z0-9]{32}$", made.JSON201.Key)
		secrets[made.JSON201.Id] = made.JSON201.Key
	}
	list, err := o.ListApiKeysWithResponse(ctx)
	require.NoError(t, err)
	requireShape(t, `{"data":[{"id":"string","prefix":"string","scope":"string"}],"has_more":"boolean","next_page_token":"string?"}`, list.Body)
	for id, secret := range secrets {
		require.Contains(t, string(list.Body), id)
		require.NotContains(t, string(list.Body), secret[len(secret)-32:])
	}
	for id, secret := range secrets {
		if strings.HasPrefix(secret, "svc_ink_") {
			continue
		}
		status := func(key string) int {
			code, _ := call(t, "GET", r.replicas[1]+"/v1/meters", key, "")
			return code
		}
		require.Equal(t, 200, status(secret))
		rotated, err := o.RotateApiKeyWithResponse(ctx, id, nil)
		require.NoError(t, err)
		require.Equal(t, 201, rotated.StatusCode(), string(rotated.Body))
		require.Equal(t, 401, status(secret))
		require.Equal(t, 200, status(rotated.JSON201.Key))
		revoked, err := o.RevokeApiKeyWithResponse(ctx, rotated.JSON201.Id)
		require.NoError(t, err)
		require.Equal(t, 200, revoked.StatusCode(), string(revoked.Body))
		require.Equal(t, 401, status(rotated.JSON201.Key))
	}
}

// send sends one event and returns its result.
func (o owner) send(t testing.TB, e client.Event) client.IngestResult {
	t.Helper()
	a, err := o.IngestEventWithResponse(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, 200, a.StatusCode(), string(a.Body))
	return *a.JSON200
}

func (o owner) total(t testing.TB, customer string) string {
	t.Helper()
	a, err := o.GetUsageTotalWithResponse(t.Context(), &client.GetUsageTotalParams{Customer: customer})
	require.NoError(t, err)
	require.Equal(t, 200, a.StatusCode(), string(a.Body))
	requireShape(t, `{"total":"number"}`, a.Body)
	return a.JSON200.Total.String()
}

// meter makes a meter of the event type call.
func (o owner) meter(t testing.TB, groupBy ...string) client.Meter {
	t.Helper()
	a, err := o.CreateMeterWithResponse(t.Context(), nil, client.CreateMeter{Slug: "calls", EventType: "call", GroupBy: &groupBy})
	require.NoError(t, err)
	require.Equal(t, 201, a.StatusCode(), string(a.Body))
	requireShape(t, `{"id":"string","slug":"string","event_type":"string"}`, a.Body)
	return *a.JSON201
}

func events(t *testing.T, r running) {
	o := r.owner(t)
	o.meter(t)
	a, err := o.IngestEventWithResponse(t.Context(), client.Event{EventType: "call", CustomerId: awkward}) // the value is 1, the time now
	require.NoError(t, err)
	requireShape(t, `{"accepted":"integer","rejected":"integer"}`, a.Body)
	require.Equal(t, client.IngestResult{Accepted: 1, Warnings: []string{}, Errors: []client.IngestError{}}, *a.JSON200)
	require.Equal(t, "1", o.total(t, awkward))
	found, err := o.GetCustomerWithResponse(t.Context(), awkward) // made by its first event
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

// batchesAtOnce sends the same keys from many clients to two replicas at the
// same time.
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

// monthStart is in the current period, which is what usage covers by default.
func monthStart() time.Time {
	now := time.Now().UTC()
	return time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
}

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
		late := start.Add(time.Minute) // in a window that was read
		o.send(t, client.Event{EventType: "call", CustomerId: awkward, Timestamp: &late})
	}
	require.Len(t, seen, 10)
	for i, at := range seen {
		require.Equal(t, start.Add(time.Duration(i)*time.Hour), at)
	}
}

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

// digits asks for the same number in every answer that can hold it.
func digits(t *testing.T, r running) {
	o, ctx := r.owner(t), t.Context()
	o.meter(t)
	at := monthStart()
	o.send(t, client.Event{EventType: "call", CustomerId: awkward, Value: number(precise), Timestamp: &at})
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

	start := time.Now().AddDate(0, -2, 0)
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

// csv exports a customer as CSV.
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
		require.Equal(t, []client.PreviewItem{{MeterSlug: "calls", MeterId: made.Id, Usage: usage, UnitPrice: "0.5", Amount: json.Number(amount)}}, *a.JSON200)
	}
	_, text := call(t, "GET", o.url+"/v1/meters/calls/pricing", o.key, "")
	requireShape(t, `{"versions":[{"base_price":"number","included_units":"number","overage_rate":"number"}]}`, []byte(text))
}

func billing(t *testing.T, r running) {
	o := r.owner(t)
	o.meter(t)
	o.price(t, "1", "0", "2")
	o.send(t, client.Event{EventType: "call", CustomerId: awkward, Value: number("3")})
	refused, err := o.SyncBillingWithResponse(t.Context(), client.SyncBilling{CustomerExternalId: awkward})
	require.NoError(t, err)
	require.Equal(t, 409, refused.StatusCode(), string(refused.Body)) // there is no provider

	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	hook := httptest.NewServer(receiver.New(secret))
	t.Cleanup(hook.Close)
	saved, err := o.SaveBillingProviderWithResponse(t.Context(), client.SaveProvider{Type: "webhook", Url: &hook.URL, Secret: new(secret)})
	require.NoError(t, err)
	require.Equal(t, 200, saved.StatusCode(), string(saved.Body))
	require.NotContains(t, string(saved.Body), secret)

	synced, err := o.SyncBillingWithResponse(t.Context(), client.SyncBilling{CustomerExternalId: awkward})
	require.NoError(t, err)
	require.Equal(t, 200, synced.StatusCode(), string(synced.Body))
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

// sign makes a client that signs its requests.
func sign(t testing.TB, url, tenant, secret string, at time.Time) *client.ClientWithResponses {
	t.Helper()
	c, err := client.NewClientWithResponses(url, client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		var body []byte
		if r.GetBody != nil {
			copied, err := r.GetBody()
			if err != nil {
				return err
			}
			if body, err = io.ReadAll(copied); err != nil {
				return err
			}
		}
		timestamp, id := strconv.FormatInt(at.Unix(), 10), rand.Text()
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%s:%s:%s", timestamp, id, body)
		r.Header.Set("Authorization", "HMAC v1:"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		r.Header.Set("X-Timestamp", timestamp)
		r.Header.Set("X-Request-Id", id)
		r.Header.Set("X-Tenant-Id", tenant)
		return nil
	}))
	require.NoError(t, err)
	return c
}

func signatures(t *testing.T, r running) {
	o, ctx := r.owner(t), t.Context()
	o.meter(t)
	made, err := o.CreateHmacSecretWithResponse(ctx, nil, client.CreateHMACSecret{Name: "service", Scope: "read_write"})
	require.NoError(t, err)
	require.Equal(t, 201, made.StatusCode(), string(made.Body))
	secret, event := made.JSON201.Secret, client.Event{EventType: "call", CustomerId: awkward}

	now := sign(t, o.url, o.tenant, secret, time.Now())
	sent, err := now.IngestEventWithResponse(ctx, event)
	require.NoError(t, err)
	require.Equal(t, 200, sent.StatusCode(), string(sent.Body))
	upserted, err := now.UpsertCustomerWithResponse(ctx, awkward, client.CustomerFields{Name: new("é")})
	require.NoError(t, err)
	require.Equal(t, 200, upserted.StatusCode(), string(upserted.Body))
	read, err := now.GetUsageTotalWithResponse(ctx, &client.GetUsageTotalParams{Customer: awkward})
	require.NoError(t, err)
	require.Equal(t, "1", read.JSON200.Total.String())

	for skew, status := range map[time.Duration]int{-290 * time.Second: 200, 290 * time.Second: 200, -310 * time.Second: 401, 310 * time.Second: 401} {
		a, err := sign(t, o.url, o.tenant, secret, time.Now().Add(skew)).ListMetersWithResponse(ctx, nil)
		require.NoError(t, err)
		require.Equal(t, status, a.StatusCode(), skew)
	}
	for name, other := range map[string]*client.ClientWithResponses{
		"secret": sign(t, o.url, o.tenant, secret+"x", time.Now()), "tenant": sign(t, o.url, r.owner(t).tenant, secret, time.Now()),
	} {
		a, err := other.IngestEventWithResponse(ctx, event)
		require.NoError(t, err)
		require.Equal(t, 401, a.StatusCode(), name)
	}
	require.Equal(t, "1", o.total(t, awkward))
}

func scopes(t *testing.T, r running) {
	o := r.owner(t)
	o.meter(t)
	o.send(t, client.Event{EventType: "call", CustomerId: "acme"})
	requests := map[string]struct{ method, path, body string }{
		"send events":     {"POST", "/v1/events", `{"event_type":"call","customer_id":"acme"}`},
		"read usage":      {"GET", "/v1/usage/total?customer=acme", ""},
		"export usage":    {"GET", "/v1/usage/export?customer=acme", ""},
		"read meters":     {"GET", "/v1/meters", ""},
		"write meters":    {"PATCH", "/v1/meters/calls", `{"name":"Calls"}`},
		"read customers":  {"GET", "/v1/customers", ""},
		"write customers": {"PUT", "/v1/customers/acme/upsert", `{"name":"Acme"}`},
		"preview billing": {"GET", "/v1/billing/preview?customer=acme", ""},
		"manage keys":     {"GET", "/v1/api-keys", ""},
	}
	allowed := map[string][]string{
		"read_write":  {"send events", "read usage", "export usage", "read meters", "write meters", "read customers", "write customers"},
		"read_only":   {"read usage", "export usage", "read meters", "read customers"},
		"ingest_only": {"send events"},
	}
	for name := range requests {
		allowed["admin"] = append(allowed["admin"], name)
	}
	for scope, operations := range allowed {
		made, err := o.CreateApiKeyWithResponse(t.Context(), nil, client.CreateAPIKey{Name: scope, Scope: client.CreateAPIKeyScope(scope)})
		require.NoError(t, err)
		for name, request := range requests {
			want := 403
			for _, operation := range operations {
				if operation == name {
					want = 200
				}
			}
			status, text := call(t, request.method, o.url+request.path, made.JSON201.Key, request.body)
			require.Equal(t, want, status, "%s by %s: %s", name, scope, text)
		}
	}
}

func problems(t *testing.T, r running) {
	o := r.owner(t)
	for place, request := range map[string]struct {
		method, path, key, body string
		status                  int
		code                    string
	}{
		"no credentials":  {"GET", "/v1/customers", "", "", 401, "unauthorized"},
		"unknown key":     {"GET", "/v1/customers", "svc_adm_" + strings.Repeat("a", 32), "", 401, "unauthorized"},
		"unknown path":    {"GET", "/v2/customers", o.key, "", 404, "not_found"},
		"unknown method":  {"DELETE", "/v1/customers", o.key, "", 405, "method_not_allowed"},
		"unknown thing":   {"GET", "/v1/customers/nobody", o.key, "", 404, "not_found"},
		"missing field":   {"POST", "/v1/customers", o.key, `{}`, 422, "invalid"},
		"missing query":   {"GET", "/v1/usage/total", o.key, "", 422, "invalid"},
		"broken body":     {"POST", "/v1/customers", o.key, `{`, 400, "malformed"},
		"oversized batch": {"POST", "/v1/events/batch", o.key, `{"events":[` + strings.Repeat(`{},`, 1000) + `{}]}`, 422, "invalid"},
	} {
		status, text := call(t, request.method, o.url+request.path, request.key, request.body)
		require.Equal(t, request.status, status, "%s: %s", place, text)
		requireShape(t, `{"type":"string","title":"string","status":"integer","detail":"string"}`, []byte(text))
		var p client.Problem
		require.NoError(t, json.Unmarshal([]byte(text), &p))
		require.EqualValues(t, request.status, p.Status)
		require.True(t, strings.HasSuffix(p.Type, "/"+request.code), p.Type)
		page, _ := call(t, "GET", p.Type, "", "")
		require.Equal(t, 200, page, p.Type)
	}
}

func rateLimit(t *testing.T, r running) {
	_, key := r.system.LimitedTenant(t, 2)
	o := owner{ClientWithResponses: dial(t, r.replicas[0], key)}
	event := client.Event{EventType: "call", CustomerId: awkward}
	for remaining := range 2 {
		a, err := o.IngestEventWithResponse(t.Context(), event)
		require.NoError(t, err)
		require.Equal(t, 200, a.StatusCode())
		require.Equal(t, "2", a.HTTPResponse.Header.Get("X-RateLimit-Limit"))
		require.Equal(t, strconv.Itoa(1-remaining), a.HTTPResponse.Header.Get("X-RateLimit-Remaining"))
	}
	a, err := o.IngestEventWithResponse(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, 429, a.StatusCode())
	requireShape(t, `{"type":"string","title":"string","status":"integer","detail":"string"}`, a.Body)
	seconds, err := strconv.Atoi(a.HTTPResponse.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, seconds)
	require.LessOrEqual(t, seconds, 60)
	require.Equal(t, "0", a.HTTPResponse.Header.Get("X-RateLimit-Remaining"))
	list, err := o.ListMetersWithResponse(t.Context(), nil) // only events are limited
	require.NoError(t, err)
	require.Equal(t, 200, list.StatusCode())

	var made struct {
		Key string `json:"admin_key"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.system.Run(t, "tenant", "create", "--name", "Default", "--json")), &made))
	first, err := dial(t, r.replicas[0], made.Key).IngestEventWithResponse(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, "1000", first.HTTPResponse.Header.Get("X-RateLimit-Limit"))
}

func tenantsApart(t *testing.T, r running) {
	ours, theirs := r.owner(t), r.owner(t)
	theirs.meter(t)
	theirs.send(t, client.Event{EventType: "call", CustomerId: awkward})
	found, err := ours.GetCustomerWithResponse(t.Context(), awkward)
	require.NoError(t, err)
	require.Equal(t, 404, found.StatusCode())
	keys, err := theirs.ListApiKeysWithResponse(t.Context())
	require.NoError(t, err)
	revoked, err := ours.RevokeApiKeyWithResponse(t.Context(), keys.JSON200.Data[0].Id)
	require.NoError(t, err)
	require.Equal(t, 404, revoked.StatusCode())
	ours.meter(t)
	ours.send(t, client.Event{EventType: "call", CustomerId: awkward, Value: number("5")})
	require.Equal(t, "5", ours.total(t, awkward))
	require.Equal(t, "1", theirs.total(t, awkward))
}
