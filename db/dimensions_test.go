package db_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// tokenBiller bills a meter of tokens by model. 10 tokens of the large models are included, and
// 7 more cost 3 cents. A token of the small model costs half a cent. Other models have no price.
type tokenBiller struct {
	*biller
	tokens metering.Meter
	rng    *rand.Rand
}

func newTokenBiller(t *testing.T) (*tokenBiller, metering.Range) {
	t.Helper()
	return newTokenBillerOf(t, newBiller(t))
}

func newTokenBillerOf(t *testing.T, b *biller) (*tokenBiller, metering.Range) {
	t.Helper()
	month := b.old()
	tokens, err := b.store.Meters.Create(t.Context(), b.tenant, metering.Operator, metering.Meter{
		Slug: "tokens", EventType: "llm", Version: metering.MeterVersion{Aggregation: metering.Sum, GroupBy: []string{"model", "region"}},
	})
	require.NoError(t, err)
	dbtest.Price(t, b.store, b.tenant, billing.Price{MeterID: tokens.ID, EffectiveFrom: month.Start.AddDate(0, 0, -60), Terms: byModel()})
	return &tokenBiller{b, tokens, rand.New(rand.NewPCG(1, 2))}, month
}

func byModel() billing.Terms {
	models := func(names ...string) map[string][]metering.Scalar {
		var values []metering.Scalar
		for _, name := range names {
			values = append(values, metering.ParseScalar(json.RawMessage(`"`+name+`"`)))
		}
		return map[string][]metering.Scalar{"model": values}
	}
	return billing.Terms{BasePrice: metering.MustDecimal("1"), Currency: "USD", Dimensions: &billing.Dimensions{By: []string{"model"}, Prices: []billing.DimensionPrice{
		{Match: models("large", "huge"), Rate: billing.Rate{Model: billing.ModelPerUnit, UnitPrice: metering.MustDecimal("0.03"), PerUnits: 7, IncludedUnits: metering.MustDecimal("10")}},
		{Match: models("small"), Rate: billing.Rate{OverageRate: metering.MustDecimal("0.005")}},
	}}}
}

// send ingests n events with random models, regions and values in a range, and one with a long region.
func (b *tokenBiller) send(n int, within metering.Range) {
	b.Helper()
	var events []metering.Event
	for range n {
		at := within.Start.Add(time.Duration(b.rng.Int64N(int64(within.End.Sub(within.Start))))).Truncate(time.Microsecond)
		properties := fmt.Sprintf(`{"model":%s,"region":%d}`, []string{`"large"`, `"huge"`, `"small"`, `"tiny"`, `null`, `7`}[b.rng.IntN(6)], b.rng.IntN(3))
		e := dbtest.Event(b, "llm", "acme", at, fmt.Sprintf("%d.%d", b.rng.IntN(20), b.rng.IntN(10)), "", properties)
		e.ReceivedAt = b.now
		events = append(events, e)
	}
	long := dbtest.Event(b, "llm", "acme", within.Start, "5", "", `{"model":"large","region":"`+strings.Repeat("x", metering.MaxGroupKeyBytes)+`"}`) // counts in $other
	long.ReceivedAt = b.now
	_, err := b.writer.Ingest(b.Context(), b.tenant, append(events, long))
	require.NoError(b, err)
}

// recount returns the charge of a range and its unrated units, computed from the events in plain SQL.
func (b *tokenBiller) recount(r metering.Range) (charge, unratedUnits *big.Rat) {
	b.Helper()
	units := func(condition string) *big.Rat {
		var sum metering.Decimal
		b.scan(`
			select coalesce(sum(value), 0)
			from events
			where tenant_id = $1
			  and event_type = 'llm'
			  and ts >= $2
			  and ts < $3
			  and (`+condition+`)`, []any{b.tenant, r.Start, r.End}, &sum)
		return rat(b, sum)
	}
	large := units(`length(properties::text) < 1000 and properties ->> 'model' in ('large', 'huge')`)
	if large.Sub(large, big.NewRat(10, 1)); large.Sign() < 0 {
		large = new(big.Rat)
	}
	charge = new(big.Rat).Add(big.NewRat(1, 1), large.Mul(large, big.NewRat(3, 700)))
	small := units(`properties ->> 'model' = 'small'`)
	charge.Add(charge, small.Mul(small, big.NewRat(5, 1000)))
	return charge, units(`coalesce(properties ->> 'model', '') not in ('large', 'huge', 'small') or length(properties::text) > 1000`)
}

