package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// A meter without a price is stated in the currency that the others have in
// common, and in the tenant's where they have none.
func TestAStatementsCurrencyAndWorking(t *testing.T) {
	t.Parallel()
	month := billing.Period{Range: span(t, "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")}
	meter := func(id metering.MeterID) metering.Meter {
		return metering.Meter{ID: id, Version: metering.MeterVersion{Status: metering.Complete}}
	}
	price := func(meter metering.MeterID, currency string) []billing.Price {
		return []billing.Price{{MeterID: meter, Version: 1, Terms: billing.Terms{OverageRate: decimal(t, "0.015"), Currency: currency}}}
	}
	facts := billing.Facts{
		Now: instant(t, "2026-01-10T00:00:00Z"), Settings: billing.Settings{Timezone: location(t, "UTC"), Currency: "USD"},
		Meters: []metering.Meter{meter(1), meter(2), meter(3)},
		Prices: map[metering.MeterID][]billing.Price{1: price(1, "EUR"), 2: price(2, "EUR")},
		Usage:  []billing.Usage{{Period: month.Start, MeterID: 1, Total: decimal(t, "3"), Events: 1}},
	}
	s := billing.StatementOf(facts, month)
	require.Len(t, s.Lines, 3)
	require.Equal(t, "EUR", s.Lines[2].Currency)
	require.Equal(t, "0.04", s.Lines[0].Charge.String())
	working := s.Lines[0].Working
	require.Equal(t, "0.045", working[len(working)-2].Amount.String())
	require.Equal(t, billing.StepCharge, working[len(working)-1].Name)
	require.Equal(t, "0.04", working[len(working)-1].Amount.String())

	facts.Prices[2] = price(2, "JPY")
	require.Equal(t, "USD", billing.StatementOf(facts, month).Lines[2].Currency)
}
