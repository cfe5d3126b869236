package main_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
)

const ofBob = `{"event_type":"call","customer_id":"bob","idempotency_key":"bob's","properties":{"mail":"bob@example.com"}}`

// erasedCustomers checks that the API, which ingests, and the worker, which erases, use the same digests of erased
// idempotency keys.
func erasedCustomers(t *testing.T, r running) {
	o := r.owner(t)
	ask := func(method, path, body string, status int) string {
		t.Helper()
		got, answer := call(t, method, o.url+path, o.key, body)
		require.Equal(t, status, got, answer)
		return answer
	}
	ask("POST", "/v1/events", ofBob, http.StatusOK)
	ask("POST", "/v1/customers/bob/erase", `{"confirm":"bob","reason":"he has asked for it"}`, http.StatusAccepted)
	dbtest.Eventually(t, func() error {
		_, left := callUntilAnswered(t, "GET", o.url+"/v1/events", o.key, "")
		if strings.Contains(left, "bob") {
			return errors.New(left)
		}
		return nil
	})
	require.Contains(t, ask("POST", "/v1/events", ofBob, http.StatusOK), `"duplicates":1`, "a repeat of an erased event adds nothing")
}

// archivedCustomers checks that an event restores an archived customer.
func archivedCustomers(t *testing.T, r running) {
	o := r.owner(t)
	for _, request := range []struct{ method, path, body string }{
		{"POST", "/v1/events", ofBob},
		{"POST", "/v1/customers/bob/archive", ""},
		{"POST", "/v1/events", strings.Replace(ofBob, "bob's", "another", 1)},
	} {
		status, answer := call(t, request.method, o.url+request.path, o.key, request.body)
		require.Equal(t, http.StatusOK, status, answer)
	}
	status, listed := callUntilAnswered(t, "GET", o.url+"/v1/customers", o.key, "")
	require.Equal(t, http.StatusOK, status, listed)
	require.Contains(t, listed, `"external_id":"bob"`)
}
