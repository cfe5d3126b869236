package db_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// household holds a tenant and its resources. All households use the same names.
type household struct {
	tenant      metering.TenantID
	customer    metering.Customer
	meter       metering.Meter
	backfilling metering.MeterVersionID
	key         metering.Credential
}

func newHousehold(t *testing.T, store *db.DB, value string) (h household) {
	t.Helper()
	h.tenant = dbtest.Tenant(t, store).ID
	h.customer = dbtest.Customer(t, store, h.tenant, "acme")
	h.meter = dbtest.Meter(t, store, h.tenant, "calls", "call", "model")
	outcomes := ingest(t, store, h.tenant,
		dbtest.Event(t, "call", "acme", november, value, "key", `{"model":"a"}`),
		dbtest.Event(t, "call", "acme", november.Add(time.Hour), value, "", ""))
	require.Equal(t, []usage.Outcome{{}, {Ungrouped: []string{"model"}}}, outcomes, "another tenant's key is no repeat")
	_, backfilling, err := store.Meters.Update(t.Context(), h.tenant, metering.Operator, "calls", metersBy([]string{}))
	require.NoError(t, err)
	h.backfilling = backfilling.ID
	_, err = store.Prices.Set(t.Context(), h.tenant, metering.Operator, billing.Price{MeterID: h.meter.ID, Terms: billing.Terms{BasePrice: metering.MustDecimal(value), Currency: "USD"}})
	require.NoError(t, err)
	hash := sha256.Sum256([]byte(t.Name() + value))
	h.key, err = store.Credentials.Create(t.Context(), h.tenant, metering.Operator, metering.APIKeyCredential,
		metering.Credential{Name: "key", Scope: metering.ScopeAdmin, LastFour: "abcd", Hash: hash[:]}, clock.Now())
	require.NoError(t, err)
	return h
}

