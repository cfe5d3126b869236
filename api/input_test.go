package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
)

// canary is in every bad value; no answer may repeat it.
const canary = "CANARY"

type openAPI struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Parameters  []struct {
			Name, In string
			Required bool
		} `json:"parameters"`
		RequestBody *struct {
			Content map[string]struct {
				Schema struct {
					Ref string `json:"$ref"`
				} `json:"schema"`
			} `json:"content"`
		} `json:"requestBody"`
	} `json:"paths"`
	Components struct {
		Schemas map[string]struct {
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"schemas"`
	} `json:"components"`
}

func readDocument(t *testing.T) openAPI {
	t.Helper()
	text, _, err := api.Documents()
	require.NoError(t, err)
	var d openAPI
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

var badTexts = []string{
	canary, canary + "\x00", "\xff" + canary, strings.Repeat(canary, 400), "-1" + canary, "' or 1=1 --" + canary, "%s%n" + canary, "../" + canary, "é\u202e" + canary,
}

var badJSON = []string{
	`"` + canary + `"`, `"` + canary + `\u0000"`, `"\ud800` + canary + `"`, `["` + canary + `"]`, `{"` + canary + `":1}`, `null`, `true`, `-1`, `1e400`, `1e-400`,
	`123456789012345678901234567890`, `"` + strings.Repeat(canary, 3000) + `"`, strings.Repeat("[", 200) + `"` + canary + `"` + strings.Repeat("]", 200), `""`, `"0000-00-00T00:00:00Z` + canary + `"`,
	`"9999-12-31T23:59:59Z"`, `"0001-01-01T00:00:00Z"`,
}

// TestBadInputIsNeverOurFault sends every operation what nobody should.
func TestBadInputIsNeverOurFault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "model")
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme"}`)
	d := readDocument(t)
	for path, item := range d.Paths {
		for method, op := range item {
			t.Run(op.OperationID, func(t *testing.T) {
				t.Parallel()
				good := url.Values{}
				for _, p := range op.Parameters {
					if p.In == "query" && p.Required {
						good.Set(p.Name, goodValue(p.Name))
					}
				}
				for _, p := range op.Parameters {
					for _, bad := range badTexts {
						b.sendBad(t, method, badPath(path, p.In, p.Name, bad), badQuery(good, p.In, p.Name, bad), `{}`)
					}
				}
				if op.RequestBody == nil {
					return
				}
				reference := op.RequestBody.Content["application/json"].Schema.Ref
				properties := d.Components.Schemas[reference[strings.LastIndex(reference, "/")+1:]].Properties
				require.NotEmpty(t, properties)
				for _, body := range badBodies(properties) {
					b.sendBad(t, method, badPath(path, "", "", ""), good, body)
				}
			})
		}
	}
}

// goodValue is one that the operation can work with.
func goodValue(name string) string {
	switch name {
	case "meter", "slug":
		return "calls"
	default:
		return "acme"
	}
}

func badPath(path, in, name, bad string) string {
	for _, parameter := range []string{"external_id", "slug", "id", "tenant_id"} {
		value := goodValue(parameter)
		if in == "path" && name == parameter {
			value = bad
		}
		path = strings.ReplaceAll(path, "{"+parameter+"}", url.PathEscape(value))
	}
	return path
}

func badQuery(good url.Values, in, name, bad string) url.Values {
	query := url.Values{}
	for k, v := range good {
		query[k] = slices.Clone(v)
	}
	if in == "query" {
		query.Set(name, bad)
	}
	return query
}

func badBodies(properties map[string]json.RawMessage) []string {
	bodies := append([]string{
		``, `{`, `[]`, canary, `{"` + canary + `":"` + canary + `"}`, `{}{}`, "\xff", `{"a":` + strings.Repeat("[", 20_000), strings.Repeat(" ", 1<<20+1),
		`{"a":"` + canary + "\n" + `"}`,
	}, badJSON...)
	for _, bad := range badJSON {
		all := make(map[string]json.RawMessage, len(properties))
		for name := range properties {
			all[name] = json.RawMessage(bad)
			one, _ := json.Marshal(map[string]json.RawMessage{name: json.RawMessage(bad)})
			bodies = append(bodies, string(one))
		}
		whole, _ := json.Marshal(all)
		bodies = append(bodies, string(whole))
	}
	return bodies
}

// sendBad requires an answer below 500, and of errors that they are problems
// which do not repeat what was sent.
func (b *bundle) sendBad(t *testing.T, method, path string, query url.Values, body string) {
	t.Helper()
	method = strings.ToUpper(method)
	if method == http.MethodGet {
		body = ""
	}
	a := b.send(t, method, path+"?"+query.Encode(), body)
	sent := method + " " + path + "?" + query.Encode() + " " + body[:min(len(body), 300)]
	require.Less(t, a.status, 500, "%s\n%s", sent, a.body)
	if a.status >= 400 {
		a.problem(t, a.status, problemCode(t, a))
		require.NotContains(t, strings.ReplaceAll(a.body, `body.`+canary, ""), canary, sent)
	}
}

func problemCode(t *testing.T, a answer) string {
	t.Helper()
	var p api.Problem
	require.NoError(t, json.Unmarshal([]byte(a.body), &p), a.body)
	return string(p.Code)
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
}

func TestTheRoutersOwnAnswersAreProblems(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.send(t, "GET", "/nope", "").problem(t, 404, "not_found")
	b.send(t, "GET", "/", "").problem(t, 404, "not_found")
	b.send(t, "GET", "/v1/customers/", "").problem(t, 404, "not_found")
	a := b.send(t, "DELETE", "/v1/customers", "")
	a.problem(t, 405, "method_not_allowed")
	require.Equal(t, "GET, HEAD, POST", a.header.Get("Allow"))
}

func TestARequestIDIsEchoedOrMade(t *testing.T) {
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

func TestReadinessNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.JSONEq(t, `{"status":"ok","database":"ok","temporal":"ok"}`, b.send(t, "GET", "/readyz", "").body)
	b.temporal.down.Store(true)
	a := b.send(t, "GET", "/readyz", "")
	require.Equal(t, 200, a.status)
	require.JSONEq(t, `{"status":"ok","database":"ok","temporal":"unavailable"}`, a.body)
	require.JSONEq(t, `{"status":"ok"}`, b.send(t, "GET", "/healthz", "").body)
}
