package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// countedTariff counts how often a charge is calculated.
type countedTariff struct {
	*tariff

	calculated *int
}

func (c countedTariff) Lines(units metering.Decimal) []billing.PriceLine {
	*c.calculated++
	return c.tariff.Lines(units)
}

func TestTheChargesOfAPeriodAreCalculatedOnceForAllAlerts(t *testing.T) {
	t.Parallel()
	calculations := func(alerts int) (n int) {
		f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 9), subscribed(january)))
		f.Side.Destinations[0].Price = countedTariff{&tariff{"price_1", "EUR", tariffOf(1, 1, 0)}, &n}
		f.Usage = []billing.Usage{used(january, "10")}
		values := billing.ReadAlerts(f, billing.OpenPeriods(f)[0])
		for range alerts {
			value, counted := values.Of(metering.Alert{Type: metering.SpendAlert, Currency: "EUR"})
			require.True(t, counted)
			require.Equal(t, "2.86", value.String())
		}
		return n
	}
	require.Positive(t, calculations(1))
	require.Equal(t, calculations(1), calculations(100))
}
