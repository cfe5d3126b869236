package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
)

// bodiesByOperation calls do with the request and the body schema of each operation. It skips the events of
// billing providers, because their signature covers the bytes.
func bodiesByOperation(t *testing.T, do func(t *testing.T, b *bundle, r badRequest, schema *openapi3.Schema)) {
	t.Helper()
	document := olderDocument(t)
	b := setup(t)
	b.meter(t, "calls", "call")
	for path, item := range document.Paths.Map() {
		for method, op := range item.Operations() {
			if op.RequestBody == nil || op.OperationID == "receive-provider-event" {
				continue
			}
			r := goodRequest(method, path, op)
			for _, name := range []string{"external_id", "slug", "id", "tenant_id", "period", "meter"} {
				r = r.with("path", name, goodValue(name))
			}
			t.Run(op.OperationID, func(t *testing.T) { do(t, b, r, op.RequestBody.Value.Content["application/json"].Schema.Value) })
		}
	}
}

// requireRefused requires that the response to a body has an error with this message at this location.
func (b *bundle) requireRefused(t *testing.T, r badRequest, body, location, message string) {
	t.Helper()
	p := b.send(t, r.method, r.path+"?"+r.query.Encode(), body).problem(t, 422, "invalid")
	require.NotEmpty(t, p.Errors)
	for _, e := range p.Errors {
		if e.Location == location && e.Message == message {
			return
		}
	}
	require.Fail(t, "another problem", "%s: %v", body, p.Errors)
}

// TestRepeatedOrMisspelledFieldNamesAreRefused checks that repeated and differently spelled field names are refused.
// Two names can be equal to one parser and different to another, so the API neither equates them nor prefers one.
func TestRepeatedOrMisspelledFieldNamesAreRefused(t *testing.T) {
	t.Parallel()
	bodiesByOperation(t, func(t *testing.T, b *bundle, r badRequest, schema *openapi3.Schema) {
		for name, property := range schema.Properties {
			good, value := goodJSON(schema, name), goodJSON(property.Value)
			first, second := fmt.Sprintf("%q:%s", name, value), fmt.Sprintf(`"\u%04x%s":null`, name[0], name[1:])
			b.requireRefused(t, r, strings.Replace(`{`+first+`,`+second+`,`+good[1:], ",}", "}", 1), "body."+name, "must be given once")
			if schema.AdditionalProperties.Has != nil && *schema.AdditionalProperties.Has {
				continue // events: TestAnUnknownFieldOfAnEventIsAWarning covers them
			}
			for _, other := range []string{strings.ToUpper(name), strings.Replace(name, "s", "ſ", 1), strings.Replace(name, "k", "\u212a", 1)} {
				if other != name {
					b.requireRefused(t, r, strings.Replace(fmt.Sprintf(`{%q:%s,%s`, other, value, good[1:]), ",}", "}", 1), "body."+other, "unexpected property")
				}
			}
		}
	})
	b := setup(t)
	b.meter(t, "calls", "call")
	const nested = "must be given once"
	b.send(t, "POST", "/v1/customers", `{"external_id":"a","metadata":{"x":[{"b":1,"b":2}]}}`).problem(t, 422, "invalid")
	for _, c := range []struct{ method, path, body, location string }{
		{"POST", "/v1/customers", `{"external_id":"a","metadata":{"a":1,"b":2,"a":3}}`, "body.metadata.a"},
		{"POST", "/v1/customers", `{"external_id":"a","metadata":{"x":[{"b":1,"b":2}]}}`, "body.metadata.x.0.b"},
		{"PUT", "/v1/customers/a/upsert", `{"metadata":{"a":1,"\u0061":3}}`, "body.metadata.a"},
		{"PUT", "/v1/billing/provider", `{"type":"stripe","secret":"x","mapping":{"calls":"a","calls":"b"}}`, "body.mapping"},
	} {
		b.requireRefused(t, badRequest{method: c.method, path: c.path}, c.body, c.location, nested)
	}
	b.send(t, "GET", "/v1/customers/a", "").problem(t, 404, "not_found")
	b.requireRefused(t, badRequest{method: "PUT", path: "/v1/meters/calls/pricing"}, `{"overage_rate":1,"Overage_Rate":2}`, "body.Overage_Rate", "unexpected property")
	b.requireRefused(t, badRequest{method: "POST", path: "/v1/customers"}, `{"External_ID":"a"}`, "body.External_ID", "unexpected property")
}

