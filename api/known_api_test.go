package api_test

import (
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
)

// knownAPI returns the OpenAPI document of an API with the known providers. It creates the document once for all
// tests.
var knownAPI = sync.OnceValue(func() (d struct {
	v31, v30 []byte
	err      error
	parsed   map[string]*openapi3.T // by version
}) {
	if d.v31, d.v30, d.err = api.Documents(known); d.err != nil {
		return d
	}
	d.parsed = make(map[string]*openapi3.T)
	for version, text := range map[string][]byte{"3.1": d.v31, "3.0": d.v30} {
		if d.parsed[version], d.err = openapi3.NewLoader().LoadFromData(text); d.err != nil {
			return d
		}
	}
	return d
})

// documents returns the document and its 3.0 form. Callers must not change them.
func documents() (v31, v30 []byte, err error) {
	return knownAPI().v31, knownAPI().v30, knownAPI().err
}

// bothDocuments returns the document and its 3.0 form, by version. Callers must not change them.
func bothDocuments(t testing.TB) map[string]*openapi3.T {
	t.Helper()
	require.NoError(t, knownAPI().err)
	return knownAPI().parsed
}

// olderDocument returns the 3.0 form, for tests that walk all operations. Callers must not change it.
func olderDocument(t testing.TB) *openapi3.T {
	t.Helper()
	return bothDocuments(t)["3.0"]
}
