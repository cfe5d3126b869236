package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
)

// Whoever has used up the demo tenant's minute can start the system again.
func TestWhatIsTooMuchForThisMinuteIsSentInTheNext(t *testing.T) {
	t.Parallel()
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bodies = append(bodies, string(body)); len(bodies) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"accepted":1,"rejected":0,"duplicates":0,"warnings":[],"results":[]}`)
	}))
	t.Cleanup(server.Close)
	api, err := connect(server.URL, "key")
	require.NoError(t, err)
	sent, added, err := sendUsage(t.Context(), api, []client.Event{{EventType: "call", CustomerId: "acme"}})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1}, []int64{sent, added})
	require.Len(t, bodies, 2)
	require.Equal(t, bodies[0], bodies[1])
}
