package metering_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestTenantValidate(t *testing.T) {
	good := metering.Tenant{Name: "Acme", Timezone: "Asia/Kathmandu", Currency: "USD"}
	require.NoError(t, good.Validate())
	for _, zone := range []string{"", "Local", "Mars/Olympus", "../etc/passwd", "/etc/localtime", "UTC+2", "europe/zurich\x00"} {
		bad := good
		bad.Timezone = zone
		require.Error(t, bad.Validate(), "%q", zone)
	}
	bad := good
	bad.Name = ""
	require.Error(t, bad.Validate())
	bad = good
	bad.Currency = "dollars"
	require.Error(t, bad.Validate())
}

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

func TestAKeyIsLiveUntilTheInstantItExpiresOrIsRevoked(t *testing.T) {
	expires := now.Add(time.Hour)
	key := metering.APIKey{ExpiresAt: &expires}
	require.True(t, key.Live(expires.Add(-time.Nanosecond)))
	require.False(t, key.Live(expires))
	require.True(t, metering.APIKey{}.Live(now))
	require.False(t, metering.APIKey{RevokedAt: &expires}.Live(now))
}
