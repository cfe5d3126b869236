package api_test

import (
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

// contractOf is the document of an API with these providers.
func contractOf(kinds providers.Registry) func() (routers.Router, error) {
	return sync.OnceValues(func() (routers.Router, error) {
		_, text, err := api.Documents(kinds)
		if err != nil {
			return nil, err
		}
		document, err := openapi3.NewLoader().LoadFromData(text)
		if err != nil {
			return nil, err
		}
		contracts.Close(document)
		return legacy.NewRouter(document)
	})
}

var contract = func() func() (routers.Router, error) {
	openapi3filter.RegisterBodyDecoder("text/html", openapi3filter.FileBodyDecoder) // before any test reads an answer
	return contractOf(known)
}()

// documented requires that an answer is one that the document describes.
func (a answer) documented(t testing.TB, contract func() (routers.Router, error), request *http.Request) {
	t.Helper()
	router, err := contract()
	require.NoError(t, err)
	route, parameters, err := router.FindRoute(request)
	if err != nil {
		return // not an operation
	}
	err = openapi3filter.ValidateResponse(t.Context(), (&openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, PathParams: parameters, Route: route},
		Status:                 a.status,
		Header:                 a.header,
	}).SetBodyBytes([]byte(a.body)))
	require.NoError(t, err, "%s %s", request.Method, request.URL.Path)
}
