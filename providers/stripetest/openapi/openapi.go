// Package openapi asks stripe-mock whether a request is one that Stripe's
// OpenAPI document allows. It is for tests: nothing else needs the document.
package openapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/stripe/stripe-mock/embedded"
	"github.com/stripe/stripe-mock/server"
)

// Validator returns a function that says what is wrong with a request.
func Validator() (func(*http.Request) error, error) {
	document, err := server.LoadSpec(embedded.OpenAPISpec, "")
	if err != nil {
		return nil, fmt.Errorf("load document: %w", err)
	}
	fixtures, err := server.LoadFixtures(embedded.OpenAPIFixtures, "")
	if err != nil {
		return nil, fmt.Errorf("load fixtures: %w", err)
	}
	mock, err := server.NewStubServer(fixtures, document, false, false)
	if err != nil {
		return nil, fmt.Errorf("make mock: %w", err)
	}
	var mu sync.Mutex
	return func(request *http.Request) error {
		mu.Lock()
		defer mu.Unlock()
		answer := httptest.NewRecorder()
		anyone := request.Clone(request.Context())
		anyone.Header.Set("Authorization", "Bearer sk_test_123") // the mock knows one form of key
		mock.HandleRequest(answer, anyone)
		if answer.Code != http.StatusOK {
			return fmt.Errorf("stripe-mock answers %d: %s", answer.Code, answer.Body)
		}
		return nil
	}, nil
}
