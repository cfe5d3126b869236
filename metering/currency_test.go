package metering_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestACurrencyIsOneOfISO4217(t *testing.T) {
	t.Parallel()
	for currency, digits := range map[string]int32{
		"USD": 2, "EUR": 2, "HUF": 2, "SLE": 2, "VED": 2, "XCG": 2, "ZWG": 2, "MRU": 2, "JPY": 0, "ISK": 0, "XOF": 0, "KWD": 3, "IQD": 3, "CLF": 4, "UYW": 4,
	} {
		require.NoError(t, metering.ValidCurrency("body.currency", currency), currency)
		require.Equal(t, digits, metering.MinorDigits(currency), currency)
	}
	for _, code := range []string{
		"", "US", "USDX", "U$D", "usd", "ÄÖ", " USD", "ZZZ", "XXX", "XTS", "XAU", "XAG", "XPT", "XPD", "XDR", "XSU", "XUA", "XBA", "XBD", "USN", "CHE", "CHW",
		"BGN", "HRK", "SLL", "ANG", "ZWL", "VEF", "DEM", "BTC",
	} {
		err := metering.ValidCurrency("body.currency", code)
		var invalid *metering.Error
		require.ErrorAs(t, err, &invalid, "%q", code)
		require.Equal(t, "body.currency", invalid.Fields[0].Location)
	}
}
