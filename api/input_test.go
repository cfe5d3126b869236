package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// canary marks invalid values. No response may contain it, except as the name of an unknown property.
const canary = "CANARY"

var badTexts = []string{
	canary, canary + "\x00", "\xff" + canary, strings.Repeat(canary, 400), "-1" + canary, "' or 1=1 --" + canary, "%s%n" + canary, "../" + canary, "é\u202e" + canary,
}

var badJSON = []string{
	`"` + canary + `"`, `"` + canary + `\u0000"`, `"\ud800` + canary + `"`, `["` + canary + `"]`, `{"` + canary + `":1}`, `null`, `true`, `-1`, `1e400`, `1e-400`,
	`123456789012345678901234567890`, `"` + strings.Repeat(canary, 3000) + `"`, strings.Repeat("[", 200) + `"` + canary + `"` + strings.Repeat("]", 200), `""`, `"0000-00-00T00:00:00Z` + canary + `"`,
	`"9999-12-31T23:59:59Z"`, `"0001-01-01T00:00:00Z"`,
}

// TestInvalidInputNeverCausesServerError sends invalid input to every operation of the document. It makes each
// parameter and each value of the body invalid in turn.
func TestInvalidInputNeverCausesServerError(t *testing.T) {
	t.Parallel()
	server := setup(t)
	for path, item := range olderDocument(t).Paths.Map() {
		for method, op := range item.Operations() {
			t.Run(op.OperationID, func(t *testing.T) {
				t.Parallel()
				b := server.of(t, dbtest.Tenant(t, server.store))
				b.meter(t, "calls", "call", "model")
				b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme"}`)
				good := goodRequest(method, path, op)
				for _, p := range op.Parameters {
					for _, bad := range badTexts {
						b.sendBad(t, good.with(p.Value.In, p.Value.Name, bad))
					}
				}
				if op.RequestBody != nil {
					b.sendBadBodies(t, good, op.RequestBody.Value.Content["application/json"].Schema.Value)
				}
			})
		}
	}
}

// badRequest is a request to an operation that a test can make invalid.
type badRequest struct {
	method, path, body string
	query              url.Values
	headers            []string
}

// goodRequest returns a request with the required query parameters, and {} if the operation has a body.
func goodRequest(method, path string, op *openapi3.Operation) badRequest {
	r := badRequest{method: method, path: path, query: url.Values{}}
	for _, p := range op.Parameters {
		if p.Value.In == "query" && p.Value.Required {
			r.query.Set(p.Value.Name, goodValue(p.Value.Name))
		}
	}
	if op.RequestBody != nil {
		r.body = "{}"
	}
	return r
}

// goodValue returns a value that is valid for the parameter.
func goodValue(name string) string {
	switch name {
	case "meter", "slug":
		return "calls"
	case "month":
		return "2026-11"
	default:
		return "acme"
	}
}

// with returns the request with another value for one parameter.
func (r badRequest) with(in, name, value string) badRequest {
	switch in {
	case "path":
		r.path = strings.ReplaceAll(r.path, "{"+name+"}", url.PathEscape(value))
	case "query":
		r.query = maps.Clone(r.query)
		r.query.Set(name, value)
	case "header":
		// The HTTP client sends no control characters in a header, so they are replaced by spaces.
		r.headers = []string{name + ": " + strings.Map(func(c rune) rune { return max(c, ' ') }, value)}
	}
	return r
}

// sendBadBodies sends malformed and invalid bodies, and bodies with a wrong media type or encoding.
func (b *bundle) sendBadBodies(t *testing.T, r badRequest, schema *openapi3.Schema) {
	t.Helper()
	send := func(body string, headers ...string) answer {
		r := r
		r.body, r.headers = body, headers
		return b.sendBad(t, r)
	}
	good := goodJSON(schema)
	for _, body := range []string{
		``, `{`, `[]`, canary, `{}{}`, "\xff", `{"a":` + strings.Repeat("[", 20_000), strings.Repeat(" ", 1<<20+1),
		`{"a":"` + canary + "\n" + `"}`, good + good, good[:len(good)-1], good[:len(good)/2],
	} {
		send(body)
	}
	for _, media := range []string{"text/plain", "application/xml", "multipart/form-data; boundary=" + canary, canary, "application/json; charset=" + canary} {
		send(good, "Content-Type: "+media)
	}
	send(good, "Content-Encoding: gzip")
	for _, body := range spoilt(schema) {
		send(body)
	}
	for _, name := range schema.Required {
		require.GreaterOrEqual(t, send(goodJSON(schema, name)).status, 400, "without %s", name)
	}
	if allowed := schema.AdditionalProperties.Has; allowed != nil && !*allowed {
		require.GreaterOrEqual(t, send(`{"`+canary+`":1,`+good[1:]).status, 400, "with an unknown field")
	}
}

