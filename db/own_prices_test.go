package db_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// ownPrice sets an own price of the customer per unit of the meter.
func (b *biller) ownPrice(rate string, from time.Time) billing.Price {
	b.Helper()
	p, err := b.store.Prices.Set(b.Context(), b.tenant, metering.Operator, billing.Price{
		MeterID: b.meter.ID, CustomerID: b.customer.ID, Terms: billing.Terms{OverageRate: metering.MustDecimal(rate), Currency: "USD"}, EffectiveFrom: from,
	})
	require.NoError(b, err)
	return p
}

func (b *biller) endOwnPrice(from time.Time) error {
	b.Helper()
	_, err := b.store.Prices.Set(b.Context(), b.tenant, metering.Operator, billing.Price{
		MeterID: b.meter.ID, CustomerID: b.customer.ID, Inherits: true, EffectiveFrom: from,
	})
	return err
}

func TestOwnPriceOfCustomerAppliesOnlyToCustomer(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	plan := b.pricePlan()
	this := billing.CalendarPeriod(b.now, time.UTC)
	b.assign(plan.ID, this.Start)
	b.use("142")
	require.Equal(t, "10.21", b.accept().Data.Meters[0].Amount.String())
	require.Empty(t, b.outOfSync())

	b.ownPrice("2", this.Start)
	require.NotEmpty(t, b.outOfSync(), "the report had another price")
	require.Equal(t, "284", b.accept().Data.Meters[0].Amount.String())
	require.Empty(t, b.outOfSync())
	other := dbtest.Customer(t, b.store, b.tenant, "other")
	for customer, want := range map[metering.CustomerID]string{b.customer.ID: "2 customer", other.ID: "1 meter"} {
		preview, err := b.store.Ledger.Preview(t.Context(), b.tenant, customer, b.now)
		require.NoError(t, err)
		require.Equal(t, want, fmt.Sprint(preview[0].UnitPrice, " ", preview[0].Source))
	}
	months, err := b.store.Ledger.Revenue(t.Context(), b.tenant, this.Start, b.now)
	require.NoError(t, err)
	require.Equal(t, "284", months[0].Amount().String())

	require.NoError(t, b.endOwnPrice(this.Start))
	require.Contains(t, b.outOfSync(), b.customer.ID)
	require.Equal(t, "10.21", b.accept().Data.Meters[0].Amount.String(), "the plan's price applies again")
	require.Equal(t, []metering.CustomerID{other.ID}, b.outOfSync())
}

func TestAClosedPeriodKeepsTheOwnPriceThatItWasChargedAt(t *testing.T) {
	t.Parallel()
	b, plan, month := newLongAgo(t)
	b.assign(plan.ID, month.Start)
	b.ownPrice("2", month.Start)
	require.NoError(t, b.endOwnPrice(month.End))
	b.use("142")
	b.now = over(month)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	for at, want := range map[time.Time]string{month.Start: "284 customer", month.End: "10 plan"} {
		s, err := b.store.Ledger.StatementOf(t.Context(), b.tenant, b.customer.ID, b.meter.ID, func(p billing.Period) bool { return p.Contains(at) }, b.now)
		require.NoError(t, err)
		line, known := s.Line(b.meter.ID)
		require.True(t, known)
		require.Equal(t, want, fmt.Sprint(line.Charge, " ", line.Source))
	}
}

// ownPriceLife writes random prices and plan assignments of a customer, and records them to compute the expected
// prices.
type ownPriceLife struct {
	*biller
	random *rand.Rand
	months []time.Time // starts of the months
	plans  []metering.PlanID
	of     map[catalog.PriceOwner]map[time.Time]string // rates by the start of the version; "" if the own price ends
	plan   map[time.Time]metering.PlanID               // assigned plans by their start
}

