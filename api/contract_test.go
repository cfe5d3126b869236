package api_test

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	contracts "github.com/odometer-metering/odometer/dev/contract"
	"github.com/odometer-metering/odometer/providers"
)

// contractOf returns a function that creates the OpenAPI document of an API with these providers once, and returns its
// router.
func contractOf(kinds providers.Registry) func() (routers.Router, error) {
	return sync.OnceValues(func() (routers.Router, error) {
		_, text, err := api.Documents(kinds)
		return routerOf(text, err)
	})
}

// routerOf returns the router of a document. It closes the schemas, so that validation fails for a field that the
// document lacks.
func routerOf(text []byte, err error) (routers.Router, error) {
	if err != nil {
		return nil, err
	}
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	contracts.Close(document)
	return legacy.NewRouter(document)
}

var stringsContract = sync.OnceValues(func() (routers.Router, error) { return routerOf(api.StringsDocument(known)) })

var contract = func() func() (routers.Router, error) {
	openapi3filter.RegisterBodyDecoder("text/html", openapi3filter.FileBodyDecoder) // before any test reads a response
	return sync.OnceValues(func() (routers.Router, error) {
		_, text, err := documents()
		return routerOf(text, err)
	})
}()

// documented checks that the response conforms to the document, with its decimals as numbers and as strings.
func (a answer) documented(t testing.TB, contract func() (routers.Router, error), request *http.Request) {
	t.Helper()
	if request.Header.Get("Odometer-Numbers") == "string" {
		contract = stringsContract
	}
	input := a.requireValid(t, contract, request)
	if input == nil {
		return // not an operation
	}
	if quoted := api.Quoted(input.Route.Operation.OperationID, a.status, []byte(a.body)); quoted != nil && request.Header.Get("Odometer-Numbers") == "" {
		schema := input.Route.Operation.Responses.Status(a.status).Value.Content["application/json"].Schema.Value
		value := exactly(t, string(quoted))
		requireStrings(t, schema, value)
		require.Equal(t, exactly(t, a.body), asNumbers(schema, value))
	}
}

// requireValid validates the response against the OpenAPI document. It returns nil if the request is not an operation
// of the document.
func (a answer) requireValid(t testing.TB, contract func() (routers.Router, error), request *http.Request) *openapi3filter.RequestValidationInput {
	t.Helper()
	router, err := contract()
	require.NoError(t, err)
	route, parameters, err := router.FindRoute(request)
	if err != nil {
		return nil
	}
	input := &openapi3filter.RequestValidationInput{Request: request, PathParams: parameters, Route: route}
	err = openapi3filter.ValidateResponse(t.Context(), (&openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: a.status, Header: a.header,
	}).SetBodyBytes([]byte(a.body)))
	require.NoError(t, err, "%s %s", request.Method, request.URL.Path)
	return input
}

// requireStrings checks that no value of a decimal field is a JSON number.
func requireStrings(t testing.TB, schema *openapi3.Schema, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if of := schema.Properties[name]; of != nil {
				requireStrings(t, of.Value, field)
			} else if of := schema.AdditionalProperties.Schema; of != nil {
				requireStrings(t, of.Value, field)
			}
		}
	case []any:
		for _, one := range value {
			requireStrings(t, schema.Items.Value, one)
		}
	case json.Number:
		require.NotEqual(t, "decimal", schema.Format, "a decimal is a number")
	}
}