// line returns the tokens' line in the statement of the period that contains start.
func (b *tokenBiller) line(start time.Time) billing.StatementLine {
	b.Helper()
	s, err := b.store.Ledger.StatementOf(b.Context(), b.tenant, b.customer.ID, b.tokens.ID, func(p billing.Period) bool { return p.Contains(start) }, b.now)
	require.NoError(b, err)
	line, known := s.Line(b.tokens.ID)
	require.True(b, known)
	return line
}

func stepOf(steps []billing.Step, name string) (found billing.Step) {
	for _, s := range steps {
		if s.Name == name {
			return s
		}
	}
	return found
}

// requireCharge requires that got differs from want by at most the rounding of one charge to cents.
func requireCharge(t testing.TB, want *big.Rat, got metering.Decimal) {
	t.Helper()
	requireCharges(t, 1, want, got)
}

// requireCharges is requireCharge for the sum of n charges.
func requireCharges(t testing.TB, n int64, want *big.Rat, got metering.Decimal) {
	t.Helper()
	difference := new(big.Rat).Sub(want, rat(t, got))
	require.LessOrEqual(t, difference.Abs(difference).Cmp(big.NewRat(n, 200)), 0, "%s is charged instead of %s", got, want.FloatString(6))
}

// TestChargeByDimensionEqualsARecount compares the statement with a recount while the month is open,
// after the closing, and after late usage. While the month is open, the preview must have the statement's
// breakdown, and the webhook's message its amount.
func TestChargeByDimensionEqualsARecount(t *testing.T) {
	t.Parallel()
	b, month := newTokenBiller(t)
	within := metering.Range{Start: b.now, End: month.End}
	b.send(60, within)
	want, unrated := b.recount(month)
	line := b.line(b.now)
	requireCharge(t, want, line.Charge)
	require.Zero(t, unrated.Cmp(rat(t, stepOf(line.Working, billing.StepUnrated).Amount)))
	require.Equal(t, stepsText(t, line.Working), stepsText(t, previewOf(b).Working))
	sent := b.plan(anew)
	require.Contains(t, string(b.body(sent.Send[0].ID)), `"name":"dimension_charge"`)
	require.Equal(t, line.Amount.String(), amountIn(b, b.acceptOf(sent)))

	b.now = over(month)
	b.closePeriods()
	closed := b.line(month.Start.AddDate(0, 0, 20))
	require.Equal(t, line.Charge.String(), closed.Charge.String())
	require.Equal(t, stepsText(t, line.Working), stepsText(t, closed.Working[:len(line.Working)]))

	b.send(40, within)
	want, _ = b.recount(month)
	late := b.line(month.Start.AddDate(0, 0, 20))
	requireCharge(t, want, closed.Charge.Add(late.LateCharge))
	require.NotEmpty(t, stepOf(late.LateWorking, billing.StepRateCharge).Of)

	var kept, plain int
	b.scan(`select count(dimensions), count(*) - count(dimensions) from billing_period_totals where tenant_id = $1`, []any{b.tenant}, &kept, &plain)
	require.Equal(t, []int{1, 1}, []int{kept, plain}, "only prices by dimension keep usage by dimension")
}

func stepsText(t testing.TB, steps []billing.Step) string {
	t.Helper()
	text, err := json.Marshal(steps)
	require.NoError(t, err)
	return string(text)
}

func previewOf(b *tokenBiller) billing.PreviewLine {
	b.Helper()
	lines, err := b.store.Ledger.Preview(b.Context(), b.tenant, b.customer.ID, b.now)
	require.NoError(b, err)
	for _, l := range lines {
		if l.MeterID == b.tokens.ID {
			return l
		}
	}
	return billing.PreviewLine{}
}

func amountIn(b *tokenBiller, m message) string {
	b.Helper()
	for _, line := range m.Data.Meters {
		if line.MeterSlug == "tokens" {
			return line.Amount.String()
		}
	}
	return ""
}
