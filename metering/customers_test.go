package metering_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestCustomerValidate(t *testing.T) {
	require.NoError(t, metering.Customer{ExternalID: "acme"}.Validate())
	require.NoError(t, metering.Customer{ExternalID: "acme", Metadata: json.RawMessage(`{"a":"\ud83d\ude00 �"}`)}.Validate())
	require.Error(t, metering.Customer{ExternalID: "acme", Metadata: json.RawMessage(`{"a":"\ud83d �"}`)}.Validate())
	text := func(s string) *string { return &s }
	for location, c := range map[string]metering.Customer{
		"":                         {ExternalID: "acme", Name: strings.Repeat("x", 255), Metadata: json.RawMessage(`{"a":"\u00e9"}`)},
		"body.external_id":         {ExternalID: strings.Repeat("x", 256), Metadata: json.RawMessage(`{}`)},
		"body.name":                {ExternalID: "acme", Name: "\x00", Metadata: json.RawMessage(`{}`)},
		"body.billing_provider_id": {ExternalID: "acme", BillingProviderID: text(""), Metadata: json.RawMessage(`{}`)},
		"body.metadata":            {ExternalID: "acme", Metadata: json.RawMessage(`{"a":"\u0000"}`)},
	} {
		err := c.Validate()
		if location == "" {
			require.NoError(t, err)
			continue
		}
		var coded *metering.Error
		require.ErrorAs(t, err, &coded)
		require.Equal(t, location, coded.Fields[0].Location)
	}
}