// goodJSON returns a value that the schema allows, without some fields of an object. It can break rules that the
// schema does not express.
func goodJSON(schema *openapi3.Schema, without ...string) string {
	switch {
	case len(schema.Enum) > 0:
		return fmt.Sprintf("%q", schema.Enum[0])
	case schema.Type.Is("object"):
		var fields []string
		for name, p := range schema.Properties {
			if !slices.Contains(without, name) {
				fields = append(fields, fmt.Sprintf("%q:%s", name, goodJSON(p.Value)))
			}
		}
		return "{" + strings.Join(fields, ",") + "}"
	case schema.Type.Is("array"):
		return "[" + goodJSON(schema.Items.Value) + "]"
	case schema.Type.Is("string") && schema.Format == "date-time":
		return `"` + clock.Now().UTC().Format(time.RFC3339) + `"`
	case schema.Type.Is("string"):
		return `"a-good-enough-text"`
	case schema.Type.Is("boolean"):
		return `true`
	}
	return `1`
}

// spoilt returns values for the schema, each of which is invalid in one field or item.
func spoilt(schema *openapi3.Schema) []string {
	bad := slices.Clone(badJSON)
	if most := schema.MaxLength; most != nil {
		bad = append(bad, `"`+strings.Repeat("é", int(*most)+1)+`"`)
	}
	switch {
	case schema.Type.Is("object"):
		for name, p := range schema.Properties {
			good := goodJSON(schema, name)
			for _, value := range spoilt(p.Value) {
				bad = append(bad, strings.Replace(fmt.Sprintf(`{%q:%s,%s`, name, value, good[1:]), ",}", "}", 1))
			}
		}
	case schema.Type.Is("array"):
		for _, item := range spoilt(schema.Items.Value) {
			bad = append(bad, "["+item+"]")
		}
		if most := schema.MaxItems; most != nil {
			bad = append(bad, "["+strings.Repeat(goodJSON(schema.Items.Value)+",", int(*most))+goodJSON(schema.Items.Value)+"]")
		}
	}
	return bad
}

// unknownProperty matches the location of an unknown property, which contains the name of the property.
var unknownProperty = regexp.MustCompile(`body(\.[a-z_]+(\[\d+\])*)*\.` + canary)

// sendBad checks that the status is below 500, and that an error is a problem that does not repeat the canary.
func (b *bundle) sendBad(t *testing.T, r badRequest) answer {
	t.Helper()
	for _, name := range []string{"external_id", "slug", "id", "tenant_id", "period"} {
		r = r.with("path", name, goodValue(name))
	}
	var a answer
	dbtest.Eventually(t, func() error { // a machine that stalls for seconds is overloaded
		a = b.send(t, r.method, r.path+"?"+r.query.Encode(), r.body, r.headers...)
		if a.status == http.StatusServiceUnavailable && problemCode(t, a) == string(metering.CodeOverloaded) {
			return errors.New(a.body)
		}
		return nil
	})
	sent := r.method + " " + r.path + "?" + r.query.Encode() + " " + strings.Join(r.headers, " ") + " " + r.body[:min(len(r.body), 300)]
	require.Less(t, a.status, 500, "%s\n%s", sent, a.body)
	if a.status >= 400 {
		a.problem(t, a.status, problemCode(t, a))
		require.NotContains(t, unknownProperty.ReplaceAllString(a.body, ""), canary, sent)
	}
	return a
}

// problemCode returns the code of an error response.
func problemCode(t *testing.T, a answer) string {
	t.Helper()
	var p api.Problem
	require.NoError(t, json.Unmarshal([]byte(a.body), &p), a.body)
	return string(p.Code)
}

