package metering_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestQuotaPercentIsRoundedDownToTwoDecimals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ used, reserved, limit, percent string }{
		{"0", "0", "10", "0"},
		{"8", "0", "10", "80"},
		{"5", "3", "10", "80"},
		{"2", "0", "3", "66.66"},
		{"7.999999999999", "0", "10", "79.99"},
		{"-1", "0", "10", "-10"},
		{"999999999999999999", "0", "0.000000000001", "99999999999999999900000000000000"},
		{"0", "0", "0", "0"},
		{"-1", "0", "0", "0"},
		{"0", "0.1", "0", "100"},
	} {
		limit := metering.MustDecimal(c.limit)
		l := metering.QuotaLevel{Quota: metering.Quota{Limit: &limit}, Used: metering.MustDecimal(c.used), Reserved: metering.MustDecimal(c.reserved)}
		require.Equal(t, c.percent, l.Percent().String(), "%+v", c)
	}
}
