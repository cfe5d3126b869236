package db_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// atOnce runs fn n times concurrently, and returns the joined errors.
func atOnce(n int, fn func(i int) error) error {
	failures := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { failures[i] = fn(i) })
	}
	all.Wait()
	return errors.Join(failures...)
}

func TestConcurrentFirstEventsCreateCustomerOnce(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	dbtest.Meter(t, store, tenant, "calls", "call")
	var writers []*usage.Writer
	for range 4 {
		writers = append(writers, newWriter(t, store, dbtest.WriterOptions))
	}
	require.NoError(t, atOnce(32, func(i int) error {
		var events []metering.Event
		for n := range 40 {
			events = append(events, dbtest.Event(t, "call", fmt.Sprint("customer ", (n*i)%40), november, "1", "", ""))
		}
		_, err := writers[i%4].Ingest(t.Context(), tenant, events)
		return err
	}))
	customers, err := dbtest.Items(store.Customers.List(t.Context(), tenant, 0, 1000, false, ""))
	require.NoError(t, err)
	require.Len(t, customers, 40)
	requireRollupsEqualARecount(t, dbtest.Conn(t), tenant)
}

func TestPriceVersions(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	m := dbtest.Meter(t, store, tenant, "calls", "call")

	t.Run("ConcurrentPricesAreNumberedInSequence", func(t *testing.T) {
		require.NoError(t, atOnce(8, func(i int) error {
			_, err := store.Prices.Set(t.Context(), tenant, metering.Operator, billing.Price{
				MeterID: m.ID, Terms: billing.Terms{BasePrice: metering.Whole(int64(i)), Currency: "USD"}, EffectiveFrom: november.Add(-time.Duration(i) * time.Hour),
			})
			return err
		}))
		versions, err := store.Prices.Versions(t.Context(), tenant, m.ID, catalog.PriceOwner{})
		require.NoError(t, err)
		require.Len(t, versions, 8)
		for i, p := range versions {
			require.Equal(t, i+1, p.Version)
		}
	})

	t.Run("NoPriceAppliesBeforeItsEffectiveFrom", func(t *testing.T) {
		versions, err := store.Prices.Versions(t.Context(), tenant, m.ID, catalog.PriceOwner{})
		require.NoError(t, err)
		_, ok := billing.PriceAt(versions, 0, november.Add(-8*time.Hour))
		require.False(t, ok)
	})

	t.Run("OnePricePerEffectiveFrom", func(t *testing.T) {
		require.NoError(t, atOnce(8, func(i int) error {
			_, err := store.Prices.Set(t.Context(), tenant, metering.Operator, billing.Price{
				MeterID: m.ID, Terms: billing.Terms{BasePrice: metering.Whole(int64(i)), Currency: "USD"}, EffectiveFrom: november,
			})
			return err
		}))
		versions, err := store.Prices.Versions(t.Context(), tenant, m.ID, catalog.PriceOwner{})
		require.NoError(t, err)
		instants := make(map[time.Time]bool)
		for _, p := range versions {
			require.False(t, instants[p.EffectiveFrom])
			instants[p.EffectiveFrom] = true
		}
		last, ok := billing.PriceAt(versions, 0, november)
		require.True(t, ok)
		require.Equal(t, 16, last.Version)
	})

	t.Run("RateKeepsAllDigits", func(t *testing.T) {
		rate := metering.MustDecimal("123456789012345678.123456789012")
		set, err := store.Prices.Set(t.Context(), tenant, metering.Operator, billing.Price{MeterID: m.ID, Terms: billing.Terms{OverageRate: rate, Currency: "JPY"}, EffectiveFrom: november})
		require.NoError(t, err)
		require.Equal(t, rate.String(), set.OverageRate.String())
	})
}