func newOwnPriceLife(t *testing.T, random *rand.Rand) *ownPriceLife {
	t.Helper()
	l := &ownPriceLife{biller: newBiller(t), random: random, plans: []metering.PlanID{0}, of: make(map[catalog.PriceOwner]map[time.Time]string), plan: make(map[time.Time]metering.PlanID)}
	for _, slug := range []string{"basic", "pro"} {
		plan, err := l.store.Plans.Create(t.Context(), l.tenant, metering.Operator, metering.Plan{Slug: slug})
		require.NoError(t, err)
		l.plans = append(l.plans, plan.ID)
	}
	month := billing.CalendarPeriod(l.now, time.UTC)
	for range 6 {
		month = billing.CalendarPeriod(month.End, time.UTC)
		l.months = append(l.months, month.Start)
	}
	return l
}

// write sets or withdraws a random price, or assigns a random plan, from the start of one of the months or a second
// later.
func (l *ownPriceLife) write(n int) {
	l.Helper()
	from := l.months[l.random.IntN(len(l.months))].Add(time.Duration(l.random.IntN(2)) * time.Second) // a price or plan that starts a second later applies from the next month on
	if l.random.IntN(5) == 0 {
		l.plan[from] = l.plans[l.random.IntN(len(l.plans))]
		l.assign(l.plan[from], from)
		return
	}
	owner := []catalog.PriceOwner{{}, {Plan: l.plans[1]}, {Plan: l.plans[2]}, {Customer: l.customer.ID}, {Customer: l.customer.ID}}[l.random.IntN(5)]
	if l.of[owner] == nil {
		l.of[owner] = make(map[time.Time]string)
	}
	price := billing.Price{MeterID: l.meter.ID, PlanID: owner.Plan, CustomerID: owner.Customer, EffectiveFrom: from}
	rate := fmt.Sprint(n + 1)
	switch {
	case l.random.IntN(4) == 0:
		l.withdraw(owner, from)
		return
	case owner.Customer != 0 && l.random.IntN(3) == 0:
		price.Inherits, rate = true, ""
	default:
		price.Terms = billing.Terms{OverageRate: metering.MustDecimal(rate), Currency: "USD"}
	}
	_, err := l.store.Prices.Set(l.Context(), l.tenant, metering.Operator, price)
	if price.Inherits && !l.pricedUntil(owner, from) {
		require.Equal(l, metering.CodeConflict, metering.CodeOf(err), "%v", err)
		return
	}
	require.NoError(l, err)
	l.of[owner][from] = rate
}

// pricedUntil reports whether a price of the owner begins at or before an instant.
func (l *ownPriceLife) pricedUntil(owner catalog.PriceOwner, at time.Time) (priced bool) {
	for from, rate := range l.of[owner] {
		priced = priced || rate != "" && !from.After(at)
	}
	return priced
}

func (l *ownPriceLife) withdraw(owner catalog.PriceOwner, from time.Time) {
	l.Helper()
	versions, err := l.store.Prices.Versions(l.Context(), l.tenant, l.meter.ID, owner)
	require.NoError(l, err)
	require.Len(l, versions, len(l.of[owner]))
	for _, v := range versions {
		if v.EffectiveFrom.Equal(from) {
			require.NoError(l, l.store.Prices.Withdraw(l.Context(), l.tenant, metering.Operator, v, func() time.Time { return l.now }))
			delete(l.of[owner], from)
		}
	}
}

// inForce returns the entry with the latest key at or before an instant, and whether there is one.
func inForce[T any](entries map[time.Time]T, at time.Time) (in T, ok bool) {
	var since time.Time
	for from, entry := range entries {
		if !from.After(at) && !from.Before(since) {
			in, since, ok = entry, from, true
		}
	}
	return in, ok
}

// expected returns the expected rate and its source at an instant. Without a price, it returns "0 ".
func (l *ownPriceLife) expected(at time.Time) string {
	if rate, ok := inForce(l.of[catalog.PriceOwner{Customer: l.customer.ID}], at); ok && rate != "" {
		return rate + " customer"
	}
	if plan, _ := inForce(l.plan, at); plan != 0 {
		if rate, ok := inForce(l.of[catalog.PriceOwner{Plan: plan}], at); ok {
			return rate + " plan"
		}
	}
	if rate, ok := inForce(l.of[catalog.PriceOwner{}], at); ok {
		return rate + " meter"
	}
	return "0 "
}

