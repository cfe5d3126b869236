package activities_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// tokenPrice charges the models large and xl 3 USD per 1,000,000 tokens, and 2.40 USD beyond 10,000,000 tokens. It
// charges the model small 0.20 USD per 1,000,000 tokens beyond 5,000,000 included tokens.
const tokenPrice = `{"base_price": 0, "included_units": 0, "overage_rate": 0, "currency": "USD",
	"dimensions": {"by": ["model"], "prices": [
		{"match": {"model": ["large", "xl"]}, "model": "graduated", "per_units": 1000000,
		 "tiers": [{"up_to": 10000000, "unit_price": 3}, {"up_to": null, "unit_price": 2.4}]},
		{"match": {"model": ["small"]}, "model": "per_unit", "unit_price": 0.2, "per_units": 1000000, "included_units": 5000000}]}}`

// TestTokensAreChargedByModelOnStripesInvoice checks that the preview, the statement and Stripe's invoice charge the
// same amount for tokens by model. Only the preview is not rounded to cents.
func TestTokensAreChargedByModelOnStripesInvoice(t *testing.T) {
	t.Parallel()
	s := newUnsubscribed(t)
	tokens, err := s.store.Meters.Create(t.Context(), s.tenant, metering.Operator, metering.Meter{
		Slug: "tokens", EventType: "llm", Version: metering.MeterVersion{Aggregation: metering.Sum, GroupBy: []string{"model"}},
	})
	require.NoError(t, err)
	var terms billing.Terms
	require.NoError(t, json.Unmarshal([]byte(tokenPrice), &terms))
	require.NoError(t, terms.Validate())
	dbtest.Price(t, s.store, s.tenant, billing.Price{MeterID: tokens.ID, Terms: terms})
	at := metering.Instant(s.fake.Now().Add(-time.Minute))
	for _, used := range [][2]string{{"large", "8000000"}, {"xl", "4345678"}, {"small", "7654321"}, {"unknown", "1000000"}} {
		_, err := s.writer.Ingest(t.Context(), s.tenant, []metering.Event{dbtest.Event(t, "llm", "acme", at, used[1], "", `{"model":"`+used[0]+`"}`)})
		require.NoError(t, err)
	}
	// 10 × 3 + 2.345678 × 2.4 + 2.654321 × 0.2; no price matches the model unknown.
	const exact, rounded, cents = "36.1604914", "36.16", "3616"

	lines, err := s.store.Ledger.Preview(t.Context(), s.tenant, s.customer, s.fake.Now())
	require.NoError(t, err)
	charged := false
	for _, l := range lines {
		if l.MeterID == tokens.ID {
			require.Equal(t, exact, l.Amount.String(), "the preview")
			charged = true
		}
	}
	require.True(t, charged)

	s.closeMonth(0)
	var period metering.PeriodID
	require.NoError(t, s.conn.QueryRow(t.Context(), `select id from billing_periods where tenant_id = $1 and starts_at = $2`, s.tenant, s.first.Start).Scan(&period))
	statement, err := s.store.Ledger.Statement(t.Context(), s.tenant, period, ledger.ReportPage{Before: math.MaxInt64, Limit: 10}, s.fake.Now())
	require.NoError(t, err)
	line, known := statement.Line(tokens.ID)
	require.True(t, known)
	require.Equal(t, rounded, line.Amount.String(), "the statement")
	require.Len(t, s.own(), 1)
	require.Equal(t, cents, s.own()[0].Total.String(), "Stripe's invoice")
	require.Len(t, s.own()[0].Lines, 1)
}
