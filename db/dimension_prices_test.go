package db_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// byProperty returns terms with a rate for each value of a property, and with a default rate if
// otherwise is not empty.
func byProperty(property, otherwise string, rates map[string]string) billing.Terms {
	d := &billing.Dimensions{By: []string{property}}
	for value, rate := range rates {
		d.Prices = append(d.Prices, billing.DimensionPrice{
			Match: map[string][]metering.Scalar{property: {metering.ParseScalar(json.RawMessage(`"` + value + `"`))}}, Rate: billing.Rate{OverageRate: metering.MustDecimal(rate)},
		})
	}
	if otherwise != "" {
		d.Default = &billing.Rate{OverageRate: metering.MustDecimal(otherwise)}
	}
	return billing.Terms{Currency: "USD", Dimensions: d}
}

// byRegion returns terms that charge 1 for each unit of eu, and 2 for each unit of us.
func byRegion() billing.Terms {
	return byProperty("region", "", map[string]string{"eu": "1", "us": "2"})
}

// setPrice sets a price of the tokens.
func (b *tokenBiller) setPrice(terms billing.Terms, from time.Time, of catalog.PriceOwner) billing.Price {
	b.Helper()
	p := billing.Price{MeterID: b.tokens.ID, PlanID: of.Plan, CustomerID: of.Customer, EffectiveFrom: from, Terms: terms}
	p.Inherits = terms.Currency == ""
	p, err := b.store.Prices.Set(b.Context(), b.tenant, metering.Operator, p)
	require.NoError(b, err)
	return p
}

// sendToken sends one event of the customer.
func (b *tokenBiller) sendToken(customer, model, region, value string, at time.Time) {
	b.Helper()
	e := dbtest.Event(b, "llm", customer, at, value, "", fmt.Sprintf(`{"model":%q,"region":%q}`, model, region))
	e.ReceivedAt = b.now
	_, err := b.writer.Ingest(b.Context(), b.tenant, []metering.Event{e})
	require.NoError(b, err)
}

// groupTokensBy changes the group_by of the tokens meter, and runs the backfill.
func (b *tokenBiller) groupTokensBy(properties ...string) error {
	b.Helper()
	_, backfilling, err := b.store.Meters.Update(b.Context(), b.tenant, metering.Operator, b.tokens.Slug, metersBy(properties))
	if err == nil && backfilling != nil {
		require.NoError(b, backfill(b.Context(), b.store, b.tenant, backfilling.ID))
	}
	return err
}

// newPricedThree returns a biller with three customers that have sent the same tokens. acme has its own
// price by region, planned has its plan's price by model with a default, and plain has the meter's price
// by model.
func newPricedThree(t *testing.T) (*tokenBiller, metering.Range) {
	t.Helper()
	b, month := newTokenBiller(t)
	plan, err := b.store.Plans.Create(t.Context(), b.tenant, metering.Operator, metering.Plan{Slug: "pro"})
	require.NoError(t, err)
	b.setPrice(byRegion(), month.Start, catalog.PriceOwner{Customer: b.customer.ID})
	b.setPrice(byProperty("model", "0.5", map[string]string{"large": "3"}), month.Start, catalog.PriceOwner{Plan: plan.ID})
	acme := b.customer
	for _, name := range []string{"planned", "plain"} {
		b.customer = dbtest.Customer(t, b.store, b.tenant, name)
		b.created(b.now)
		if name == "planned" {
			b.assign(plan.ID, month.Start)
		}
	}
	b.customer = acme
	for _, name := range []string{"acme", "planned", "plain"} {
		b.sendToken(name, "large", "eu", "100", b.now)
		b.sendToken(name, "small", "us", "50", b.now)
		b.sendToken(name, "tiny", "eu", "20", b.now)
	}
	return b, month
}

// charged returns the charge of a customer's tokens in the preview.
func (b *tokenBiller) charged(customer string) metering.Decimal {
	b.Helper()
	former := b.customer
	defer func() { b.customer = former }()
	var err error
	b.customer, err = b.store.Customers.Get(b.Context(), b.tenant, customer)
	require.NoError(b, err)
	return previewOf(b).Amount
}

