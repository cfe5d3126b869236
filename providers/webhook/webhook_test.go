package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/receiver"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/webhook"
)

const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

var development = providers.Guard{AllowLoopback: true}

// serve returns the URL of a server with the handler.
func serve(t *testing.T, handler http.Handler) string {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// received returns the deliveries that the receiver at the URL has recorded.
func received(t *testing.T, url string) []receiver.Delivery {
	response, err := http.Get(url + "/received")
	require.NoError(t, err)
	defer response.Body.Close()
	var deliveries []receiver.Delivery
	require.NoError(t, json.NewDecoder(response.Body).Decode(&deliveries))
	return deliveries
}

func TestDeliveredMessageIsSignedAndUnaltered(t *testing.T) {
	t.Parallel()
	url := serve(t, receiver.New(secret))
	body := []byte(`{"type":"usage.statement","data":{"usage":0.1}}`)
	answer, err := webhook.New(development).Deliver(t.Context(), url+"/usage", []string{secret}, "msg_1", time.Now(), body)
	require.NoError(t, err)
	require.Equal(t, 204, answer.Status)

	deliveries := received(t, url)
	require.Len(t, deliveries, 1)
	require.True(t, deliveries[0].SignatureValid)
	require.Equal(t, string(body), deliveries[0].Body)
	require.Equal(t, "/usage", deliveries[0].Path)
	require.Equal(t, "msg_1", deliveries[0].Headers["Webhook-Id"])
	require.Equal(t, "application/json", deliveries[0].Headers["Content-Type"])
}

func TestDeliveryIsSignedWithBothSecretsDuringRotation(t *testing.T) {
	t.Parallel()
	other := strings.Replace(secret, "MDEy", "MDEz", 1)
	for _, known := range []string{secret, other} {
		url := serve(t, receiver.New(known))
		_, err := webhook.New(development).Deliver(t.Context(), url, []string{other, secret}, "msg_1", time.Now(), []byte("{}"))
		require.NoError(t, err)
		require.True(t, received(t, url)[0].SignatureValid)
	}
}

func TestPingIsSignedAndNeeds2xxResponse(t *testing.T) {
	t.Parallel()
	url := serve(t, receiver.New(secret))
	provider := webhook.NewProvider(webhook.New(development))
	now := time.Now()
	identity, err := provider.Validate(t.Context(), providers.Settings{Address: url, Now: now}, providers.Secrets{Call: secret})
	require.NoError(t, err)
	require.Equal(t, providers.Identity{}, identity, "another URL is the same receiver")
	deliveries := received(t, url)
	require.Len(t, deliveries, 1)
	require.True(t, deliveries[0].SignatureValid)
	require.JSONEq(t, fmt.Sprintf(`{"type":"ping","timestamp":%q,"data":{}}`,
		metering.Instant(now).Format(time.RFC3339Nano)), deliveries[0].Body)

	_, err = provider.Validate(t.Context(), providers.Settings{Address: url, Now: now}, providers.Secrets{Call: strings.Replace(secret, "MDEy", "MDEz", 1)})
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
	require.ErrorContains(t, err, "check that it verifies signatures with the saved secret")
}

func TestResponseStatusDecidesWhetherToRetry(t *testing.T) {
	t.Parallel()
	for status, code := range map[int]metering.Code{
		200: "", 202: "", 204: "",
		301: metering.CodeProviderRefuse, 304: metering.CodeProviderRefuse, 307: metering.CodeProviderRefuse,
		400: metering.CodeProviderRefuse, 401: metering.CodeProviderRefuse, 404: metering.CodeProviderRefuse,
		410: metering.CodeProviderRefuse, 422: metering.CodeProviderRefuse,
		408: metering.CodeProviderDown, 409: metering.CodeProviderDown, 425: metering.CodeProviderDown,
		429: metering.CodeProviderDown, 500: metering.CodeProviderDown, 503: metering.CodeProviderDown,
	} {
		url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(status)
		}))
		answer, err := webhook.New(development).Deliver(t.Context(), url, []string{secret}, "msg_1", time.Now(), []byte("{}"))
		require.Equal(t, code, metering.CodeOf(err), "status %d", status)
		require.Equal(t, status, answer.Status)
	}
}

func TestDeliverReturnsRetryAfterUpToOneHour(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-3": 0, "86400": time.Hour, "99999999999999": time.Hour, "soon": 0,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):       0,
	} {
		url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		answer, err := webhook.New(development).Deliver(t.Context(), url, []string{secret}, "msg_1", now, []byte("{}"))
		require.Equal(t, metering.CodeProviderDown, metering.CodeOf(err))
		require.Equal(t, want, answer.RetryAfter, "Retry-After: %s", header)
	}
}

func TestCutConnectionFailsButEndlessResponseSucceeds(t *testing.T) {
	t.Parallel()
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	_, err := webhook.New(development).Deliver(t.Context(), url+"/secret-path", []string{secret}, "msg_1", time.Now(), []byte("{}"))
	require.Equal(t, metering.CodeProviderDown, metering.CodeOf(err))
	require.NotContains(t, err.Error(), "secret-path")

	endless := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}))
	answer, err := webhook.New(development).Deliver(t.Context(), endless, []string{secret}, "msg_1", time.Now(), []byte("{}"))
	require.NoError(t, err)
	require.Equal(t, 200, answer.Status)
}

func TestProductionNeverCallsLoopbackAddress(t *testing.T) {
	t.Parallel()
	reached := false
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	_, err := webhook.New(providers.Guard{}).Deliver(t.Context(), url, []string{secret}, "msg_1", time.Now(), []byte("{}"))
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
	require.ErrorContains(t, err, "not on the public internet")

	byName := strings.Replace(url, "127.0.0.1", "localhost", 1)
	_, err = webhook.New(providers.Guard{}).Deliver(t.Context(), byName, []string{secret}, "msg_1", time.Now(), []byte("{}"))
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
	require.False(t, reached)
}

func TestSecretMustHaveFormOfStandardWebhooks(t *testing.T) {
	t.Parallel()
	require.NoError(t, webhook.CheckSecret("body.secret", secret))
	for _, bad := range []string{"", "whsec_", "whsec_short", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "whsec_!!!!"} {
		err := webhook.CheckSecret("body.secret", bad)
		require.Equal(t, metering.CodeInvalid, metering.CodeOf(err))
		require.NotContains(t, err.Error(), "short")
	}
}

// TestStatementNamesItsBillingSchedule checks that a statement names its billing schedule. Periods of two schedules
// of a customer may begin at the same instant.
func TestStatementNamesItsBillingSchedule(t *testing.T) {
	t.Parallel()
	line := billing.Line{MeterID: 1, MeterSlug: "seats", Quantity: metering.Whole(2), Currency: "USD"}
	for _, stream := range []int{0, 1} {
		framed, err := webhook.Provider{}.Frame(billing.Message{Stream: stream, Report: billing.Report{Lines: []billing.Line{line}}})
		require.NoError(t, err)
		require.Contains(t, string(framed.Body), fmt.Sprintf(`"stream":%d,"period":`, stream))
	}
}
