package main

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/expect"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/dev/receiver"
)

// createAlert creates the alert on the quota and the webhook that receives its messages.
func (d *drill) createAlert() {
	d.Helper()
	d.hooks = proc.Serve(d, receiver.NewIgnoringTime(receiver.Secret)) // the drill's clock is ahead of the receiver's
	hook, err := d.api.CreateWebhookWithResponse(d.Context(), nil, client.CreateWebhook{
		Url: d.hooks, Secret: new(receiver.Secret), EventTypes: []client.CreateWebhookEventTypes{client.CreateWebhookEventTypesAlertTriggered},
	})
	require.NoError(d, expect.Status("create webhook", hook, err, http.StatusCreated))
	created, err := d.api.CreateAlertWithResponse(d.Context(), nil, client.AlertDefinition{
		Name: "calls of " + customer, Type: client.AlertDefinitionTypeQuota, Customer: new(customer), Meter: new(meter),
		Thresholds: &[]json.Number{warning, "100"},
	})
	require.NoError(d, expect.Status("create alert", created, err, http.StatusCreated))
	d.alert = created.JSON201.Id
}

// awaitWarning waits for the message of a threshold, checks and prints it. It ignores messages of other thresholds,
// because a message can arrive more than once.
func (d *drill) awaitWarning(threshold json.Number, used, left string) {
	d.Helper()
	var message client.AlertTriggered
	dbtest.Eventually(d, func() (err error) {
		message, err = d.findMessage(threshold)
		return err
	})
	require.Equal(d, []any{d.alert, customer, threshold}, []any{message.Alert.Id, message.CustomerExternalId, message.Value})
	d.show(d.clock.Now().Format("15:04"), "message alert.triggered", used, left, "warned: "+string(threshold)+" % is used")
}

// findMessage returns a message of the threshold with a valid signature.
func (d *drill) findMessage(threshold json.Number) (client.AlertTriggered, error) {
	deliveries, err := receiver.Received(d.Context(), d.hooks)
	if err != nil {
		return client.AlertTriggered{}, err
	}
	for _, delivery := range deliveries {
		var message client.MessageOfAlertTriggered
		if err := json.Unmarshal([]byte(delivery.Body), &message); err != nil {
			d.Fatalf("%v: %s", err, delivery.Body)
		}
		if delivery.SignatureValid && message.Data.Threshold == threshold {
			return message.Data, nil
		}
	}
	return client.AlertTriggered{}, fmt.Errorf("no message of %s %%", threshold)
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
