package db_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// TestAnErasureKeepsChargesByDimension erases a customer with priced values, and with personal
// values that a default price charges.
func TestAnErasureKeepsChargesByDimension(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b, month := newTokenBillerOf(t, newBillerAt(t, store, address))
	b.setPrice(byProperty("model", "0.5", map[string]string{"large": "3"}), month.Start, catalog.PriceOwner{Customer: b.customer.ID})
	within := b.now
	b.sendToken("acme", "large", "0441234567", "10", within)
	b.sendToken("acme", "ada-laptop", "eu", "100", within)
	b.acceptAll()
	b.now = over(month)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	b.sendToken("acme", `order-of-ada "}{`, "eu", "20", within)
	b.sendToken("acme", "large", "order-of-ada", "1", within)
	b.acceptAll()
	charges := func() string {
		line := b.line(within)
		sum := metering.Whole(0)
		for _, step := range line.LateWorking {
			sum = sum.Add(stepOf(step.Of, "matched_units").Amount)
		}
		return fmt.Sprint(line.Charge, " ", line.LateCharge, " ", sum)
	}
	require.Equal(t, "80 13 131", charges())

	b.now = clock.Month(b.now, 1)
	b.acceptAll()
	b.closePeriods()
	_, err := store.Erasures.Begin(t.Context(), b.tenant, metering.Operator, "acme", "asked for", b.now)
	require.NoError(t, err)
	eraseAll(t, store, b.tenant, b.customer.ID)
	requireGone(t, b.connect())
	requireRollupsEqualARecount(t, b.connect(), b.tenant)
	require.Equal(t, "80 13 131", charges())
	var kept string
	b.scan(`select string_agg(dimensions::text, ' ') from billing_period_totals where tenant_id = $1`, []any{b.tenant}, &kept)
	require.Contains(t, kept, `"large"`, "a price has this value")
	require.Contains(t, kept, `"erased-`)
}

// TestAnErasureKeepsLateChargesOfAPreviousDefinition changes the filters of a meter after late usage with a personal
// value arrived. The closed line stores the dimension values of that usage.
func TestAnErasureKeepsLateChargesOfAPreviousDefinition(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b, month := newTokenBillerOf(t, newBillerAt(t, store, address))
	b.setPrice(byProperty("model", "0.5", map[string]string{"large": "3"}), month.Start, catalog.PriceOwner{Customer: b.customer.ID})
	within := b.now
	b.sendToken("acme", "large", "eu", "10", within)
	b.now = over(month)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	b.sendToken("acme", "order-of-ada", "eu", "20", within)
	b.sendToken("acme", "large", "eu", "1", within)
	large := []metering.Filter{{Property: "model", Operator: metering.FilterEq, Values: []metering.FilterValue{metering.ParseFilterValue([]byte(`"large"`))}}}
	_, version, err := store.Meters.Update(t.Context(), b.tenant, metering.Operator, b.tokens.Slug, catalog.MeterChange{Filters: &large})
	require.NoError(t, err)
	require.NoError(t, backfill(t.Context(), store, b.tenant, version.ID))
	require.Equal(t, "13", b.line(within).LateCharge.String())
	var kept string
	difference := func() string {
		b.scan(`select late_difference_dimensions::text from billing_period_totals where tenant_id = $1 and meter_id = $2`, []any{b.tenant, b.tokens.ID}, &kept)
		return kept
	}
	require.JSONEq(t, `[{"dimension":{"model":"order-of-ada"},"units":20,"events":1}]`, difference())

	b.now = clock.Month(b.now, 1)
	b.acceptAll()
	b.closePeriods()
	_, err = store.Erasures.Begin(t.Context(), b.tenant, metering.Operator, "acme", "asked for", b.now)
	require.NoError(t, err)
	eraseAll(t, store, b.tenant, b.customer.ID)
	requireGone(t, b.connect())
	require.Equal(t, "13", b.line(within).LateCharge.String())
	require.Contains(t, difference(), `"erased-`)
}