// TestTimesOutsideYears1To9999AreRefused checks that times outside the years 1 to 9999 in UTC are refused. RFC
// 3339 has years of four digits, and an offset can move a time out of this range.
func TestTimesOutsideYears1To9999AreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`)
	for _, c := range []struct{ method, path, body, field string }{
		{"PUT", "/v1/meters/calls/pricing", `{"effective_from":%q}`, "body.effective_from"},
		{"PUT", "/v1/plans/pro/pricing/calls", `{"effective_from":%q}`, "body.effective_from"},
		{"PUT", "/v1/customers/acme/plan", `{"plan":"pro","effective_from":%q}`, "body.effective_from"},
		{"POST", "/v1/api-keys", `{"name":"k","scope":"read_only","expires_at":%q}`, "body.expires_at"},
		{"POST", "/v1/hmac-secrets", `{"name":"k","scope":"read_only","expires_at":%q}`, "body.expires_at"},
		{"GET", "/v1/usage?customer=acme&meter=calls&end=", "", "query.end"},
		{"GET", "/v1/usage/total?customer=acme&start=", "", "query.start"},
		{"GET", "/v1/usage/export?customer=acme&end=", "", "query.end"},
		{"GET", "/v1/billing/explain?customer=acme&meter=calls&at=", "", "query.at"},
	} {
		for _, instant := range []string{"9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"} {
			path, body := c.path, c.body
			if body == "" {
				path += url.QueryEscape(instant)
			} else {
				body = fmt.Sprintf(body, instant)
			}
			p := b.send(t, c.method, path, body).problem(t, 422, "invalid")
			require.Equal(t, c.field, p.Errors[0].Location, path)
		}
	}
	for _, path := range []string{"/v1/meters/calls/pricing", "/v1/plans/pro/pricing/calls", "/v1/customers/acme/plan", "/v1/api-keys", "/v1/hmac-secrets"} {
		require.Equal(t, 200, b.send(t, "GET", path, "").status, path)
	}
}

func TestUnknownFieldsAreRefusedExceptOnEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, body := range map[string]string{
		"/v1/customers": `{"external_id":"a","more":1}`, "/v1/meters": `{"slug":"a","event_type":"b","more":1}`,
		"/v1/api-keys": `{"name":"a","scope":"admin","more":1}`, "/v1/billing/sync": `{"customer_external_id":"a","more":1}`,
	} {
		p := b.send(t, "POST", path, body).problem(t, 422, "invalid")
		require.Equal(t, []api.FieldProblem{{Location: "body.more", Message: "unexpected property"}}, p.Errors)
	}
	p := b.send(t, "POST", "/v1/meters", `{"slug":"a","event_type":"b","recurring":true}`).problem(t, 422, "invalid")
	require.Equal(t, []api.FieldProblem{{Location: "body.recurring", Message: "unexpected property"}}, p.Errors)
}

func TestRouterErrorsAreProblems(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.send(t, "GET", "/nope", "").problem(t, 404, "not_found")
	b.send(t, "GET", "/v1/customers/", "").problem(t, 404, "not_found")
	a := b.send(t, "DELETE", "/v1/customers", "")
	a.problem(t, 405, "method_not_allowed")
	require.Equal(t, "GET, HEAD, POST", a.header.Get("Allow"))
}

func TestRequestIDIsEchoedOrGenerated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, "abc-1.2_3", b.send(t, "GET", "/nope", "", "X-Request-Id: abc-1.2_3").header.Get("X-Request-Id"))
	for _, bad := range []string{"", "with space", strings.Repeat("x", 129), "é"} {
		id := b.send(t, "GET", "/nope", "", "X-Request-Id: "+bad).header.Get("X-Request-Id")
		require.Regexp(t, "^[A-Z0-9]{26}$", id)
	}
}

func TestEveryProblemHasItsPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, code := range []string{"invalid", "malformed", "unauthorized", "not_found", "overloaded", "meter_backfilling", "internal"} {
		page := b.send(t, "GET", "/errors/"+code, "")
		require.Equal(t, 200, page.status)
		require.Equal(t, "text/html; charset=utf-8", page.header.Get("Content-Type"))
		require.Contains(t, page.body, "<code>"+code+"</code>")
	}
	b.send(t, "GET", "/errors/nope", "").problem(t, 404, "not_found")
}

// TestInterruptedResponseIsLoggedAsError checks that a response that ends early is logged as an error with status 500.
func TestInterruptedResponseIsLoggedAsError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	meter, err := b.store.Meters.Get(t.Context(), b.tenant.ID, "calls")
	require.NoError(t, err)
	for month := range time.Month(2) {
		_, err = b.store.Prices.Set(t.Context(), b.tenant.ID, metering.Operator,
			billing.Price{MeterID: meter.ID, Terms: billing.Terms{Currency: "USD"}, EffectiveFrom: time.Date(2026, 1+month, 1, 0, 0, 0, 0, time.UTC)})
		require.NoError(t, err)
	}
	_, err = dbtest.Conn(t).Exec(t.Context(), `update meter_prices set effective_from = '10000-01-01' where tenant_id = $1 and version = 2`, b.tenant.ID)
	require.NoError(t, err, "that year has no JSON")
	var log bytes.Buffer
	deps := b.deps
	deps.Log, deps.Metrics = slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry()
	handler, err := api.New(deps)
	require.NoError(t, err)
	request := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/meters/calls/pricing", nil)
	require.NoError(t, b.authorized(t.Context(), request))
	require.PanicsWithError(t, http.ErrAbortHandler.Error(), func() { handler.ServeHTTP(httptest.NewRecorder(), request) },
		"the client must not take a part for the whole")
	require.Contains(t, log.String(), "level=ERROR")
	require.Contains(t, log.String(), "status=500")
	require.Contains(t, log.String(), "year outside of range")
}

func TestReadinessShowsUnavailableComponents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.JSONEq(t, `{"status":"ok","database":"ok","clock":"ok","temporal":"ok","bodies":"ok"}`, b.send(t, "GET", "/readyz", "").body)
	b.temporal.down.Store(true)
	b.awaitReadiness(t, 200, `{"status":"ok","database":"ok","clock":"ok","temporal":"unavailable","bodies":"ok"}`)
	require.JSONEq(t, `{"status":"ok"}`, b.send(t, "GET", "/healthz", "").body)
}

// TestErrorListOfInvalidBodyIsLimited checks that neither the response nor the decoded body grows with the number
// of broken rules.
func TestErrorListOfInvalidBodyIsLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	list := func(name, item string, items int) string {
		return `{"` + name + `":[` + strings.TrimSuffix(strings.Repeat(item+",", items), ",") + `]}`
	}
	for path, body := range map[string]string{
		"/v1/quotas/check": list("checks", `{}`, 5000),
		"/v1/webhooks":     list("event_types", `""`, 5000),
		"/v1/customers":    `{"external_id":"a"` + unknownFields(5000) + `}`,
	} {
		a := b.send(t, "POST", path, body)
		require.Len(t, a.problem(t, 422, "invalid").Errors, 20, path)
		require.Less(t, len(a.body), 8<<10, path)
	}
	for path, body := range map[string]string{
		"/v1/quotas/check": list("checks", `{}`, 20_000),
		"/v1/webhooks":     list("event_types", `""`, 20_000),
		"/v1/customers":    `{"external_id":"a","metadata":` + list("x", `{"":0}`, 6_666) + `}`,
	} {
		detail := b.send(t, "POST", path, body).problem(t, 413, "too_large").Detail
		require.Equal(t, "the body must have at most 20000 JSON names and values; send fewer items in one request", detail, path)
	}
	require.Equal(t, 201, b.send(t, "POST", "/v1/customers", `{"external_id":"a","metadata":{"x":[`+strings.Repeat("0,", 8000)+`0]}}`).status)
	b.meter(t, "calls", "call")
	properties := `{"x":[` + strings.Repeat("0,", 8000) + `0]}`
	event := `{"event_type":"call","customer_id":"a","properties":` + properties + `}`
	b.ingest(t, "/v1/events/batch", list("events", event, 50)) // events are not decoded into values
}

// unknownFields returns JSON fields that no operation has, each after a comma.
func unknownFields(fields int) string {
	var text strings.Builder
	for i := range fields {
		fmt.Fprintf(&text, `,"x%d":1`, i)
	}
	return text.String()
}