// TestIntegersWithExponentOrZeroDecimalsAreAccepted checks that integers with an exponent or with zeros as decimals are
// accepted, as their JSON schema promises. Python writes a float of 10⁶ as 1000000.0.
func TestIntegersWithExponentOrZeroDecimalsAreAccepted(t *testing.T) {
	t.Parallel()
	bodiesByOperation(t, func(t *testing.T, b *bundle, r badRequest, schema *openapi3.Schema) {
		for name, property := range schema.Properties {
			if !property.Value.Type.Is("integer") {
				continue
			}
			for _, one := range []string{"1.0", "1e0", "10E-1"} {
				a := b.send(t, r.method, r.path+"?"+r.query.Encode(), fmt.Sprintf(`{%q:%s}`, name, one))
				require.NotContains(t, a.body, "wrong type", name)
			}
		}
	})
	b := setup(t)
	b.meter(t, "calls", "call")
	const path = "/v1/meters/calls/pricing"
	for _, million := range []string{"1000000", "1000000.0", "1e6", "1E+6", "0.1e7", "10000000e-1"} {
		set := b.pricing(t, "PUT", path, `{"model":"per_unit","unit_price":2.50,"per_units":`+million+`}`)
		last := set.Versions[len(set.Versions)-1]
		require.Equal(t, []any{int64(1_000_000), "2.5"}, []any{*last.PerUnits, last.UnitPrice.String()}, million)
	}
	charged := b.send(t, "POST", "/v1/pricing/calculate", `{"model":"percentage","fixed_fee":1e-1,"usage":[{"quantity":1.0,"event_count":2e0},{"quantity":1,"event_count":3.0}]}`)
	require.Equal(t, 200, charged.status, charged.body)
	require.Contains(t, charged.body, `"charge":0.2`)
	require.Contains(t, charged.body, `"charge":0.3`)
	for _, none := range []string{"1.5", "1e-1"} {
		b.requireRefused(t, badRequest{method: "PUT", path: path}, `{"model":"per_unit","unit_price":2,"per_units":`+none+`}`, "body.per_units", "expected integer")
	}
}

// TestTextThatIsNoUTF8IsRefusedEverywhere checks that text that is not UTF-8 is refused. If invalid characters
// were replaced by U+FFFD, two different texts would become equal.
func TestTextThatIsNoUTF8IsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	bad := []string{`"a\ud800"`, `"\udfffa"`, "\"a\xff\"", `"\ud83d\ud83d"`}
	bodiesByOperation(t, func(t *testing.T, b *bundle, r badRequest, schema *openapi3.Schema) {
		for name, property := range schema.Properties {
			good := goodJSON(schema, name)
			for _, value := range bad {
				body, location := strings.Replace(fmt.Sprintf(`{%q:%s,%s`, name, value, good[1:]), ",}", "}", 1), "body."+name
				if name == "events" {
					continue // TestInvalidEventOfBatchIsRejectedAlone covers events
				}
				if r.path == "/v1/events" && !property.Value.Type.Is("string") {
					continue // not a text
				}
				b.requireRefused(t, r, body, location, "must be UTF-8, without lone surrogates")
			}
			message := "must be UTF-8, without lone surrogates"
			if r.path == "/v1/events" || schema.Properties["events"] != nil {
				message = "must have field names that are UTF-8, without lone surrogates"
			}
			b.requireRefused(t, r, strings.Replace(fmt.Sprintf(`{"\ud800":1,%q:%s,%s`, name, goodJSON(property.Value), good[1:]), ",}", "}", 1), "body", message)
		}
	})
	b := setup(t)
	for _, metadata := range []string{`{"p":"\ud800"}`, `{"p":["\udfff"]}`, `{"\ud800":1}`, "{\"p\":\"\xff\"}"} {
		b.send(t, "POST", "/v1/customers", `{"external_id":"a","metadata":`+metadata+`}`).problem(t, 422, "invalid")
	}
	b.send(t, "GET", "/v1/customers/a", "").problem(t, 404, "not_found")
	require.Equal(t, 201, b.send(t, "POST", "/v1/customers", `{"external_id":"�","name":"\ufffd \ud83d\ude00"}`).status, "U+FFFD is a character as others are")
}

