package metering_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestTenantValidate(t *testing.T) {
	good := metering.Tenant{Name: "Acme", Timezone: "Asia/Kathmandu", Currency: "USD", KeyConflicts: metering.AcceptConflicts}
	require.NoError(t, good.Validate())
	for _, zone := range []string{"", "Local", "Mars/Olympus", "right/UTC", "../etc/passwd", "/etc/localtime", "UTC+2", "europe/zurich\x00"} {
		bad := good
		bad.Timezone = zone
		require.Error(t, bad.Validate(), "%q", zone)
	}
	bad := good
	bad.Name = ""
	require.Error(t, bad.Validate())
	bad = good
	bad.Currency = "ZZZ"
	require.Error(t, bad.Validate())
	bad = good
	bad.KeyConflicts = "ignore"
	require.Error(t, bad.Validate())
}
