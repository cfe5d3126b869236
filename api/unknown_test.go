package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
)

// TestUnknownParametersAndUnexpectedBodiesAreRefused checks that unknown or repeated parameters and unexpected bodies
// are refused. Otherwise a caller could rely on a parameter or a field that is ignored.
func TestUnknownParametersAndUnexpectedBodiesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	document := olderDocument(t)
	for path, item := range document.Paths.Map() {
		for method, op := range item.Operations() {
			good := goodRequest(method, path, op)
			for _, name := range []string{"external_id", "slug", "id", "tenant_id", "period"} {
				good = good.with("path", name, goodValue(name))
			}
			send := func(query, body string) answer {
				return b.send(t, method, good.path+"?"+query, body)
			}
			if op.OperationID == "begin-oidc" || op.OperationID == "finish-oidc" {
				require.NotContains(t, send("state=a&code=b&session_state=c", "").body, "query.session_state", "issuers add to it, and OAuth 2.0 has clients ignore that; so do programs that mail a link")
				continue
			}
			p := send(good.query.Encode()+"&acton=x", "").problem(t, 422, "invalid")
			require.Equal(t, "query.acton", p.Errors[0].Location, op.OperationID)
			require.Contains(t, p.Detail, "query.acton is not a parameter of this operation")
			for name := range good.query {
				p := send(good.query.Encode()+"&"+name+"=twice", "").problem(t, 422, "invalid")
				require.Equal(t, []api.FieldProblem{{Location: "query." + name, Message: "must be given once"}}, p.Errors, op.OperationID)
			}
			require.Equal(t, "query", send("a=%zz", "").problem(t, 422, "invalid").Errors[0].Location, op.OperationID)
			if op.RequestBody == nil && method != http.MethodGet {
				require.Equal(t, "body", send(good.query.Encode(), `{"reason":"x"}`).problem(t, 422, "invalid").Errors[0].Location, op.OperationID)
			}
		}
	}
}

func TestUnknownParameterErrorListsParameters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "model")
	detail := func(path string) string { return b.send(t, "GET", path, "").problem(t, 422, "invalid").Detail }
	require.Equal(t, "query.action is not a parameter of this operation; available: page_size, page_token, archived, search", detail("/v1/customers?action=meter.create"))
	require.Equal(t, "query.customers is not a parameter of this operation; available: meter, customer, granularity, timezone, group_by, start, end, page_size, page_token, filter.<property>",
		detail("/v1/usage?meter=calls&customers=acme"))
	require.Equal(t, "query.a is not a parameter of this operation; it has none", detail("/v1/tenant?a=b"))
	require.Len(t, b.send(t, "GET", "/v1/tenant?"+strings.Repeat("long", 500)+"=b", "").problem(t, 422, "invalid").Errors[0].Location, 120+len("…"))
}

// TestRequestBodySchemasAllowNoUnknownFields checks that bodies do not allow unknown fields. The exceptions are events,
// which get a warning, and objects with names that a client or a provider chooses.
func TestRequestBodySchemasAllowNoUnknownFields(t *testing.T) {
	t.Parallel()
	document := olderDocument(t)
	open := map[string]bool{}
	for _, item := range document.Paths.Map() {
		for _, op := range item.Operations() {
			if op.RequestBody == nil {
				continue
			}
			for _, media := range op.RequestBody.Value.Content {
				openObjects(op.OperationID, media.Schema.Value, open)
			}
		}
	}
	require.Equal(t, map[string]bool{
		"set-pricing.dimensions.prices.match": true, "preview-pricing.dimensions.prices.match": true,
		"set-plan-pricing.dimensions.prices.match": true, "preview-plan-pricing.dimensions.prices.match": true,
		"set-customer-pricing.dimensions.prices.match": true, "calculate-charges.dimensions.prices.match": true, "calculate-charges.usage.by_dimension.dimension": true, "preview-customer-pricing.dimensions.prices.match": true,
		"ingest-event": true, "ingest-event.properties": true, "ingest-events": true, "ingest-events.events": true, "ingest-events.events.properties": true,
		"create-customer.metadata": true, "upsert-customer.metadata": true, "save-billing-provider.mapping": true, "save-billing-provider.products": true,
		"receive-provider-event": true, "create-alert.group": true, "dry-run-alert.group": true, "set-quota.group": true, "check-quotas.checks.group": true, "reserve-quota.amounts.group": true, "set-plan-features.features": true, "settle-reservation": true, "settle-reservation.events": true, "settle-reservation.events.properties": true,
	}, open)
}

// openObjects adds the locations of objects that allow unknown fields to open.
func openObjects(place string, schema *openapi3.Schema, open map[string]bool) {
	for name, p := range schema.Properties {
		openObjects(place+"."+name, p.Value, open)
	}
	if schema.Items != nil {
		openObjects(place, schema.Items.Value, open)
	}
	for _, one := range append(schema.OneOf, schema.AnyOf...) {
		openObjects(place, one.Value, open)
	}
	closed := schema.AdditionalProperties.Has != nil && !*schema.AdditionalProperties.Has
	if schema.Type.Is("object") && !closed {
		open[place] = true
	}
}

// TestAnEmptyParameterIsRefused checks that an empty parameter is refused. Otherwise an unset variable of the
// caller would widen the scope of the request.
func TestAnEmptyParameterIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	document := olderDocument(t)
	tried := 0
	for path, item := range document.Paths.Map() {
		for method, op := range item.Operations() {
			if op.OperationID == "begin-oidc" || op.OperationID == "finish-oidc" {
				continue // issuers add parameters
			}
			good := goodRequest(method, path, op)
			for _, name := range []string{"external_id", "slug", "id", "tenant_id", "period"} {
				good = good.with("path", name, goodValue(name))
			}
			for _, p := range op.Parameters {
				if p.Value.In != "query" || p.Value.Name == "filter" {
					continue
				}
				schema := p.Value.Schema.Value
				if p.Value.AllowEmptyValue {
					require.Equal(t, "group_by", p.Value.Name)
					continue
				}
				require.True(t, !schema.Type.Is("string") || schema.Format == "date-time" || schema.MinLength == 1 || len(schema.Enum) > 0, "%s: %s", op.OperationID, p.Value.Name)
				problem := b.send(t, method, good.path+"?"+good.with("query", p.Value.Name, "").query.Encode(), "").problem(t, 422, "invalid")
				require.Equal(t, "query."+p.Value.Name, problem.Errors[0].Location, op.OperationID)
				require.Contains(t, problem.Detail, "must not be empty", op.OperationID)
				tried++
			}
		}
	}
	require.Greater(t, tried, 90)
	for _, query := range []string{"customer", "customer=", "customer=acme&meter="} {
		b.send(t, "GET", "/v1/usage/total?"+query, "").problem(t, 422, "invalid")
	}
}
