package client_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/odometer-metering/odometer/client"
)

// describe returns a text for a webhook message, as a receiver could show it. It returns "" if the type has
// no text.
func describe(body []byte) (string, error) {
	var message client.Message
	if err := json.Unmarshal(body, &message); err != nil {
		return "", err
	}
	value, err := message.ValueByDiscriminator() // returns an error for a type of a later version
	if err != nil {
		return "", err
	}
	switch m := value.(type) {
	case client.MessageOfSyncFailed:
		return m.Data.CustomerExternalId + ": " + m.Data.Error, nil
	case client.MessageOfInvoiceHeld:
		return m.Data.InvoiceId + " waits until " + m.Data.Deadline.String(), nil
	case client.MessageOfDiscrepancyDetected:
		return describeDiscrepancy(m.Data)
	}
	return "", nil
}

func describeDiscrepancy(data client.DiscrepancyDetected) (string, error) {
	value, err := data.ValueByDiscriminator()
	if err != nil {
		return "", err
	}
	switch d := value.(type) {
	case client.ReconciliationDisputed:
		return fmt.Sprintf("%s: %s units are unexplained", d.MeterSlug, d.Unexplained), nil
	case client.UsageDisagrees:
		return fmt.Sprintf("%s: %d discrepancies", d.Day, d.Discrepancies), nil
	}
	return "", nil
}

func TestMessagesAreDistinguishedByType(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"type":"sync.failed","timestamp":"2026-12-04T00:10:00Z","data":{"sync_id":"019a7b2c-4d5e-7f60-8a1b-2c3d4e5f6072","error":"the webhook answered 401","tenant_id":"ten_1","customer_id":"cus_42","customer_external_id":"acme"}}`: "acme: the webhook answered 401",
		`{"type":"invoice.held","timestamp":"2026-12-04T00:10:00Z","data":{"invoice_id":"in_1","deadline":"2026-12-07T00:00:00Z"}}`:                                                                                                       "in_1 waits until 2026-12-07 00:00:00 +0000 UTC",
		`{"type":"discrepancy.detected","timestamp":"2026-12-04T00:10:00Z","data":{"kind":"usage_discrepancy","day":"2026-12-03","discrepancies":2,"tenant_id":"ten_1"}}`:                                                                 "2026-12-03: 2 discrepancies",
		`{"type":"discrepancy.detected","timestamp":"2026-12-04T00:10:00Z","data":{"kind":"reconciliation_disputed","meter_slug":"calls","unexplained":123456789012345678.123456789012}}`:                                                 "calls: 123456789012345678.123456789012 units are unexplained",
		`{"type":"webhook.test","timestamp":"2026-12-04T00:10:00Z","data":{"webhook_id":"whk_3"}}`:                                                                                                                                        "",
	} {
		got, err := describe([]byte(body))
		if err != nil || got != want {
			t.Errorf("%s is described as %q (%v), not as %q", body, got, err, want)
		}
	}
	if _, err := describe([]byte(`{"type":"some.later_one","data":{}}`)); err == nil {
		t.Error("an unknown type is no error")
	}
}
