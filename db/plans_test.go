package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// pricePlan sets a price of 1 USD per unit of the meter, and creates a plan. In the plan, a base price of 10 USD
// includes 100 units, and each further unit costs half a cent.
func (b *biller) pricePlan() metering.Plan {
	b.Helper()
	b.price("0", "0", "1")
	plan, err := b.store.Plans.Create(b.Context(), b.tenant, metering.Operator, metering.Plan{Slug: "pro"})
	require.NoError(b, err)
	dbtest.Price(b, b.store, b.tenant, billing.Price{
		MeterID: b.meter.ID, PlanID: plan.ID, Terms: billing.Terms{BasePrice: metering.Whole(10), IncludedUnits: metering.Whole(100), OverageRate: metering.MustDecimal("0.005"), Currency: "USD"}, EffectiveFrom: b.now,
	})
	return plan
}

func (b *biller) assign(plan metering.PlanID, from time.Time) {
	b.Helper()
	require.NoError(b, b.store.Plans.Assign(b.Context(), b.tenant, metering.Operator, b.customer.ID,
		billing.Assignment{PlanID: plan, EffectiveFrom: from}))
}

func TestPriceOfPlanAppliesOnlyToItsCustomers(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	plan := b.pricePlan()
	b.use("142")
	require.Equal(t, "142", b.accept().Data.Meters[0].Amount.String())
	require.Empty(t, b.outOfSync())

	this := billing.CalendarPeriod(b.now, time.UTC)
	b.assign(plan.ID, this.Start)
	require.NotEmpty(t, b.outOfSync(), "a new price has to be reported")
	require.Equal(t, "10.21", b.accept().Data.Meters[0].Amount.String())
	require.Empty(t, b.outOfSync())
	other := dbtest.Customer(t, b.store, b.tenant, "other")
	preview, err := b.store.Ledger.Preview(t.Context(), b.tenant, other.ID, b.now)
	require.NoError(t, err)
	require.Equal(t, "1", preview[0].UnitPrice.String())

	months, err := b.store.Ledger.Revenue(t.Context(), b.tenant, this.Start, b.now)
	require.NoError(t, err)
	require.Len(t, months, 1)
	require.Equal(t, "10.21", months[0].Amount().String())
}

// newLongAgo returns a biller with a plan. Its customer was created in the middle of a month that ended long ago, and
// its clock shows that time.
func newLongAgo(t *testing.T) (b *biller, plan metering.Plan, month metering.Range) {
	t.Helper()
	b = newBiller(t)
	month = billing.CalendarPeriod(clock.Month(clock.Now(), -5), time.UTC)
	b.created(month.Start.AddDate(0, 0, 14))
	return b, b.pricePlan(), month
}

func TestAPeriodIsChargedForThePlanInForceAtItsStart(t *testing.T) {
	t.Parallel()
	b, plan, month := newLongAgo(t)
	b.use("142")
	b.assign(plan.ID, month.Start.Add(time.Microsecond))
	require.Equal(t, "142", b.accept().Data.Meters[0].Amount.String())
	b.now = month.End.Add(time.Hour)
	b.useAt("142", b.now)
	require.Equal(t, "10.21", b.accept().Data.Meters[0].Amount.String())
	b.assign(plan.ID, month.End)
	b.assign(0, month.End)
	require.Equal(t, "142", b.accept().Data.Meters[0].Amount.String(), "the last assignment from an instant replaces the other")
	assigned, err := b.store.Plans.Assignments(t.Context(), b.tenant, b.customer.ID)
	require.NoError(t, err)
	require.Len(t, assigned, 2)
	require.Equal(t, month.End, assigned[1].EffectiveFrom.UTC())
	require.Zero(t, assigned[1].PlanID)
}

func TestAClosedPeriodKeepsThePlanThatItWasChargedFor(t *testing.T) {
	t.Parallel()
	b, plan, month := newLongAgo(t)
	b.assign(plan.ID, month.Start)
	b.use("142")
	b.now = over(month)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	b.assign(0, month.Start)
	b.useAt("100", month.Start.AddDate(0, 0, 20))
	late := adjustments(t, b.accept())
	require.Len(t, late, 1)
	require.Equal(t, "0.5", late[0].Amount.String())
}
