package db_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// TestMetersPlansMembersAndPricesOfTenantAreBounded fills a tenant up to one entry less than each bound, and checks
// that it accepts only one more.
func TestMetersPlansMembersAndPricesOfTenantAreBounded(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	meter := dbtest.Meter(t, store, tenant, "calls", "call")
	fill := func(sql string, n int) {
		t.Helper()
		_, err := dbtest.Conn(t).Exec(t.Context(), sql, tenant, n)
		require.NoError(t, err)
	}
	requireOneMore := func(of string, create func(name string) error) {
		t.Helper()
		require.NoError(t, create("one"), of)
		require.Equal(t, metering.CodeConflict, metering.CodeOf(create("one-more")), of)
	}

	fill(`
		insert into meters (tenant_id, slug, event_type, name, usage_scale, meter_version_id)
		select tenant_id, 'm' || n, 'e' || n, '', 0, meter_version_id from meters, generate_series(3, $2::int) n where tenant_id = $1`, metering.MaxMeters)
	requireOneMore("meters", func(name string) error {
		_, err := store.Meters.Create(t.Context(), tenant, metering.Operator, metering.Meter{Slug: name, EventType: name, Version: metering.MeterVersion{Aggregation: metering.Sum}})
		return err
	})
	fill(`insert into plans (tenant_id, slug, name, created_by) select $1, 'p' || n, '', 'operator' from generate_series(2, $2::int) n`, metering.MaxPlans)
	requireOneMore("plans", func(name string) error {
		_, err := store.Plans.Create(t.Context(), tenant, metering.Operator, metering.Plan{Slug: name})
		return err
	})
	fill(`insert into members (tenant_id, email, name, role, created_by) select $1, n || '@example.com', '', 'viewer', 'operator' from generate_series(2, $2::int) n`, metering.MaxMembers)
	requireOneMore("members", func(name string) error {
		_, err := store.Invitations.Create(t.Context(), tenant, metering.Operator, metering.Invitation{Email: name + "@example.com", Role: metering.RoleViewer}, []byte(name), clock.Now())
		return err
	})
	price := billing.Price{MeterID: meter.ID, Terms: billing.Terms{Currency: "USD"}}
	set := func(string) error {
		price.EffectiveFrom = price.EffectiveFrom.AddDate(1, 0, 0)
		_, err := store.Prices.Set(t.Context(), tenant, metering.Operator, price)
		return err
	}
	price.EffectiveFrom = clock.Now()
	require.NoError(t, set(""))
	fill(`
		insert into meter_prices (tenant_id, meter_id, version, terms, effective_from, created_by)
		select tenant_id, meter_id, n, terms, effective_from + n * interval '1 minute', created_by from meter_prices, generate_series(2, $2::int - 1) n where tenant_id = $1`, metering.MaxPrices)
	requireOneMore("prices", set)
	price.CustomerID = dbtest.Customer(t, store, tenant, "acme").ID
	require.NoError(t, set(""), "a customer's own prices have a bound of their own")
	fill(`
		insert into meter_prices (tenant_id, meter_id, customer_id, version, terms, effective_from, created_by)
		select tenant_id, meter_id, customer_id, version + n, terms, effective_from + n * interval '1 minute', created_by
		from meter_prices, generate_series(2, $2::int - 1) n
		where tenant_id = $1 and customer_id is not null`, metering.MaxPricesOfCustomer)
	requireOneMore("own prices", set)
}