// TestInvalidEventOfBatchIsRejectedAlone checks that an ambiguous or invalid event is rejected alone, with its index in
// the batch and the name of the field.
func TestInvalidEventOfBatchIsRejectedAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "p")
	bad := []struct{ event, code, message string }{
		{`{"event_type":"call","customer_id":"acme","value":7,"value":null}`, "duplicate_name", "value must be given once"},
		{`{"event_type":"call","customer_id":"acme","value":1,"v\u0061lue":1}`, "duplicate_name", "value must be given once"},
		{`{"event_type":"call","customer_id":"acme","customer_id":"other"}`, "duplicate_name", "customer_id must be given once"},
		{`{"event_type":"call","event_type":"call","customer_id":"acme"}`, "duplicate_name", "event_type must be given once"},
		{`{"event_type":"call","customer_id":"acme","timestamp":null,"timestamp":null}`, "duplicate_name", "timestamp must be given once"},
		{`{"event_type":"call","customer_id":"acme","idempotency_key":"a","idempotency_key":"b"}`, "duplicate_name", "idempotency_key must be given once"},
		{`{"event_type":"call","customer_id":"acme","properties":{},"properties":{"p":"a"}}`, "duplicate_name", "properties must be given once"},
		{`{"event_type":"call","customer_id":"acme","VALUE":1,"VALUE":1}`, "duplicate_name", "VALUE must be given once"},
		{`{"event_type":"call","customer_id":"acme","properties":{"p":1,"q":{"a":1,"a":2}}}`, "invalid_properties", `properties must not contain the name \"a\" twice in the same object`},
		{`{"event_type":"call","customer_id":"acme","properties":{"p":"\ud800"}}`, "invalid_properties", "properties must not contain an unpaired UTF-16 surrogate, which is not a character"},
		{`{"event_type":"call","customer_id":"acme","properties":{"p":"\udfff"}}`, "invalid_properties", "properties must not contain an unpaired UTF-16 surrogate, which is not a character"},
		{"{\"event_type\":\"call\",\"customer_id\":\"acme\",\"properties\":{\"p\":\"\xff\"}}", "invalid_properties", "properties must be UTF-8"},
		{`{"event_type":"call\ud83d","customer_id":"acme"}`, "invalid_event_type", "event_type must be UTF-8, without lone surrogates"},
		{`{"event_type":"call","customer_id":"a\udfff"}`, "invalid_customer_id", "customer_id must be UTF-8, without lone surrogates"},
		{"{\"event_type\":\"call\",\"customer_id\":\"a\xff\"}", "invalid_customer_id", "customer_id must be UTF-8, without lone surrogates"},
		{`{"event_type":"call","customer_id":"acme","idempotency_key":"\ude00"}`, "invalid_idempotency_key", "idempotency_key must be UTF-8, without lone surrogates"},
		{`{"event_type":"call","customer_id":"acme","timestamp":"\ude00"}`, "invalid_timestamp", "timestamp must be UTF-8, without lone surrogates"},
		{`{"event_type":"call","customer_id":"acme","\ud800":1}`, "invalid_event", "event must have field names that are UTF-8, without lone surrogates"},
		{`{"event_type":"call","customer_id":"acme","properties":{"p":` + strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000) + `}}`, "properties_too_large", "properties must have at most 16384 bytes"},
		{`{"event_type":"call","customer_id":"acme","properties":{"p":` + strings.Repeat(`{"a":[1,"]}\"",`, 10_000) + `{}` + strings.Repeat(`]}`, 10_000) + `}}`, "properties_too_large", "properties must have at most 16384 bytes"},
		{`{"event_type":"call","customer_id":"acme","value":` + strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000) + `}`, "invalid_value", "value must have at most 64 characters"},
		{strings.Repeat(`[`, 20_000) + `1` + strings.Repeat(`]`, 20_000), "invalid_event", "event must be an object"},
	}
	const good = `{"event_type":"call","customer_id":"acme","value":3}`
	events := []string{good}
	for _, c := range bad {
		events = append(events, c.event, good)
	}
	a := b.send(t, "POST", "/v1/events/batch", `{"events":[`+strings.Join(events, ",")+`]}`)
	require.Equal(t, 200, a.status, a.body)
	require.Contains(t, a.body, fmt.Sprintf(`"accepted":%d,"rejected":%d,`, len(bad)+1, len(bad)))
	for i, c := range bad {
		require.Contains(t, a.body, fmt.Sprintf(`{"index":%d,"code":%q,"message":"%s"}`, 2*i+1, c.code, c.message))
		b.send(t, "POST", "/v1/events", c.event).problem(t, 422, "invalid")
	}
	require.Equal(t, fmt.Sprintf(`{"total":%d}`, 3*(len(bad)+1)), b.total(t, "acme"))
	b.send(t, "GET", "/v1/customers/other", "").problem(t, 404, "not_found")
}

