// Package openapi validates requests and responses against Stripe's OpenAPI document with stripe-mock. Only
// tests use it.
package openapi

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/stripe/stripe-mock/embedded"
	"github.com/stripe/stripe-mock/server"
)

// Validator returns a function that validates a request.
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
		if strings.HasPrefix(request.URL.Path, "/v2/") {
			return nil // the document lacks API v2
		}
		answer := httptest.NewRecorder()
		anyone, err := withoutFields(request, newer)
		if err != nil {
			return err
		}
		anyone.Header.Set("Authorization", "Bearer sk_test_123") // the mock accepts only this form of key
		mock.HandleRequest(answer, anyone)
		if answer.Code != http.StatusOK {
			return fmt.Errorf("stripe-mock answers %d: %s", answer.Code, answer.Body)
		}
		return nil
	}, nil
}

// newer lists the parameters that are newer than the mock's document. The mock does not validate them:
// https://docs.stripe.com/changelog/acacia/2024-10-28/schedule-invoice-finalization and
// https://docs.stripe.com/changelog/basil/2025-06-30/billing-mode
var newer = []string{"automatically_finalizes_at", "billing_mode[type]"}

// withoutFields returns a copy of the request without the given fields of its form.
func withoutFields(request *http.Request, fields []string) (*http.Request, error) {
	less := request.Clone(request.Context())
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, fmt.Errorf("read form: %w", err)
	}
	if slices.ContainsFunc(fields, form.Has) {
		for _, field := range fields {
			form.Del(field)
		}
		body = []byte(form.Encode())
	}
	less.Body, less.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return less, nil
}