// TestBytesOfPricesAndFiltersAreBounded fills a tenant up to fewer bytes than each bound, and checks that it accepts
// only one more price or meter.
func TestBytesOfPricesAndFiltersAreBounded(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	meter := dbtest.Meter(t, store, tenant, "calls", "call")
	customer := dbtest.Customer(t, store, tenant, "acme").ID
	fill := func(sql string, args ...any) {
		t.Helper()
		_, err := dbtest.Conn(t).Exec(t.Context(), sql, append([]any{tenant}, args...)...)
		require.NoError(t, err)
	}
	fillPrices := func(of metering.CustomerID, most int) { // with terms of most/64 - 1 bytes
		t.Helper()
		fill(`insert into price_terms (tenant_id, hash, schema, terms) select $1, sha256($2::int::text::bytea), 1, jsonb_build_object('x', repeat('x', $2::int / 64 - 10))`, most)
		fill(`
			insert into meter_prices (tenant_id, meter_id, customer_id, version, terms, effective_from, created_by)
			select $1, $2, nullif($3::bigint, 0), $4::int + n, sha256($4::int::text::bytea), $5::timestamptz + n * interval '1 day', 'operator'
			from generate_series(1, 64) n`, meter.ID, int64(of), most, clock.Now())
	}
	price := billing.Price{MeterID: meter.ID, Terms: billing.Terms{Currency: "USD"}, EffectiveFrom: clock.Now()}
	set := func() error {
		price.EffectiveFrom = price.EffectiveFrom.AddDate(1, 0, 0)
		_, err := store.Prices.Set(t.Context(), tenant, metering.Operator, price)
		return err
	}
	for of, most := range map[metering.CustomerID]int{0: metering.MaxPriceBytes, customer: metering.MaxPriceBytesOfCustomer} {
		price.CustomerID = of
		fillPrices(of, most)
		require.NoError(t, set())
		err := set()
		require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
		require.ErrorContains(t, err, "bytes of prices, including earlier versions, the maximum; withdraw a scheduled one first")
	}
	price.CustomerID, price.Inherits = customer, true
	require.NoError(t, set(), "an own price can be ended")

	filter := func(value string) []metering.Filter {
		return []metering.Filter{{Property: "region", Operator: metering.FilterEq, Values: []metering.FilterValue{metering.ParseFilterValue([]byte(`"` + value + `"`))}}}
	}
	create := func(slug string) error {
		_, err := store.Meters.Create(t.Context(), tenant, metering.Operator,
			metering.Meter{Slug: slug, EventType: slug, Version: metering.MeterVersion{Aggregation: metering.Sum, Filters: filter("europe")}})
		return err
	}
	fill(`update meter_versions set filters = jsonb_build_array(repeat('x', $2::int - 5)) where tenant_id = $1`, metering.MaxDefinitionBytes)
	require.NoError(t, create("one"))
	require.ErrorContains(t, create("one-more"), "bytes of filters of meters, the maximum")
	update := func(value string) error {
		filters := filter(value)
		_, _, err := store.Meters.Update(t.Context(), tenant, metering.Operator, "one", catalog.MeterChange{Filters: &filters})
		return err
	}
	require.ErrorContains(t, update("north america"), "bytes of filters of meters, the maximum")
	require.NoError(t, update("eu"), "a shorter definition is accepted")
}

// TestDimensionMetersCutsWithdrawnPricesFirst checks that DimensionMeters returns terms up to a number of bytes, and that
// withdrawn prices are cut before the price in force.
func TestDimensionMetersCutsWithdrawnPricesFirst(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	meter := dbtest.Meter(t, store, tenant, "calls", "call", "region")
	terms := billing.Terms{Currency: "USD", Dimensions: &billing.Dimensions{By: []string{"region"}, Default: &billing.Rate{OverageRate: metering.Whole(7)}, Prices: []billing.DimensionPrice{{
		Match: map[string][]metering.Scalar{"region": {metering.ParseScalar([]byte(`"eu"`))}}, Rate: billing.Rate{OverageRate: metering.Whole(1)},
	}}}}
	_, err := store.Prices.Set(t.Context(), tenant, metering.Operator, billing.Price{MeterID: meter.ID, Terms: terms, EffectiveFrom: clock.Now()})
	require.NoError(t, err)
	const replaced = 20
	for n := range replaced { // each has 60 KB
		_, err := dbtest.Conn(t).Exec(t.Context(), `
			with added as (
			  insert into price_terms (tenant_id, hash, schema, terms)
			  select tenant_id, sha256($2::int::text::bytea), schema, jsonb_set(terms, '{dimensions,prices,0,match,region,0}', to_jsonb(repeat('x', 60000) || $2::int::text))
			  from price_terms
			  where tenant_id = $1
			    and hash = $3
			  returning hash)
			insert into meter_prices (tenant_id, meter_id, version, terms, effective_from, withdrawn_at, created_by)
			select $1, $4, 2 + $2::int, hash, $5::timestamptz, $5, 'operator' from added`, tenant, n, hashOf(terms), meter.ID, clock.Now())
		require.NoError(t, err)
	}
	meters, err := store.Prices.DimensionMeters(t.Context(), tenant)
	require.NoError(t, err)
	require.Len(t, meters, 1)
	isInForce := func(t billing.Terms) bool { return string(t.JSON()) == string(terms.JSON()) }
	require.True(t, slices.ContainsFunc(meters[0].Terms, isInForce), "the price in force comes first")
	require.Len(t, meters[0].Terms, 1+512*1024/60_300)
}

func hashOf(t billing.Terms) []byte {
	hash := t.Hash()
	return hash[:]
}
