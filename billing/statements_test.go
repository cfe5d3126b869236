package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// The statement line of a meter without a price has the currency that the other meters' prices have in common, else
// the tenant's currency.
func TestStatementLineHasCommonCurrencyAndBreakdown(t *testing.T) {
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
	s := billing.NewBooks(facts).StatementOf(month)
	require.Len(t, s.Lines, 3)
	require.Equal(t, "EUR", s.Lines[2].Currency)
	require.Equal(t, "0.04", s.Lines[0].Charge.String())
	working := s.Lines[0].Working
	require.Equal(t, "0.045", working[len(working)-2].Amount.String())
	require.Equal(t, billing.StepCharge, working[len(working)-1].Name)
	require.Equal(t, "0.04", working[len(working)-1].Amount.String())

	facts.Prices[2] = price(2, "JPY")
	require.Equal(t, "USD", billing.NewBooks(facts).StatementOf(month).Lines[2].Currency)
}

func TestStatementShowsPeriodAsOpenInGraceOrClosed(t *testing.T) {
	t.Parallel()
	for now, want := range map[string]billing.PeriodState{
		"2026-01-31T23:59:59.999999Z": billing.PeriodOpen, "2026-02-01T00:00:00Z": billing.PeriodInGrace, "2026-06-01T00:00:00Z": billing.PeriodInGrace,
	} {
		f := knownOf(instant(t, now), billing.Period{Range: january})
		require.Equal(t, want, billing.NewBooks(f).StatementOf(f.Stored[0]).State, now)
	}
	f := knownOf(march.Start, closedAt(january, "10", "1000"))
	require.Equal(t, billing.PeriodClosed, billing.NewBooks(f).StatementOf(f.Stored[0]).State)
}

// The statement of a closed period keeps the adjustments that were reported while it was the target period. The
// amounts of two connections are added up.
func TestClosedPeriodKeepsAdjustmentsThatItBilled(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(second, knownOf(march.Start.AddDate(0, 0, 5), closedAt(january, "10", "1000"), closedAt(february, "3", "300"), billing.Period{Range: march}))
	f = withLate(f, january, "18", "8")
	f.Reported = []billing.Reported{
		adjusted(first, january, february, "5", "500"), adjusted(second, january, february, "2", "200"), adjusted(second, january, march, "1", "100"),
	}
	s := billing.NewBooks(f).StatementOf(f.Stored[1])
	require.Len(t, s.Adjustments, 1)
	a := s.Adjustments[0]
	require.Equal(t, january, a.Closed)
	require.Equal(t, [3]string{"7", "700", "USD"}, [3]string{a.Quantity.String(), a.Amount.String(), a.Currency})
	require.Equal(t, []string{"part 500 USD", "part 200 USD"}, text(a.Working))
	require.Equal(t, "1000", s.Lines[0].Amount.String())
	require.Equal(t, []string{"charge 300 USD", "adjustment 700 USD", "amount_with_adjustments 1000 USD"}, text(s.Lines[0].Working)[7:])

	require.Empty(t, billing.NewBooks(f).StatementOf(f.Stored[0]).Adjustments)
	require.Equal(t, "1000", billing.NewBooks(f).StatementOf(f.Stored[0]).Lines[0].Amount.String(), "what is late is not its own")
	open := billing.NewBooks(f).StatementOf(f.Stored[2])
	require.Equal(t, "100", open.Adjustments[0].Amount.String(), "800 less the 700 that February has billed")
}

// An adjustment with a currency that differs from the meter's line has a separate total.
func TestStatementHasOneTotalPerCurrency(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 5), closedAt(january, "10", "1000"), billing.Period{Range: february}))
	f = withLate(f, january, "17", "7")
	f.Usage = append(f.Usage, used(february, "2"))
	totals := func() (all []string) {
		for _, t := range billing.NewBooks(f).StatementOf(f.Stored[1]).Totals() {
			all = append(all, t.Amount.String()+" "+t.Currency+", of which "+t.Adjustments.String())
		}
		return all
	}
	require.Equal(t, []string{"900 USD, of which 700"}, totals())

	f.Prices[1] = append(f.Prices[1], billing.Price{MeterID: 1, Version: 2, Terms: billing.Terms{OverageRate: metering.Whole(3), Currency: "EUR"}, EffectiveFrom: february.Start})
	require.Equal(t, "6", billing.NewBooks(f).StatementOf(f.Stored[1]).Lines[0].Amount.String())
	require.Equal(t, []string{"6 EUR, of which 0", "700 USD, of which 700"}, totals())
}
