package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/expect"
)

const webhookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"

// createAlert creates the alert on the quota and the webhook that receives its messages.
func (d *drill) createAlert() {
	d.Helper()
	verifier, err := standardwebhooks.NewWebhook(webhookSecret)
	require.NoError(d, err)
	receiver := httptest.NewServer(d.receiver(verifier))
	d.Cleanup(receiver.Close)
	hook, err := d.api.CreateWebhookWithResponse(d.Context(), nil, client.CreateWebhook{
		Url: receiver.URL, Secret: new(webhookSecret), EventTypes: []client.CreateWebhookEventTypes{client.CreateWebhookEventTypesAlertTriggered},
	})
	require.NoError(d, expect.Status("create webhook", hook, err, http.StatusCreated))
	created, err := d.api.CreateAlertWithResponse(d.Context(), nil, client.AlertDefinition{
		Name: "calls of " + customer, Type: client.AlertDefinitionTypeQuota, Customer: new(customer), Meter: new(meter),
		Thresholds: &[]json.Number{warning, "100"},
	})
	require.NoError(d, expect.Status("create alert", created, err, http.StatusCreated))
	d.alert = created.JSON201.Id
}

// receiver verifies each message and sends it to d.messages. It does not check the timestamp, because the
// drill's clock can be ahead of the verifier's.
func (d *drill) receiver(verifier *standardwebhooks.Webhook) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || verifier.VerifyIgnoringTimestamp(body, r.Header) != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var message client.MessageOfAlertTriggered
		if err := json.Unmarshal(body, &message); err != nil {
			d.Errorf("%v: %s", err, body)
		}
		d.messages <- message.Data
		w.WriteHeader(http.StatusNoContent)
	})
}

// warned waits for the message of a threshold. It ignores messages of other thresholds, because a message
// can arrive more than once.
func (d *drill) warned(threshold json.Number, used, left string) {
	d.Helper()
	deadline := time.After(dbtest.Deadline)
	var message client.AlertTriggered
	for message.Threshold != threshold {
		select {
		case message = <-d.messages:
		case <-deadline:
			require.FailNow(d, "no message", "of %s %%", threshold)
		}
	}
	require.Equal(d, []any{d.alert, customer, threshold}, []any{message.Alert.Id, message.CustomerExternalId, message.Value})
	d.show(d.clock.Now().Format("15:04"), "message alert.triggered", used, left, "warned: "+string(threshold)+" % is used")
}

// requireWarnings checks that each of the thresholds has fired once, and no other.
func (d *drill) requireWarnings(thresholds ...json.Number) {
	d.Helper()
	listed, err := d.api.ListFiringsWithResponse(d.Context(), d.alert, nil)
	require.NoError(d, expect.Status("list firings", listed, err, http.StatusOK))
	var fired []json.Number
	for _, firing := range listed.JSON200.Data {
		fired = append(fired, firing.Threshold)
	}
	require.ElementsMatch(d, thresholds, fired)
}