func TestMeters(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)

	t.Run("EventTypeHasAtMostTwentyMeters", func(t *testing.T) {
		tenant := dbtest.Tenant(t, store).ID
		var made int
		var mu sync.Mutex
		require.NoError(t, atOnce(24, func(i int) error {
			_, err := store.Meters.Create(t.Context(), tenant, metering.Operator, metering.Meter{
				Slug: fmt.Sprint("m", i), EventType: "call", Version: metering.MeterVersion{Aggregation: metering.Sum},
			})
			if metering.CodeOf(err) == metering.CodeInvalid {
				return nil
			}
			mu.Lock()
			made++
			mu.Unlock()
			return err
		}))
		require.Equal(t, metering.MaxMetersPerEventType, made)
		ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "7", "", ""))
		totals := total(t, store, tenant, "acme", billing.CalendarPeriod(november, time.UTC))
		require.Len(t, totals, made)
		for _, each := range totals {
			require.Equal(t, "7", each.Usage.String())
		}
	})

	t.Run("SlugIsUnique", func(t *testing.T) {
		tenant := dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "call")
		_, err := store.Meters.Create(t.Context(), tenant, metering.Operator, metering.Meter{
			Slug: "calls", EventType: "other", Version: metering.MeterVersion{Aggregation: metering.Sum},
		})
		require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	})

	t.Run("MeterWithoutPastEventsIsCompleteAtOnce", func(t *testing.T) {
		tenant := dbtest.Tenant(t, store).ID
		m := dbtest.Meter(t, store, tenant, "calls", "call")
		require.Equal(t, metering.Complete, m.Version.Status)
		updated, backfilling, err := store.Meters.Update(t.Context(), tenant, metering.Operator, "calls", metersBy([]string{"model"}))
		require.NoError(t, err)
		require.Nil(t, backfilling)
		require.Equal(t, []string{"model"}, updated.Version.GroupBy)
	})

	t.Run("NewNameCreatesNoVersion", func(t *testing.T) {
		tenant := dbtest.Tenant(t, store).ID
		m := dbtest.Meter(t, store, tenant, "calls", "call", "model")
		name, groupBy := "Calls", []string{"model"}
		updated, backfilling, err := store.Meters.Update(t.Context(), tenant, metering.Operator, "calls", catalog.MeterChange{Name: &name, GroupBy: &groupBy})
		require.NoError(t, err)
		require.Nil(t, backfilling)
		require.Equal(t, name, updated.Name)
		require.Equal(t, m.Version.ID, updated.Version.ID)
	})
}

func TestEventsArePagedWithoutLossOrRepeat(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	var sent []metering.Event
	for i := range 60 { // 15 events at each of four instants, 9 days apart
		sent = append(sent, dbtest.Event(t, "call", "acme", november.AddDate(0, 0, 9*(i%4)-18), fmt.Sprint(i), "", `{"model":"a"}`))
	}
	ingest(t, store, tenant, sent...)
	acme, err := store.Customers.Get(t.Context(), tenant, "acme")
	require.NoError(t, err)
	everything := metering.Range{Start: november.AddDate(0, -1, 0), End: november.AddDate(0, 1, 0)}
	for _, r := range []metering.Range{everything, {Start: november.AddDate(0, 0, -9), End: november.AddDate(0, 0, 9)}} {
		var want int
		for _, e := range sent {
			if r.Contains(e.At) {
				want++
			}
		}
		for _, limit := range []int{1, 7, 15, 59, 60, 61} {
			seen := make(map[string]bool)
			var after *usage.EventCursor
			for {
				page, err := store.Events.Page(t.Context(), tenant, acme.ID, r, after, nil, limit)
				require.NoError(t, err)
				boundary, err := store.Events.Boundary(t.Context(), tenant, acme.ID, r, after, limit)
				require.NoError(t, err)
				for i, e := range page {
					require.True(t, r.Contains(e.At))
					require.False(t, i > 0 && e.At.Before(page[i-1].At), "out of order")
					require.False(t, seen[e.Value.String()], "twice")
					seen[e.Value.String()] = true
				}
				if boundary == nil {
					break
				}
				last := page[len(page)-1]
				require.Len(t, page, limit)
				require.Equal(t, last.ID, boundary.ID)
				require.True(t, last.At.Equal(boundary.At))
				after = boundary
			}
			require.Len(t, seen, want, "with pages of %d", limit)
		}
	}
}