// TestEachMonthHasExpectedPriceAfterRandomWrites compares the price of each month with the expected price, after random
// writes of meter, plan and own prices.
func TestEachMonthHasExpectedPriceAfterRandomWrites(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 5 {
		l := newOwnPriceLife(t, random)
		for n := range 40 {
			l.write(n)
		}
		for _, month := range l.months {
			preview, err := l.store.Ledger.Preview(t.Context(), l.tenant, l.customer.ID, month.Add(time.Hour))
			require.NoError(t, err)
			require.Equal(t, l.expected(month), fmt.Sprint(preview[0].UnitPrice, " ", preview[0].Source))
		}
	}
}

// setUnlessRefused computes the impact of a price and then sets the price, as the API does.
func (b *biller) setUnlessRefused(p billing.Price) error {
	if _, err := b.store.Ledger.PriceImpact(b.Context(), b.tenant, p, b.now); err != nil {
		return err
	}
	_, err := b.store.Prices.Set(b.Context(), b.tenant, metering.Operator, p)
	return err
}

func TestInvalidOwnPricesAreRefused(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.price("0", "0", "1")
	this := billing.CalendarPeriod(b.now, time.UTC)
	b.use("1")
	b.accept()
	err := b.endOwnPrice(this.End)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "%v", err)
	set := func(terms billing.Terms, from time.Time) error {
		return b.setUnlessRefused(billing.Price{MeterID: b.meter.ID, CustomerID: b.customer.ID, Terms: terms, EffectiveFrom: from})
	}
	euros := billing.Terms{OverageRate: metering.Whole(1), Currency: "EUR"}
	err = set(euros, this.Start)
	require.Equal(t, metering.CodeInvalid, metering.CodeOf(err))
	require.ErrorContains(t, err, "must be USD: the customer's own price")
	require.NoError(t, set(euros, this.End), "no such period has begun")
	fee := feeForEachEvent(b.meter.ID).Terms
	require.NoError(t, set(fee, this.End))
	require.Equal(t, metering.CodeConflict, metering.CodeOf(saveQuantities(t, b.store, b.tenant)))
	require.NoError(t, set(euros, this.End))
	require.NoError(t, saveQuantities(t, b.store, b.tenant))
	require.Equal(t, metering.CodeInvalid, metering.CodeOf(set(fee, this.End)))
}

// TestFuturePriceIsComparedWithCurrencyOfSubscription checks the impact of prices that begin with the next period on a
// customer with a subscription in EUR, on a meter with a price in USD.
func TestFuturePriceIsComparedWithCurrencyOfSubscription(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.linkTo(billing.Side{Subscription: "sub_1", Period: month, Currency: "EUR"})
	b.now = month.Start.AddDate(0, 0, 20)
	impact := func(p billing.Price, currency string) ledger.Impact {
		p.MeterID, p.EffectiveFrom, p.Terms = b.meter.ID, month.End, billing.Terms{OverageRate: metering.Whole(1), Currency: currency}
		found, err := b.store.Ledger.PriceImpact(t.Context(), b.tenant, p, b.now)
		require.NoError(t, err)
		require.Empty(t, found.Ranges)
		return found
	}
	changed := func(to string) []ledger.CurrencyImpact {
		return []ledger.CurrencyImpact{{CurrencyChange: billing.CurrencyChange{From: "EUR", To: to}, Customers: 1}}
	}
	own := billing.Price{CustomerID: b.customer.ID}
	require.Equal(t, changed("USD"), impact(own, "USD").Currencies)
	require.Equal(t, 1, impact(own, "USD").Customers)
	require.Empty(t, impact(own, "EUR").Currencies)
	require.Equal(t, changed("CHF"), impact(billing.Price{}, "CHF").Currencies)
	require.Empty(t, impact(billing.Price{}, "EUR").Currencies)
	require.Zero(t, impact(billing.Price{}, "USD").Customers, "the currency of the previous version")
}

