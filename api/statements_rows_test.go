package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// TestRowsOfABillAddUpToItsTotals checks that an adjustment has its own row if its meter has no line or a line in
// another currency. In each currency, the amounts add up to the total of the statement.
func TestRowsOfABillAddUpToItsTotals(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 10, 15, 0, 0, 0, 0, time.UTC)
	statement := billing.Statement{
		Period: billing.Period{Range: metering.Range{Start: start, End: start.AddDate(0, 1, 0)}},
		Lines: []billing.StatementLine{
			{MeterID: 1, MeterSlug: "calls", Charge: metering.Whole(10), Amount: metering.Whole(13), Currency: "USD"},
			{MeterID: 2, MeterSlug: "tokens", Charge: metering.Whole(5), Amount: metering.Whole(5), Currency: "EUR"},
		},
		Adjustments: []billing.Adjustment{
			{MeterID: 1, MeterSlug: "calls", Amount: metering.Whole(3), Currency: "USD"},
			{MeterID: 1, MeterSlug: "calls", Amount: metering.Whole(7), Currency: "EUR"},
			{MeterID: 3, MeterSlug: "minutes", Amount: metering.Whole(2), Currency: "USD"},
		},
	}
	sums := make(map[string]metering.Decimal)
	var lines []string
	for _, row := range (customerStatements{statements: []billing.Statement{statement}}).rows() {
		require.Len(t, row, len(statementColumns))
		cells := make(map[string]string)
		for i, name := range statementColumns {
			cells[name] = row[i]
		}
		amount, err := metering.ParseDecimal(cells["amount"])
		require.NoError(t, err)
		sums[cells["currency"]] = sums[cells["currency"]].Add(amount)
		lines = append(lines, cells["line"]+" "+cells["meter_slug"]+" "+cells["charge"]+"+"+cells["adjustments"]+" "+cells["currency"])
	}
	require.Equal(t, []string{
		"usage calls 10+3 USD", "usage tokens 5+0 EUR", "adjustment calls 0+7 EUR", "adjustment minutes 0+2 USD",
	}, lines)
	for _, total := range statement.Totals() {
		require.Equal(t, total.Amount.String(), sums[total.Currency].String(), total.Currency)
	}
	require.Len(t, sums, len(statement.Totals()))
}
