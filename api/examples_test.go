package api_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// described is the part of the OpenAPI document that these tests read.
type described struct {
	Paths, Webhooks map[string]map[string]describedOperation
	Components      struct {
		Examples map[string]struct{ Value any }
		Schemas  map[string]struct {
			Required   []string
			Properties map[string]any
		}
	}
}

type describedOperation struct {
	OperationID string
	RequestBody struct{ Content map[string]exampled }
	Responses   map[string]struct{ Content map[string]exampled }
}

type exampled struct {
	Schema struct {
		Ref string `json:"$ref"`
	}
	Examples map[string]struct {
		Ref string `json:"$ref"`
	}
}

// describedAPI returns the parts of the OpenAPI document that have examples, and its schemas. It validates the
// examples.
func describedAPI(t testing.TB) (d described, schemas openapi3.Schemas) {
	t.Helper()
	v31, _, err := documents()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(v31, &d))
	document, err := openapi3.NewLoader().LoadFromData(v31)
	require.NoError(t, err)
	require.NoError(t, document.Validate(t.Context(), openapi3.EnableExamplesValidation()))
	return d, document.Components.Schemas
}

func TestEveryBodyHasAnExampleThatItsSchemaAllows(t *testing.T) {
	t.Parallel()
	d, schemas := describedAPI(t)
	bodies := 0
	check := func(place string, contents map[string]exampled) {
		for media, content := range contents {
			if !strings.HasSuffix(media, "json") {
				continue
			}
			bodies++
			require.NotEmpty(t, content.Examples, "%s %s", place, media)
			for name, example := range content.Examples {
				require.Equal(t, "#/components/examples/"+name, example.Ref, place)
				value := d.Components.Examples[name].Value
				require.NotNil(t, value, "%s: no example %s", place, name)
				if schema := schemas[name]; schema != nil {
					require.NoError(t, schema.Value.VisitJSON(value), "%s: %s", place, name)
				}
			}
		}
	}
	for _, items := range []map[string]map[string]describedOperation{d.Paths, d.Webhooks} {
		for path, item := range items {
			for method, op := range item {
				check(method+" "+path, op.RequestBody.Content)
				for status, answer := range op.Responses {
					check(method+" "+path+" "+status, answer.Content)
				}
			}
		}
	}
	require.Greater(t, bodies, 200)
}

func TestExamplesFileHasNoUnusedEntries(t *testing.T) {
	t.Parallel()
	d, _ := describedAPI(t)
	text, err := os.ReadFile("examples.json")
	require.NoError(t, err)
	var told map[string]map[string]any
	require.NoError(t, json.Unmarshal(text, &told))
	required := map[string]bool{}
	for _, schema := range d.Components.Schemas {
		for _, field := range schema.Required {
			required[field] = true
		}
	}
	for field := range told["fields"] {
		require.True(t, required[field], "no schema needs a field %s: it is told for nobody", field)
	}
	delete(told, "fields")
	for name, fields := range told {
		require.Contains(t, d.Components.Schemas, name)
		for field := range fields {
			require.Contains(t, d.Components.Schemas[name].Properties, field, name)
		}
	}
}

// TestServiceAcceptsExampleRequests sends the example requests in the order of a tenant's first day. The fields of
// each response must be those of its example.
func TestServiceAcceptsExampleRequests(t *testing.T) {
	t.Parallel()
	d, _ := describedAPI(t)
	b := setup(t)
	b.ahead.Store(int64(time.Date(2026, 11, 12, 9, 30, 0, 0, time.UTC).Sub(b.now())))
	said := func(content map[string]exampled) (name string, value map[string]any) {
		for name = range content["application/json"].Examples {
			value, _ = d.Components.Examples[name].Value.(map[string]any)
		}
		return name, value
	}
	for _, call := range []string{
		"PATCH /v1/tenant", "POST /v1/meters", "PUT /v1/meters/calls/pricing", "POST /v1/plans", "PUT /v1/plans/pro/pricing/calls",
		"POST /v1/customers", "PUT /v1/customers/acme/upsert", "PUT /v1/customers/acme/plan", "POST /v1/events", "POST /v1/events/batch",
		"GET /v1/usage?customer=acme&meter=calls", "GET /v1/usage/total?customer=acme", "GET /v1/usage/comparison?customer=acme&meter=calls",
		"GET /v1/customers", "GET /v1/meters", "GET /v1/billing/periods?customer=acme", "GET /v1/billing/explain?customer=acme&meter=calls",
		"GET /v1/billing/revenue", "PATCH /v1/meters/calls", "POST /v1/api-keys", "GET /v1/api-keys", "POST /v1/hmac-secrets",
		"PUT /v1/billing/auto-sync", "POST /v1/tenant/members", "GET /v1/audit-log", "GET /v1/usage/export?customer=acme",
	} {
		method, url, _ := strings.Cut(call, " ")
		path, _, _ := strings.Cut(url, "?")
		op := d.Paths[templates.Replace(path)][strings.ToLower(method)]
		require.NotEmpty(t, op.OperationID, call)
		body := ""
		if _, request := said(op.RequestBody.Content); request != nil {
			text, err := json.Marshal(request)
			require.NoError(t, err)
			body = string(text)
		}
		a := b.confirmed(t, method, url, body)
		require.Less(t, a.status, 300, "%s: %s", call, a.body)
		var answer map[string]any
		require.NoError(t, json.Unmarshal([]byte(a.body), &answer))
		name, example := said(op.Responses[strconv.Itoa(a.status)].Content)
		require.ElementsMatch(t, slices.Collect(maps.Keys(answer)), slices.Collect(maps.Keys(example)), "%s does not answer as the example %s says: %s", call, name, a.body)
	}
}

// templates replaces the names in the path of a request by the path parameters of the document.
var templates = strings.NewReplacer("/calls/", "/{slug}/", "/pro/pricing/calls", "/{slug}/pricing/{meter}", "/meters/calls", "/meters/{slug}", "/acme/", "/{external_id}/")

func TestExamplesHaveTextsOfReasonCodes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("examples.json")
	require.NoError(t, err)
	var examples map[string]billing.Text
	require.NoError(t, json.Unmarshal(text, &examples))
	ours, theirs := metering.Whole(1250), metering.Whole(1000)
	notCounted := billing.HoldReason{Code: billing.HoldNotCounted, Ours: &ours, Theirs: &theirs}
	backfilling := billing.ExclusionReason{Code: billing.ExcludedBackfilling}.Text()
	for schema, want := range map[string]billing.Text{
		"ExcludedMeter": backfilling, "Exclusion": backfilling,
		"HoldReason": notCounted.Text("calls"), "InvoiceDisagreement": notCounted.Text("mtr_7"),
		"Reconciliation": billing.ReasonNotBilled.Text(), "Unresolved": billing.ReasonNotBilled.Text(), "ReconciliationDisputed": billing.ReasonBilledMore.Text(),
		"UnratedTotal": billing.NoProviderLink.Text(), "UnratedUsage": billing.NoProviderLink.Text(),
	} {
		require.Equal(t, want, examples[schema], schema)
	}
}
