package receiver_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/receiver"
)

const (
	secret = receiver.Secret
	other  = "whsec_ZZZZZZZ1Njc4OWFiY2RlZjAxMjM0NTY3"
)

func TestReceiverStoresRequestsAndChecksSignatures(t *testing.T) {
	began := time.Now()
	server := start(t)
	require.Equal(t, http.StatusNoContent, deliver(t, server, secret, `{"total":"1.50"}`))
	require.Equal(t, http.StatusUnauthorized, deliver(t, server, other, `{"total":"9"}`))

	got := received(t, server)
	require.Len(t, got, 2)
	require.True(t, got[0].SignatureValid)
	require.Equal(t, `{"total":"1.50"}`, got[0].Body)
	require.Equal(t, "/usage", got[0].Path)
	require.Equal(t, "msg_1", got[0].Headers["Webhook-Id"])
	require.WithinRange(t, got[0].At, began, time.Now())
	require.False(t, got[1].SignatureValid)

	ask(t, http.MethodDelete, server.URL+"/received", "")
	require.Empty(t, received(t, server))
}

func TestReceiverFailsRequestedNumberOfTimes(t *testing.T) {
	server := start(t)
	ask(t, http.MethodPost, server.URL+"/behave", `{"status":503,"times":2}`)
	require.Equal(t, 503, deliver(t, server, secret, "a"))
	require.Equal(t, 503, deliver(t, server, secret, "b"))
	require.Equal(t, 204, deliver(t, server, secret, "c"))
	require.Len(t, received(t, server), 3, "refused deliveries are stored too")
}

func TestReceiverStoresRequestThoughResponseIsDropped(t *testing.T) {
	server := start(t)
	ask(t, http.MethodPost, server.URL+"/behave", `{"drop_answer":true}`)
	require.Zero(t, deliver(t, server, secret, "a"), "the connection is cut")
	require.Equal(t, 204, deliver(t, server, secret, "a"))
	require.Len(t, received(t, server), 2)
}

// start starts a receiver and returns its server.
func start(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(receiver.New(secret))
	t.Cleanup(server.Close)
	return server
}

// deliver sends a signed message and returns the status of the response, or 0 without a response.
func deliver(t *testing.T, server *httptest.Server, secret, body string) int {
	t.Helper()
	webhook, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	at := time.Now()
	signature, err := webhook.Sign("msg_1", at, []byte(body))
	require.NoError(t, err)

	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/usage", strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("webhook-id", "msg_1")
	request.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	request.Header.Set("webhook-signature", signature)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode
}

// received returns the stored deliveries.
func received(t *testing.T, server *httptest.Server) []receiver.Delivery {
	t.Helper()
	deliveries, err := receiver.Received(t.Context(), server.URL)
	require.NoError(t, err)
	return deliveries
}

// ask sends a request that changes the receiver.
func ask(t *testing.T, method, url, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusNoContent, answer.StatusCode)
}
