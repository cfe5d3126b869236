package db_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// TestATenantHasABoundedNumberOfEachEntry fills a tenant up to one entry less than each bound, and checks that it
// accepts only one more.
func TestATenantHasABoundedNumberOfEachEntry(t *testing.T) {
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