func TestTenantCannotSeeDataOfAnotherTenant(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	conn := dbtest.Conn(t)
	ours, theirs := newHousehold(t, store, "1"), newHousehold(t, store, "1000")
	month := billing.CalendarPeriod(november, time.UTC)
	ctx := t.Context()

	t.Run("Customers", func(t *testing.T) {
		c, err := store.Customers.Get(ctx, ours.tenant, "acme")
		require.NoError(t, err)
		require.Equal(t, ours.customer.ID, c.ID)
		list, err := dbtest.Items(store.Customers.List(ctx, ours.tenant, 0, 100, false, ""))
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, ours.customer.ID, list[0].ID)
		saved, created, err := store.Customers.Upsert(ctx, ours.tenant, metering.Operator, "acme", catalog.CustomerChange{Name: new("Acme")}, clock.Now())
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, ours.customer.ID, saved.ID)
		other, err := store.Customers.Get(ctx, theirs.tenant, "acme")
		require.NoError(t, err)
		require.Empty(t, other.Name)
	})

	t.Run("Meters", func(t *testing.T) {
		m, err := store.Meters.Get(ctx, ours.tenant, "calls")
		require.NoError(t, err)
		require.Equal(t, ours.meter.ID, m.ID)
		list, err := dbtest.Items(store.Meters.List(ctx, ours.tenant, 0, 100, false))
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, ours.meter.ID, list[0].ID)
	})

	t.Run("Prices", func(t *testing.T) {
		versions, err := store.Prices.Versions(ctx, ours.tenant, theirs.meter.ID, catalog.PriceOwner{})
		require.NoError(t, err)
		require.Empty(t, versions)
		list, err := dbtest.Items(store.Prices.List(ctx, ours.tenant, catalog.PriceOwner{}, 0, 100))
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, ours.meter.ID, list[0].MeterID)
		preview, err := store.Ledger.Preview(ctx, ours.tenant, ours.customer.ID, november)
		require.NoError(t, err)
		require.Len(t, preview, 1)
		require.Equal(t, ours.meter.ID, preview[0].MeterID)
		_, err = store.Ledger.Preview(ctx, ours.tenant, theirs.customer.ID, november)
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
		_, err = store.Prices.Set(ctx, ours.tenant, metering.Operator, billing.Price{MeterID: theirs.meter.ID, Terms: billing.Terms{Currency: "USD"}})
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(err), "%v", err)
		own := billing.Price{MeterID: theirs.meter.ID, CustomerID: theirs.customer.ID, Terms: billing.Terms{Currency: "USD"}, EffectiveFrom: november}
		_, err = store.Prices.Set(ctx, theirs.tenant, metering.Operator, own)
		require.NoError(t, err)
		list, err = dbtest.Items(store.Prices.List(ctx, ours.tenant, catalog.PriceOwner{Customer: theirs.customer.ID}, 0, 100))
		require.NoError(t, err)
		require.Empty(t, list)
		own.MeterID = ours.meter.ID
		_, err = store.Prices.Set(ctx, ours.tenant, metering.Operator, own)
		require.Error(t, err, "the customer is of another tenant")
	})

	t.Run("Plans", func(t *testing.T) {
		plan, err := store.Plans.Create(ctx, theirs.tenant, metering.Operator, metering.Plan{Slug: "pro"})
		require.NoError(t, err)
		_, err = store.Plans.Get(ctx, ours.tenant, "pro")
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
		list, err := dbtest.Items(store.Plans.List(ctx, ours.tenant, 0, 100, false))
		require.NoError(t, err)
		require.Empty(t, list)
		require.Error(t, store.Plans.Assign(ctx, ours.tenant, metering.Operator, ours.customer.ID, billing.Assignment{PlanID: plan.ID}))
		require.Error(t, store.Plans.Assign(ctx, ours.tenant, metering.Operator, theirs.customer.ID, billing.Assignment{}))
		_, err = store.Prices.Set(ctx, ours.tenant, metering.Operator, billing.Price{MeterID: ours.meter.ID, PlanID: plan.ID, Terms: billing.Terms{Currency: "USD"}})
		require.Error(t, err)
		require.NoError(t, store.Plans.Assign(ctx, theirs.tenant, metering.Operator, theirs.customer.ID, billing.Assignment{PlanID: plan.ID}))
		assigned, err := store.Plans.Assignments(ctx, ours.tenant, theirs.customer.ID)
		require.NoError(t, err)
		require.Empty(t, assigned)
	})

	t.Run("Alerts", func(t *testing.T) {
		theirsOfAll, err := store.Alerts.Create(ctx, theirs.tenant, metering.Operator, metering.Alert{
			Name: "usage", Type: metering.UsageAlert, MeterID: theirs.meter.ID, Thresholds: decimals("1"),
		}, november)
		require.NoError(t, err)
		for _, h := range []household{ours, theirs} {
			require.NoError(t, store.Evaluations.Tenant(ctx, h.tenant, november))
		}
		firings, err := dbtest.Items(store.Alerts.Firings(ctx, theirs.tenant, theirsOfAll.ID, 0, 10))
		require.NoError(t, err)
		require.Len(t, firings, 1, "only their customer fires their alert")
		firings, err = dbtest.Items(store.Alerts.Firings(ctx, ours.tenant, theirsOfAll.ID, 0, 10))
		require.NoError(t, err)
		require.Empty(t, firings)
		list, err := dbtest.Items(store.Alerts.List(ctx, ours.tenant, 0, 10))
		require.NoError(t, err)
		require.Empty(t, list)
		_, err = store.Alerts.Get(ctx, ours.tenant, theirsOfAll.ID)
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
		_, err = store.Alerts.Update(ctx, ours.tenant, metering.Operator, theirsOfAll.ID, limits.AlertChange{}, clock.Now())
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(store.Alerts.Delete(ctx, ours.tenant, metering.Operator, theirsOfAll.ID, november)))
		_, err = store.Alerts.Create(ctx, ours.tenant, metering.Operator, metering.Alert{
			Name: "usage", Type: metering.UsageAlert, MeterID: theirs.meter.ID, Thresholds: decimals("1"),
		}, november)
		require.Error(t, err, "the meter is of another tenant")
	})

	t.Run("Webhooks", func(t *testing.T) {
		made, err := store.Webhooks.Create(ctx, theirs.tenant, metering.Operator, metering.Endpoint{
			URL: "https://example.com/", EventTypes: []metering.MessageKind{metering.MessageSyncSucceeded}, Sealed: []byte("sealed"), LastFour: "abcd",
		}, november)
		require.NoError(t, err)
		message, err := store.Deliveries.Test(ctx, theirs.tenant, made.ID, november)
		require.NoError(t, err)
		require.NoError(t, store.Syncs.Record(ctx, ours.tenant, ours.customer.ID, ledger.Answer{}, november, november))

		list, err := store.Webhooks.List(ctx, ours.tenant)
		require.NoError(t, err)
		require.Empty(t, list)
		deliveries, err := dbtest.Items(store.Deliveries.List(ctx, ours.tenant, made.ID, "", uuid.Nil, 10))
		require.NoError(t, err)
		require.Empty(t, deliveries)
		claimed, err := store.Deliveries.Claim(ctx, ours.tenant, made.ID, november, time.Minute)
		require.NoError(t, err)
		require.Nil(t, claimed)
		for name, try := range map[string]func() error{
			"get":    func() error { _, err := store.Webhooks.Get(ctx, ours.tenant, made.ID); return err },
			"delete": func() error { return store.Webhooks.Delete(ctx, ours.tenant, metering.Operator, made.ID) },
			"update": func() error {
				_, err := store.Webhooks.Update(ctx, ours.tenant, metering.Operator, made.ID, access.EndpointChange{}, november)
				return err
			},
			"rotate": func() error {
				_, _, err := store.Rotations.WebhookSecret(ctx, access.Rotating{Tenant: ours.tenant, Actor: metering.Operator, Now: november}, made.ID, []byte("other"), "abcd")
				return err
			},
			"test":         func() error { _, err := store.Deliveries.Test(ctx, ours.tenant, made.ID, november); return err },
			"waiting":      func() error { _, err := store.Deliveries.Waiting(ctx, ours.tenant, made.ID, november); return err },
			"hasten":       func() error { return store.Deliveries.Hasten(ctx, ours.tenant, made.ID, november) },
			"get delivery": func() error { _, _, err := store.Deliveries.Get(ctx, ours.tenant, made.ID, message); return err },
			"redeliver": func() error {
				return store.Deliveries.Redeliver(ctx, ours.tenant, metering.Operator, made.ID, message, november)
			},
		} {
			require.Equal(t, metering.CodeNotFound, metering.CodeOf(try()), name)
		}
		deliveries, err = dbtest.Items(store.Deliveries.List(ctx, theirs.tenant, made.ID, "", uuid.Nil, 10))
		require.NoError(t, err)
		require.Len(t, deliveries, 1, "no tenant gets messages of another tenant")
	})

	t.Run("Keys", func(t *testing.T) {
		list, err := dbtest.Items(store.Credentials.List(ctx, ours.tenant, metering.APIKeyCredential, 0, 10))
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, ours.key.ID, list[0].ID)
		err = store.Credentials.Revoke(ctx, ours.tenant, metering.Operator, theirs.key.ID)
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
		list, err = dbtest.Items(store.Credentials.List(ctx, theirs.tenant, metering.APIKeyCredential, 0, 10))
		require.NoError(t, err)
		require.Nil(t, list[0].RevokedAt)
	})

	t.Run("Totals", func(t *testing.T) {
		require.Equal(t, "2", total(t, store, ours.tenant, "acme", month)[0].Usage.String())
		for _, customer := range []metering.CustomerID{ours.customer.ID, metering.WholeTenant} {
			for _, r := range []metering.Range{month, {Start: november, End: november.Add(61 * time.Minute)}} {
				totals, err := store.Usage.MeterTotals(ctx, ours.tenant, customer, r)
				require.NoError(t, err)
				require.Len(t, totals, 1)
				require.Equal(t, "2", totals[0].Usage.String(), "%v in %v", customer, r)
			}
		}
		totals, err := store.Usage.MeterTotals(ctx, ours.tenant, theirs.customer.ID, month)
		require.NoError(t, err)
		require.Equal(t, "0", totals[0].Usage.String())
	})

	t.Run("Windows", func(t *testing.T) {
		for _, r := range []metering.Range{month, {Start: november, End: november.Add(61 * time.Minute)}} {
			for _, customer := range []metering.CustomerID{ours.customer.ID, metering.WholeTenant} {
				requireWindowsEqualARecount(t, store, conn, ours.tenant,
					usage.WindowQuery{Customer: customer, Meter: ours.meter, Range: r, Granularity: metering.Hour, Limit: 1})
			}
			for _, q := range []usage.WindowQuery{
				{Customer: theirs.customer.ID, Meter: theirs.meter}, {Customer: theirs.customer.ID, Meter: ours.meter}, {Customer: ours.customer.ID, Meter: theirs.meter},
			} {
				q.Range, q.Granularity, q.Limit = r, metering.Day, 10
				page, err := store.Usage.Windows(ctx, ours.tenant, q)
				require.NoError(t, err)
				require.Empty(t, page.Windows)
				require.Empty(t, page.Groups)
				require.True(t, page.Total.IsZero())
			}
		}
	})

	t.Run("Breakdown", func(t *testing.T) {
		for _, r := range []metering.Range{month, {Start: november, End: november.Add(61 * time.Minute)}} {
			for _, byValue := range []bool{false, true} {
				q := usage.BreakdownQuery{Range: r, ByCustomer: true, ByPlan: true, ByValue: byValue, Timezone: time.UTC, Limit: 10}
				q.Meter = theirs.meter
				page, err := store.Usage.Breakdown(ctx, ours.tenant, q)
				require.NoError(t, err)
				require.Empty(t, page.Items)
				require.True(t, page.Total.IsZero())
				q.Meter = ours.meter
				page, err = store.Usage.Breakdown(ctx, ours.tenant, q)
				require.NoError(t, err)
				require.Len(t, page.Items, 1)
				require.Equal(t, ours.customer.ID, page.Items[0].Customer)
			}
		}
	})

	t.Run("Events", func(t *testing.T) {
		for customer, want := range map[metering.CustomerID]int{ours.customer.ID: 2, theirs.customer.ID: 0, metering.WholeTenant: 2} {
			events, err := store.Events.Page(ctx, ours.tenant, customer, month, nil, nil, 100)
			require.NoError(t, err)
			require.Len(t, events, want)
			for _, e := range events {
				require.Equal(t, "1", e.Value.String())
			}
		}
		boundary, err := store.Events.Boundary(ctx, ours.tenant, theirs.customer.ID, month, nil, 1)
		require.NoError(t, err)
		require.Nil(t, boundary)
		boundary, err = store.Events.Boundary(ctx, ours.tenant, metering.WholeTenant, month, nil, 2)
		require.NoError(t, err)
		require.Nil(t, boundary)
		ids, err := store.Customers.IDs(ctx, ours.tenant, 0, 10)
		require.NoError(t, err)
		require.Equal(t, []metering.CustomerID{ours.customer.ID}, ids)
		_, err = store.Ledger.StatementsEnding(ctx, ours.tenant, theirs.customer.ID, month, november)
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
		for customer, want := range map[metering.CustomerID]int{0: 2, ours.customer.ID: 2, theirs.customer.ID: 0} {
			page, err := store.Events.List(ctx, ours.tenant, usage.EventFilter{Range: month, Customer: customer}, nil, 100, unhurried)
			require.NoError(t, err)
			require.Nil(t, page.Next)
			require.Len(t, page.Events, want)
			for _, e := range page.Events {
				require.Equal(t, "1", e.Value.String())
				require.Len(t, e.CountedBy, 1)
			}
		}
	})

	t.Run("Previews", func(t *testing.T) {
		for _, latest := range []bool{false, true} {
			query := usage.PreviewQuery{Range: month, Latest: latest, Search: unhurried}
			setDefinition(t, store, ours.tenant, "calls", catalog.MeterChange{}, &query)
			require.Equal(t, ours.meter.ID, query.Current.ID)
			p, err := store.Events.Preview(ctx, ours.tenant, query)
			require.NoError(t, err)
			require.Equal(t, []any{2, "2", "2"}, []any{p.Events, p.Usage.String(), p.Current.String()})
			require.Equal(t, ours.customer.ID, p.Customers[0].Customer)
		}
	})

	t.Run("Backfills", func(t *testing.T) {
		progress, err := store.Backfills.Progress(ctx, ours.tenant)
		require.NoError(t, err)
		require.Len(t, progress, 1)
		require.Contains(t, progress, ours.backfilling)
		day := metering.WindowOf(november, metering.Day, time.UTC).Start
		_, err = store.Backfills.CountDay(ctx, ours.tenant, theirs.backfilling, day)
		require.Error(t, err)
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(err), "%v", err)
		err = store.Backfills.Complete(ctx, ours.tenant, theirs.backfilling)
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(err), "%v", err)
		m, err := store.Meters.Get(ctx, theirs.tenant, "calls")
		require.NoError(t, err)
		require.Equal(t, theirs.meter.Version.ID, m.Version.ID)
		n, err := store.Backfills.CountDay(ctx, ours.tenant, ours.backfilling, day)
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		require.NoError(t, backfill(ctx, store, ours.tenant, ours.backfilling))
		require.NoError(t, backfill(ctx, store, theirs.tenant, theirs.backfilling))
		requireRollupsEqualARecount(t, conn, ours.tenant)
		requireRollupsEqualARecount(t, conn, theirs.tenant)
	})

	t.Run("DaysOfUsage", func(t *testing.T) { requireDailyEqualsARecount(t, conn, ours.tenant) })
}