func TestUsageIsGroupedByDimensionsOfTheCustomersPrice(t *testing.T) {
	t.Parallel()
	b, month := newPricedThree(t)
	want := map[string]string{"acme": "220", "planned": "335", "plain": "1.64"}
	for customer, charge := range want {
		require.Equal(t, charge, b.charged(customer).Round(2).String(), customer)
	}
	months, err := b.store.Ledger.Revenue(t.Context(), b.tenant, month.Start, b.now)
	require.NoError(t, err)
	require.Equal(t, "586.64", months[0].Amount().String(), "the calls have a base price of 10 for each customer")

	run, err := b.store.Evaluations.DryRun(t.Context(), b.tenant, metering.Alert{
		Type: metering.SpendAlert, MeterID: b.tokens.ID, Currency: "USD", Thresholds: []metering.Decimal{metering.MustDecimal("1.5")},
	}, b.now)
	require.NoError(t, err)
	fired := make(map[string]string)
	for _, f := range run.Firings {
		fired[f.ExternalID] = f.Value.Round(2).String()
	}
	require.Equal(t, want, fired)

	impact := func(p billing.Price) string {
		i, err := b.store.Ledger.PriceImpact(t.Context(), b.tenant, p, b.now)
		require.NoError(t, err)
		require.Len(t, i.Changes, 1)
		return fmt.Sprint(i.Changes[0].Before, " ", i.Changes[0].After, " ", i.Changes[0].Customers)
	}
	ofAcme := billing.Price{MeterID: b.tokens.ID, CustomerID: b.customer.ID, EffectiveFrom: month.Start, Terms: byModel()}
	require.Equal(t, "220 1.64 1", impact(ofAcme))
	ofMeter := billing.Price{MeterID: b.tokens.ID, EffectiveFrom: month.Start, Terms: byRegion()}
	require.Equal(t, "1.64 220 1", impact(ofMeter))
	ofAcme.Inherits, ofAcme.Terms = true, billing.Terms{}
	require.Equal(t, "220 1.64 1", impact(ofAcme))
}

func TestLateUsageIsChargedAtOwnPriceOfClosedPeriod(t *testing.T) {
	t.Parallel()
	b, month := newPricedThree(t)
	b.setPrice(billing.Terms{}, month.End, catalog.PriceOwner{Customer: b.customer.ID})
	within := b.now
	b.now = over(month)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	var kept string
	b.scan(`select dimensions::text from billing_period_totals where tenant_id = $1 and meter_id = $2`, []any{b.tenant, b.tokens.ID}, &kept)
	require.JSONEq(t, `[{"dimension":{"region":"eu"},"units":120,"events":2},{"dimension":{"region":"us"},"units":50,"events":1}]`, kept)

	b.sendToken("acme", "large", "us", "10", within)
	require.Equal(t, "220 20", fmt.Sprint(b.line(within).Charge, " ", b.line(within).LateCharge))
	late := adjustments(t, b.accept())
	require.Len(t, late, 1)
	require.Equal(t, "10 20", fmt.Sprint(late[0].Usage, " ", late[0].Amount))
	b.scan(`select dimensions::text from billing_adjustments where tenant_id = $1 and meter_id = $2`, []any{b.tenant, b.tokens.ID}, &kept)
	require.JSONEq(t, `[{"dimension":{"region":"eu"},"units":120,"events":2},{"dimension":{"region":"us"},"units":60,"events":2}]`, kept)
}

// TestLateUsageKeepsItsChargeWhenFiltersChange changes the filters of the tokens twice. Late usage of each region
// counts by the filters at the time of its arrival.
func TestLateUsageKeepsItsChargeWhenFiltersChange(t *testing.T) {
	t.Parallel()
	b, month := newPricedThree(t)
	within := b.now
	b.now = over(month)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	require.Equal(t, "220 0", fmt.Sprint(b.line(within).Charge, " ", b.line(within).LateCharge))
	count := func(property, value string) {
		filters := []metering.Filter{{Property: property, Operator: metering.FilterEq, Values: []metering.FilterValue{metering.ParseFilterValue([]byte(value))}}}
		_, version, err := b.store.Meters.Update(t.Context(), b.tenant, metering.Operator, b.tokens.Slug, catalog.MeterChange{Filters: &filters})
		require.NoError(t, err)
		require.NoError(t, backfill(t.Context(), b.store, b.tenant, version.ID))
	}
	send := func(model, region, value, lateCharge string) {
		b.sendToken("acme", model, region, value, within)
		require.Equal(t, lateCharge, b.line(within).LateCharge.String())
	}
	send("large", "us", "10", "20")
	b.acceptAll()
	send("small", "eu", "7", "27")
	count("model", `"large"`)
	send("small", "us", "100", "27")
	send("large", "eu", "1", "28")
	b.acceptAll()
	count("region", `"us"`)
	send("large", "eu", "100", "28")
	send("small", "us", "2", "32")
	b.acceptAll()

	var booked string
	b.scan(`select dimensions::text from billing_adjustments where tenant_id = $1 and meter_id = $2 order by id desc limit 1`, []any{b.tenant, b.tokens.ID}, &booked)
	require.JSONEq(t, `[{"dimension":{"region":"eu"},"units":128,"events":4},{"dimension":{"region":"us"},"units":62,"events":3}]`, booked)
	require.NoError(t, b.store.Ledger.KeepLateUsage(t.Context(), b.tenant, b.customer.ID, month.End))
	require.Equal(t, "32", b.line(within).LateCharge.String())
	require.Empty(t, b.plan(anew).Send)
}

