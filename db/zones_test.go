package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// billIn sets the time zone of the biller's tenant.
func (b *biller) billIn(zone string) {
	b.Helper()
	b.exec(`update tenants set timezone = $2 where id = $1`, b.tenant, zone)
}

// usedBefore sets the customer's time of creation, and ingests an event with an earlier timestamp.
func (b *biller) usedBefore(created, early time.Time) {
	b.Helper()
	b.created(created)
	b.useAt("1", early)
}

// TestBillingDoesNotNeedTheDatabaseToKnowTheTimeZone uses names of time zones that Debian's PostgreSQL does not know.
func TestBillingDoesNotNeedTheDatabaseToKnowTheTimeZone(t *testing.T) {
	t.Parallel()
	for zone, start := range map[string]string{"US/Eastern": "2026-05-01T04", "Asia/Calcutta": "2026-04-30T18", "Europe/Kiev": "2026-04-30T21"} {
		b := newBiller(t)
		b.billIn(zone)
		b.usedBefore(at("2026-06-01T12:00:00Z"), at("2026-05-31T12:00:00Z"))
		current, err := b.store.Ledger.CurrentPeriod(t.Context(), b.tenant, b.customer.ID, b.now)
		require.NoError(t, err, zone)
		require.Equal(t, start, metering.WindowOf(current.Start.Add(-time.Hour), metering.Month, metering.Location(zone)).Start.Format("2006-01-02T15"))
		b.now = at("2026-06-05T00:00:00Z")
		b.plan(0)
		require.Equal(t, start, b.billingPeriods()[0][:len(start)], zone)
		_, err = b.store.Ledger.Revenue(t.Context(), b.tenant, b.now, b.now)
		require.NoError(t, err, zone)
		_, err = b.store.Ledger.Preview(t.Context(), b.tenant, b.customer.ID, b.now)
		require.NoError(t, err, zone)
	}
}

// TestTenantWithUnknownTimeZoneDoesNotAffectOtherTenants stores an unknown name. Only a write that bypasses the checks,
// such as a manual UPDATE, can store it.
func TestTenantWithUnknownTimeZoneDoesNotAffectOtherTenants(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	good, bad := newBillerAt(t, store, address), newBillerAt(t, store, address)
	bad.billIn("Mars/Olympus")
	for _, b := range []*biller{good, bad} {
		b.usedBefore(at("2026-06-01T12:00:00Z"), at("2026-05-31T12:00:00Z"))
	}
	_, err := store.Ledger.CurrentPeriod(t.Context(), bad.tenant, bad.customer.ID, bad.now)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	_, err = store.Ledger.Revenue(t.Context(), bad.tenant, bad.now, bad.now)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))

	good.plan(0)
	require.NotEmpty(t, good.billingPeriods())
	_, err = store.Maintenance.Retain(t.Context(), at("2026-06-20T00:00:00Z"), at("2026-08-20T00:00:00Z"))
	require.NoError(t, err)
	var edge time.Time
	require.NoError(t, good.connect().QueryRow(t.Context(), `select kept_from from event_retention`).Scan(&edge))
	needed := at("2026-04-27T12:00:00Z") // 72 hours of grace and 32 days before the creation of its customer
	require.False(t, edge.After(needed), "its events may still be billed")
	require.True(t, edge.After(needed.AddDate(0, 0, -7)), "older events are dropped")
}

// monthOf returns the local month of an instant, which it finds minute by minute. If the clocks go back into the
// previous month, the later month stays the current one.
func monthOf(at time.Time, zone *time.Location) (month metering.Range) {
	first := at.Add(-40 * 24 * time.Hour).Truncate(time.Minute)
	latest := 0
	for minute := first; month.End.IsZero(); minute = minute.Add(time.Minute) {
		local := minute.In(zone)
		if number := local.Year()*12 + int(local.Month()); number > latest {
			if latest > 0 && minute.After(at) {
				month.End = minute
			} else if latest > 0 {
				month.Start = minute
			}
			latest = number
		}
	}
	return month
}

func TestPropertyPeriodsOfAllZonesAgreeWithARecount(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	histories.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(metering.ZoneNames()).Draw(rt, "zone")
		zone := metering.Location(name)
		latest := clock.Now().AddDate(0, 0, -93)
		earliest := latest.AddDate(-4, 0, 0) // older events are rejected
		created := time.UnixMicro(rapid.Int64Range(earliest.UnixMicro(), latest.UnixMicro()).Draw(rt, "created")).UTC()
		if change, _ := created.In(zone).ZoneBounds(); change.After(earliest) && rapid.Bool().Draw(rt, "near a change of clocks") {
			created = change.UTC().Add(time.Duration(rapid.IntRange(-2*3600, 96*3600).Draw(rt, "seconds away")) * time.Second)
		}
		if rapid.Bool().Draw(rt, "near a month's start") {
			created = monthOf(created, zone).Start.Add(time.Duration(rapid.IntRange(0, 96*3600).Draw(rt, "seconds later")) * time.Second)
		}
		early := created.Add(-time.Duration(rapid.IntRange(1, 40*24*3600).Draw(rt, "seconds before")) * time.Second)
		if rapid.Bool().Draw(rt, "at a border") {
			early = monthOf(created, zone).Start.Add(-time.Duration(rapid.SampledFrom([]int{0, 1}).Draw(rt, "microseconds before")) * time.Microsecond)
		}

		b := newBillerAt(t, store, address)
		b.billIn(name)
		b.exec(`update meter_versions set timezone = $2 where tenant_id = $1`, b.tenant, name)
		b.meter.Version.Timezone = name
		b.usedBefore(created, early)
		b.now = created.Add(40 * 24 * time.Hour)
		b.plan(0)

		want := monthOf(created, zone)
		if of := monthOf(early, zone); early.Before(created) && created.Before(of.End.Add(72*time.Hour)) {
			want = of
		}
		const hour = "2006-01-02T15"
		require.Equal(rt, want.Start.UTC().Format(hour)+".."+want.End.UTC().Format(hour), b.billingPeriods()[0])

		current, err := store.Ledger.CurrentPeriod(t.Context(), b.tenant, b.customer.ID, b.now)
		require.NoError(rt, err)
		require.True(rt, monthOf(b.now, zone).Start.Equal(current.Start) && monthOf(b.now, zone).End.Equal(current.End), "%s", current)
		page, err := store.Usage.Windows(t.Context(), b.tenant, usage.WindowQuery{
			Customer: b.customer.ID, Meter: b.meter, Range: metering.Range{Start: want.Start.AddDate(0, 0, -70), End: b.now}, Granularity: metering.Month, Limit: 10,
		})
		require.NoError(rt, err)
		require.Len(rt, page.Windows, 1)
		require.True(rt, monthOf(early, zone).Start.Equal(page.Windows[0].Start), "%s", page.Windows[0].Start)

		require.False(rt, want.Start.Before(created.Add(-72*time.Hour).AddDate(0, 0, -32)), "retention may have dropped its events")
	})
}