// TestAnUnknownFieldOfAnEventIsAWarning checks that an unknown field produces a warning, also if its name differs
// from the name of a known field only by case, or by a letter such as ſ that case folding equates with s.
func TestAnUnknownFieldOfAnEventIsAWarning(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	deep := strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000)
	result := b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":2,"VALUE":1000,"cuſtomer_id":"x","deep":`+deep+`}`)
	require.Equal(t, []string{
		`unknown field "VALUE" of events[0] is ignored`, `unknown field "cuſtomer_id" of events[0] is ignored`, `unknown field "deep" of events[0] is ignored`,
	}, result.Warnings)
	require.Equal(t, `{"total":2}`, b.total(t, "acme"))
	batch := b.ingest(t, "/v1/events/batch", `{"Events":[],"deep":`+deep+`,"events":[{"event_type":"call","customer_id":"acme"}]}`)
	require.Equal(t, client.IngestResult{Accepted: 1, Warnings: []string{
		`unknown field "Events" of the request is ignored`, `unknown field "deep" of the request is ignored`,
	}, Errors: []client.IngestError{}}, batch)
}

func TestBatchWithRepeatedFieldNameStoresNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	event := func(customer string) string { return `{"event_type":"call","customer_id":"` + customer + `"}` }
	for body, location := range map[string]string{
		`{"events":[` + event("a") + `],"events":[` + event("b") + `]}`:             "body.events",
		`{"events":[` + event("a") + `],"\u0065vents":[]}`:                          "body.events",
		`{"source":1,"events":[` + event("a") + `],"source":2}`:                     "body.source",
		`{"` + strings.Repeat("é", 50) + `":1,"` + strings.Repeat("é", 50) + `":1}`: "body." + strings.Repeat("é", 32) + "…",
	} {
		b.requireRefused(t, badRequest{method: http.MethodPost, path: "/v1/events/batch"}, body, location, "must be given once")
	}
	b.send(t, "GET", "/v1/customers/a", "").problem(t, 404, "not_found")
}

func TestTooDeeplyNestedBodyIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := `{"external_id":"a","metadata":{"a":` + strings.Repeat(`[`, 10_000) + strings.Repeat(`]`, 10_000) + `}}`
	require.Contains(t, b.send(t, "POST", "/v1/customers", body).problem(t, 400, "malformed").Detail, "must have at most 10000 nested levels")
}