// TestEachBillingScheduleChargesUsageByDimension moves the tokens to another billing schedule of the customer.
// That schedule has the base price and the included units again.
func TestEachBillingScheduleChargesUsageByDimension(t *testing.T) {
	t.Parallel()
	b, month := newTokenBiller(t)
	moved := b.now.AddDate(0, 0, 5)
	b.exec(`insert into billing_stream_meters (tenant_id, customer_id, meter_id, stream, effective_from, recorded_at) values ($1, $2, $3, 1, $4, $4)`, b.tenant, b.customer.ID, b.tokens.ID, moved)
	b.exec(`update customers set streams = 2 where tenant_id = $1 and id = $2`, b.tenant, b.customer.ID)
	b.send(60, metering.Range{Start: b.now, End: moved})
	b.send(60, metering.Range{Start: moved, End: month.End})
	before, _ := b.recount(metering.Range{Start: month.Start, End: moved})
	after, _ := b.recount(metering.Range{Start: moved, End: month.End})
	b.now = moved.AddDate(0, 0, 1)
	months, err := b.store.Ledger.Revenue(t.Context(), b.tenant, month.Start, b.now)
	require.NoError(t, err)
	requireCharges(t, 2, before.Add(before, after), months[0].Amount().Sub(metering.Whole(10)))
	impact, err := b.store.Ledger.PriceImpact(t.Context(), b.tenant, billing.Price{MeterID: b.tokens.ID, EffectiveFrom: month.Start, Terms: byRegion()}, b.now)
	require.NoError(t, err)
	requireCharges(t, 2, before, impact.Changes[0].Before)
	require.True(t, impact.Changes[0].After.IsZero(), "the regions are numbers, which have no price")
}

func TestGroupByMustKeepDimensionsOfPrices(t *testing.T) {
	t.Parallel()
	const refusal = "group_by must keep region: a price of the meter has it in dimensions.by"
	b, month := newTokenBiller(t)
	plan := b.pricePlan()
	for name, of := range map[string]catalog.PriceOwner{"meter": {}, "plan": {Plan: plan.ID}, "customer": {Customer: b.customer.ID}} {
		scheduled := b.setPrice(byRegion(), b.now.AddDate(0, 0, 62), of)
		require.ErrorContains(t, b.groupTokensBy("model"), refusal, name)
		require.NoError(t, b.store.Prices.Withdraw(t.Context(), b.tenant, metering.Operator, scheduled, func() time.Time { return b.now }))
	}
	require.NoError(t, b.groupTokensBy("model"), "no price by region is left")
	require.NoError(t, b.groupTokensBy("model", "region"))
	require.ErrorContains(t, b.groupTokensBy("region"), "group_by must keep model")
	require.Equal(t, metering.CodeConflict, metering.CodeOf(b.groupTokensBy()))

	b.setPrice(byRegion(), month.Start, catalog.PriceOwner{Customer: b.customer.ID})
	b.sendToken("acme", "large", "eu", "1", b.now)
	b.setPrice(billing.Terms{}, month.Start.AddDate(0, 0, 20), catalog.PriceOwner{Customer: b.customer.ID})
	require.ErrorContains(t, b.groupTokensBy("model"), refusal, "an open period is charged by region, although the own price has ended")
	b.now = over(month)
	b.closePeriods()
	require.ErrorContains(t, b.groupTokensBy("model"), refusal, "late usage of the closed period is charged by region")
	b.setPrice(byModel(), month.Start, catalog.PriceOwner{Customer: b.customer.ID})
	require.ErrorContains(t, b.groupTokensBy("model"), refusal, "another price has replaced that of the closed period")
}

// TestUnusedPriceByDimensionDoesNotChangeClosedStatement replaces a price by region that has charged no usage, and
// removes region from the meter's group_by. The statement of a closed period stays the same after its
// events are dropped.
func TestUnusedPriceByDimensionDoesNotChangeClosedStatement(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b, month := newTokenBillerOf(t, newBillerAt(t, store, address))
	b.setPrice(byRegion(), month.Start, catalog.PriceOwner{Customer: b.customer.ID})
	b.setPrice(byModel(), month.Start, catalog.PriceOwner{Customer: b.customer.ID})
	require.NoError(t, b.groupTokensBy("model"), "the price by region has charged no usage")
	within := b.now
	b.sendToken("acme", "small", "eu", "200", within)
	b.now = over(month)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	b.sendToken("acme", "small", "eu", "100", within)
	b.acceptAll()
	before := b.line(within)
	require.Equal(t, "2 0.5", fmt.Sprint(before.Charge, " ", before.LateCharge))

	now := month.End.AddDate(0, 4, 0)
	b.now = now
	b.acceptAll()
	b.closePeriods()
	b.digests()
	dropped, err := store.Maintenance.Retain(t.Context(), now.AddDate(0, 0, -40), now)
	require.NoError(t, err)
	require.Positive(t, dropped)
	require.Equal(t, before, b.line(within))
}