// TestPlanPriceMustHaveCurrencyOfItsChargedCustomers checks that a plan's price must have the currency of the
// customers that the price charges. A plan's price does not charge customers with an own price.
func TestPlanPriceMustHaveCurrencyOfItsChargedCustomers(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.price("0", "0", "1")
	this := billing.CalendarPeriod(b.now, time.UTC)
	plan, err := b.store.Plans.Create(t.Context(), b.tenant, metering.Operator, metering.Plan{Slug: "pro"})
	require.NoError(t, err)
	b.assign(plan.ID, this.Start)
	b.use("1")
	b.accept()
	set := func() error {
		return b.setUnlessRefused(billing.Price{MeterID: b.meter.ID, PlanID: plan.ID, Terms: billing.Terms{OverageRate: metering.Whole(1), Currency: "EUR"}})
	}
	require.Equal(t, metering.CodeInvalid, metering.CodeOf(set()))
	b.ownPrice("2", this.Start)
	require.NoError(t, set())
}

// TestLargeOwnPricesAreReadInSeveralBatches checks that reads of many customers hold a bounded number of bytes of own
// prices at once, and still include every customer.
func TestLargeOwnPricesAreReadInSeveralBatches(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	tokens := dbtest.Meter(t, b.store, b.tenant, "tokens", "token", "region")
	this := billing.CalendarPeriod(b.now, time.UTC)
	terms := byRegion()
	terms.BasePrice = metering.Whole(1)
	_, err := b.store.Prices.Set(t.Context(), b.tenant, metering.Operator, billing.Price{MeterID: tokens.ID, CustomerID: b.customer.ID, Terms: terms, EffectiveFrom: this.Start})
	require.NoError(t, err)
	conn := dbtest.Conn(t)
	_, err = conn.Exec(t.Context(), `
		with large as (
		  insert into price_terms (tenant_id, hash, schema, terms)
		  select tenant_id, sha256('large'), schema, jsonb_set(terms, '{dimensions,prices,0,match,region,0}', to_jsonb(repeat('x', 250000)))
		  from price_terms
		  where tenant_id = $1
		    and hash = $2
		  returning hash),
		others as (
		  insert into customers (tenant_id, external_id, created_at)
		  select $1, n, $3 from generate_series(1, 20) n
		  returning id)
		insert into meter_prices (tenant_id, meter_id, customer_id, version, terms, effective_from, created_by)
		select $1, $4, id, 1 + row_number() over (), hash, $5, 'operator' from others, large`,
		b.tenant, hashOf(terms), b.now, tokens.ID, this.Start)
	require.NoError(t, err)

	turns := 0
	ctx := pg.WithYield(t.Context(), func(context.Context) error { turns++; return nil })
	months, err := b.store.Ledger.Revenue(ctx, b.tenant, this.Start, b.now)
	require.NoError(t, err)
	require.Equal(t, "21", months[0].Amount().String(), "the base price of each customer")
	require.Equal(t, 1, turns, "the second of two batches")
	_, err = b.store.Unrated.Totals(ctx, b.tenant, b.now, b.now)
	require.NoError(t, err)
	require.Equal(t, 2, turns)
	run, err := b.store.Evaluations.DryRun(t.Context(), b.tenant, metering.Alert{Type: metering.SilenceAlert, Minutes: 60}, b.now)
	require.NoError(t, err)
	require.Equal(t, 21, run.Customers)

	var customers []int64
	require.NoError(t, conn.QueryRow(t.Context(), `select array_agg(id order by id) from customers where tenant_id = $1`, b.tenant).Scan(&customers))
	batches, err := ledger.CustomerBatches(t.Context(), conn, b.tenant, customers)
	require.NoError(t, err)
	require.Equal(t, [][]int64{customers[:17], customers[17:]}, batches, "16 of the large prices have less than 4 MiB")
}
