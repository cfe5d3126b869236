package api_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

// objectsOf calls visit for a schema and each schema that it contains or refers to. It also passes the location of each
// schema.
func objectsOf(place string, schema *openapi3.SchemaRef, seen map[*openapi3.Schema]bool, visit func(string, *openapi3.Schema)) {
	if schema == nil || seen[schema.Value] {
		return
	}
	seen[schema.Value] = true
	if schema.Ref != "" {
		place = schema.Ref
	}
	visit(place, schema.Value)
	for name, field := range schema.Value.Properties {
		objectsOf(place+"."+name, field, seen, visit)
	}
	for _, one := range slices.Concat(schema.Value.OneOf, schema.Value.AnyOf, schema.Value.AllOf) {
		objectsOf(place, one, seen, visit)
	}
	objectsOf(place+"[]", schema.Value.Items, seen, visit)
	objectsOf(place+"{}", schema.Value.AdditionalProperties.Schema, seen, visit)
}

// sentByTheService calls visit for the schemas of every response and message.
func sentByTheService(document *openapi3.T, visit func(string, *openapi3.Schema)) {
	seen := map[*openapi3.Schema]bool{}
	for path, item := range document.Paths.Map() {
		for method, op := range item.Operations() {
			for status, response := range op.Responses.Map() {
				for _, body := range response.Value.Content {
					objectsOf(method+" "+path+" "+status, body.Schema, seen, visit)
				}
			}
			for name, callback := range op.Callbacks {
				for _, message := range callback.Value.Map() {
					objectsOf(name, message.Post.RequestBody.Value.Content["application/json"].Schema, seen, visit)
				}
			}
		}
	}
	for name, item := range document.Webhooks {
		objectsOf(name, item.Post.RequestBody.Value.Content["application/json"].Schema, seen, visit)
	}
}

func TestResponseSchemasAllowAdditionalFields(t *testing.T) {
	t.Parallel()
	for version, document := range bothDocuments(t) {
		objects := 0
		sentByTheService(document, func(place string, schema *openapi3.Schema) {
			if schema.Type.Is("object") {
				objects++
			}
			closed := schema.AdditionalProperties.Has != nil && !*schema.AdditionalProperties.Has
			require.False(t, closed, "%s: a generated client would refuse a field that is added to %s", version, place)
		})
		require.Greater(t, objects, 150, version)
	}
}

// TestOperationsReferToEveryMessage checks that an operation refers to each message, also in 3.0, which has no
// webhooks. Some generators create only the types to which an operation refers.
func TestOperationsReferToEveryMessage(t *testing.T) {
	t.Parallel()
	for version, document := range bothDocuments(t) {
		reached := map[string]bool{}
		answers := *document
		answers.Webhooks = nil
		sentByTheService(&answers, func(place string, _ *openapi3.Schema) { reached[place] = true })
		for name := range document.Components.Schemas {
			if strings.HasPrefix(name, "MessageOf") {
				require.True(t, reached["#/components/schemas/"+name], "%s: no operation refers to %s", version, name)
			}
		}
	}
}

// TestNoFieldHasADefault checks that no field has a default, because openapi-typescript would make the field
// required.
func TestNoFieldHasADefault(t *testing.T) {
	t.Parallel()
	for version, document := range bothDocuments(t) {
		for name, schema := range document.Components.Schemas {
			for field, of := range schema.Value.Properties {
				require.Nil(t, of.Value.Default, "%s: %s.%s", version, name, field)
			}
		}
		require.Contains(t, document.Components.Schemas["Event"].Value.Properties["value"].Value.Description, "Default: 1")
	}
}

// TestSchemaNamesDifferByMoreThanCase checks that names differ by more than case. Generators create a type for each
// name and convert the names to the case of their language. In Go, openapi-generator has its own type APIKey.
func TestSchemaNamesDifferByMoreThanCase(t *testing.T) {
	t.Parallel()
	for version, document := range bothDocuments(t) {
		named := map[string]string{"apikey": "a security scheme", "configuration": "a type of generators", "basicauth": "a type of generators"}
		for name := range document.Components.Schemas {
			require.NotRegexp(t, `\d$`, name, "%s: this name was taken already", version)
			require.Empty(t, named[strings.ToLower(name)], "%s: %s", version, name)
			named[strings.ToLower(name)] = name
		}
	}
}

// TestOpenAPI30DocumentIsValid validates the older form of the document by the rules of OpenAPI 3.0.
func TestOpenAPI30DocumentIsValid(t *testing.T) {
	t.Parallel()
	require.NoError(t, bothDocuments(t)["3.0"].Validate(t.Context(), openapi3.DisableExamplesValidation()))
}

func TestRequiredQueryParametersMustNotBeEmpty(t *testing.T) {
	t.Parallel()
	b := setup(t)
	empty := 0
	for path, item := range bothDocuments(t)["3.1"].Paths.Map() {
		for method, op := range item.Operations() {
			for _, p := range op.Parameters {
				if p.Value.In != "query" || !p.Value.Required || !p.Value.Schema.Value.Type.Is("string") {
					continue
				}
				require.Positive(t, p.Value.Schema.Value.MinLength, "%s %s %s", method, path, p.Value.Name)
				request := goodRequest(method, path, op).with("query", p.Value.Name, "")
				b.send(t, method, path+"?"+request.query.Encode(), request.body).problem(t, 422, "invalid")
				empty++
			}
		}
	}
	require.Greater(t, empty, 10)
}

func TestTheDocumentListsTheCodesOfProblems(t *testing.T) {
	t.Parallel()
	for version, document := range bothDocuments(t) {
		code := document.Components.Schemas["Problem"].Value.Properties["code"].Value
		require.Empty(t, code.Enum, "%s: codes are added", version)
		text, err := json.Marshal(code.Extensions["x-extensible-enum"])
		require.NoError(t, err)
		var codes []string
		require.NoError(t, json.Unmarshal(text, &codes))
		require.Subset(t, codes, []string{"invalid", "not_found", "rate_limited", "provider_refused"}, version)
		for _, one := range codes {
			require.Contains(t, code.Description, one, version)
		}
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(codes))), len(codes))
	}
}

func TestFilterParameterMustNameProperty(t *testing.T) {
	t.Parallel()
	b := setup(t)
	problem := b.send(t, "GET", "/v1/usage?meter=calls&customer=acme&filter=large", "").problem(t, 422, "invalid")
	require.Equal(t, "query.filter", problem.Errors[0].Location)
	require.Contains(t, problem.Errors[0].Message, "filter.<property>")
	filter := bothDocuments(t)["3.1"].Paths.Value("/v1/usage").Get.Parameters.GetByInAndName("query", "filter")
	require.Equal(t, "form", filter.Style)
	require.True(t, *filter.Explode)
}
