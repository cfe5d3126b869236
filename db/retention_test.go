package db_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// keeper is a tenant in its own database, because all tenants share the time from which events are retained. By
// default, its customers have no billing periods that need events.
type keeper struct {
	*testing.T
	store  *db.DB
	conn   *pgx.Conn
	tenant metering.TenantID
	now    time.Time
}

func newKeeper(t *testing.T, store *db.DB, conn *pgx.Conn, zone string) *keeper {
	return &keeper{T: t, store: store, conn: conn, tenant: dbtest.Tenant(t, store, zone).ID, now: clock.Now()}
}

func newKeeperAt(t *testing.T, store *db.DB, address string) *keeper {
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return newKeeper(t, store, conn, "UTC")
}

// daysAgo returns 10:07 UTC on the day the given number of days ago.
func (k *keeper) daysAgo(days int) time.Time {
	return k.now.UTC().Truncate(24*time.Hour).AddDate(0, 0, -days).Add(10*time.Hour + 7*time.Minute)
}

func (k *keeper) retain(days int) (dropped int) {
	k.Helper()
	dropped, err := k.store.Maintenance.Retain(k.Context(), k.now.AddDate(0, 0, -days), k.now)
	require.NoError(k, err)
	return dropped
}

func (k *keeper) exec(sql string, args ...any) {
	k.Helper()
	_, err := k.conn.Exec(k.Context(), sql, args...)
	require.NoError(k, err)
}

func (k *keeper) count(sql string, args ...any) (n int) {
	k.Helper()
	require.NoError(k, k.conn.QueryRow(k.Context(), sql, args...).Scan(&n))
	return n
}

func (k *keeper) edge() *time.Time {
	k.Helper()
	var edge *time.Time
	require.NoError(k, k.conn.QueryRow(k.Context(), `select kept_from from event_retention`).Scan(&edge))
	return edge
}

func (k *keeper) customer(externalID string) metering.CustomerID {
	k.Helper()
	c, err := k.store.Customers.Get(k.Context(), k.tenant, externalID)
	require.NoError(k, err)
	return c.ID
}

// usage returns the totals, windows and groups of these customers, for every meter and granularity.
func (k *keeper) usage(r metering.Range, customers ...string) (lines []string) {
	k.Helper()
	meters, err := dbtest.Items(k.store.Meters.List(k.Context(), k.tenant, 0, 100, false))
	require.NoError(k, err)
	for _, name := range customers {
		id := k.customer(name)
		totals, err := k.store.Usage.MeterTotals(k.Context(), k.tenant, id, r)
		require.NoError(k, err)
		for _, t := range totals {
			lines = append(lines, fmt.Sprint(name, t.Meter.Slug, t.Sum, t.Count))
		}
		for _, m := range meters {
			for _, g := range metering.Hour.Values() {
				page, err := k.store.Usage.Windows(k.Context(), k.tenant, usage.WindowQuery{Customer: id, Meter: m, Range: r, Granularity: g, Limit: 10_000})
				require.NoError(k, err)
				lines = append(lines, fmt.Sprint(page.Total))
				for _, group := range page.Groups {
					lines = append(lines, fmt.Sprintf("%x %s", group.GroupID, group.Total))
				}
				lines = append(lines, shown(page.Windows)...)
			}
		}
	}
	return lines
}

func TestDroppingEventsChangesNoTotal(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Asia/Kathmandu"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			eachEdition(t, func(t *testing.T, store *db.DB, conn *pgx.Conn, community bool) {
				k := newKeeper(t, store, conn, zone)
				dbtest.Meter(t, store, k.tenant, "calls", "call", "model")
				dbtest.Meter(t, store, k.tenant, "all", "call")
				random := rand.New(rand.NewPCG(1, 2))
				var events []metering.Event
				for i := range 1500 {
					at := k.now.Add(-time.Duration(random.Int64N(int64(200 * 24 * time.Hour))))
					events = append(events, dbtest.Event(t, []string{"call", "unknown"}[i%5/4], []string{"acme", "beta"}[i%2], at,
						fmt.Sprintf("%d.%012d", random.IntN(1e6)-5e5, random.Int64N(1e12)), []string{"", fmt.Sprint(i)}[i%3/2], fmt.Sprintf(`{"model":%d}`, i%4)))
				}
				ingest(t, store, k.tenant, events...)
				refresh(t, store, k.now, community)
				zoneOf := metering.Location(zone)
				whole := metering.Range{
					Start: metering.WindowOf(k.daysAgo(210), metering.Day, zoneOf).Start, End: metering.WindowOf(k.now, metering.Hour, zoneOf).End,
				}
				before, stored := k.usage(whole, "acme", "beta"), k.count(`select count(*) from events`)
				require.Zero(t, k.retain(201), "all are younger")

				require.Positive(t, k.retain(90))
				require.Equal(t, before, k.usage(whole, "acme", "beta"))
				edge := *k.edge()
				require.True(t, edge.Before(k.daysAgo(90)) && edge.After(k.daysAgo(98)), "a whole chunk before the cutoff, and no more: %s", edge)
				require.Zero(t, k.count(`select count(*) from events where ts < $1`, edge))
				kept := 0
				for _, e := range events {
					if !e.At.Before(edge) {
						kept++
					}
				}
				require.Equal(t, kept, k.count(`select count(*) from events`))
				require.Less(t, kept, stored)
				require.Zero(t, k.retain(90), "again")
				require.Zero(t, k.retain(150), "the edge never moves back")
				require.True(t, edge.Equal(*k.edge()))
				require.Equal(t, kept, k.count(`select count(*) from events`))
				refresh(t, store, k.now, community)
				require.Equal(t, before, k.usage(whole, "acme", "beta"))
			})
		})
	}
}

func TestOnlyWholeHoursAreReadBeforeRetentionEdge(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	k := newKeeper(t, store, conn, "Asia/Kathmandu")
	m := dbtest.Meter(t, store, k.tenant, "calls", "call")
	for days := 1; days < 100; days++ {
		ingest(t, store, k.tenant, dbtest.Event(t, "call", "acme", k.daysAgo(days), "1", "", ""))
	}
	require.Positive(t, k.retain(50))
	acme, edge := k.customer("acme"), *k.edge()
	quarter := edge.Add(-72 * time.Hour).Add(15 * time.Minute) // in Kathmandu hours begin at :15
	read := func(r metering.Range) (errs []error) {
		_, err := store.Usage.MeterTotals(t.Context(), k.tenant, acme, r)
		errs = append(errs, err)
		_, err = store.Usage.Windows(t.Context(), k.tenant, usage.WindowQuery{Customer: acme, Meter: m, Range: r, Granularity: metering.Day, Limit: 10})
		return append(errs, err)
	}
	for _, whole := range []metering.Range{
		{Start: quarter, End: quarter.Add(time.Hour)},
		{Start: edge.Add(time.Minute), End: k.now},
		{Start: edge, End: edge.Add(15 * time.Minute)},
	} {
		for _, err := range read(whole) {
			require.NoError(t, err, whole)
		}
	}
	for place, ragged := range map[string]metering.Range{
		"query.start": {Start: quarter.Add(-time.Microsecond), End: k.now},
		"query.end":   {Start: quarter, End: edge.Add(time.Minute)}, // within the hour that contains the edge
	} {
		for _, err := range read(ragged) {
			var refused *metering.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, metering.CodeInvalid, refused.Code)
			require.Equal(t, place, refused.Fields[0].Location)
			require.Contains(t, refused.Message, edge.Format(time.RFC3339))
		}
	}
	_, err = store.Events.Page(t.Context(), k.tenant, acme, metering.Range{Start: edge, End: k.now}, nil, nil, 10)
	require.NoError(t, err)
	_, err = store.Events.Page(t.Context(), k.tenant, acme, metering.Range{Start: edge.Add(-time.Microsecond), End: k.now}, nil, nil, 10)
	require.Equal(t, metering.CodeInvalid, metering.CodeOf(err))
}

func TestEventWithKeyBeforeRetentionEdgeIsNotCountedTwice(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	k := newKeeperAt(t, store, address)
	dbtest.Meter(t, store, k.tenant, "calls", "call")
	dbtest.Customer(t, store, k.tenant, "acme")
	dated := dbtest.Event(t, "call", "acme", k.daysAgo(100), "5", "dated", "")
	undated := func(now time.Time) metering.Event {
		key := "undated"
		e, rejection := metering.SentEvent{EventType: "call", CustomerID: "acme", IdempotencyKey: &key}.Judge(now)
		require.Nil(t, rejection)
		return e
	}
	young := dbtest.Event(t, "call", "acme", k.daysAgo(10), "7", "young", "")
	ingest(t, store, k.tenant, dated, undated(k.daysAgo(100)), young)
	require.Positive(t, k.retain(50))
	require.Equal(t, 2, k.count(`select count(*) from event_keys`), "the dated key is forgotten")

	require.Equal(t, []usage.Outcome{{Forgotten: true}, {Duplicate: true}, {Duplicate: true}, {}},
		ingest(t, store, k.tenant, dated, undated(k.now), young, dbtest.Event(t, "call", "acme", k.daysAgo(101), "11", "", "")))
	all := metering.Range{Start: k.daysAgo(120).Truncate(time.Hour), End: k.now.Truncate(time.Hour)}
	require.Equal(t, "24", total(t, store, k.tenant, "acme", all)[0].Usage.String(), "5 + 1 + 7, and 11 without a key")
	require.Equal(t, 1, k.retain(50), "events without a key are dropped too")
	require.Equal(t, "24", total(t, store, k.tenant, "acme", all)[0].Usage.String())
	require.Zero(t, k.count(`select count(*) from forgotten_days`))
}

func TestRetentionKeepsEventsThatBillingMayNeed(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	k := newKeeperAt(t, store, address)
	dbtest.Meter(t, store, k.tenant, "calls", "call")
	for days := 1; days < 300; days += 3 {
		ingest(t, store, k.tenant, dbtest.Event(t, "call", "acme", k.daysAgo(days), "1", "", ""))
	}
	acme := k.customer("acme")
	edgeAfter := func(hold time.Time) {
		t.Helper()
		k.retain(50)
		edge := *k.edge()
		require.False(t, edge.After(hold), "%s is needed", hold)
		require.True(t, edge.Add(7*24*time.Hour).After(hold), "%s holds back no more than its chunk", hold)
	}

	k.exec(`update customers set created_at = $2 where id = $1`, acme, k.daysAgo(250))
	edgeAfter(k.daysAgo(250 + 3 + 32)) // the first period is not decided yet: it may begin in a month that ended less than the grace before the creation

	period := func(start, end time.Time, closed bool) {
		k.exec(`insert into billing_periods (tenant_id, customer_id, starts_at, ends_at, closed_at) values ($1, $2, $3, $4, case when $5 then $4::timestamptz end)`,
			k.tenant, acme, start, end, closed)
	}
	period(k.daysAgo(250), k.daysAgo(200), true)
	edgeAfter(k.daysAgo(200)) // where the next period will begin
	period(k.daysAgo(200), k.daysAgo(130), false)
	period(k.daysAgo(130), k.daysAgo(10), false)
	edgeAfter(k.daysAgo(200))
	k.exec(`update billing_periods set closed_at = ends_at where ends_at < $1`, k.daysAgo(129))
	edgeAfter(k.daysAgo(130))
	k.exec(`update billing_periods set closed_at = ends_at where ends_at < $1`, k.daysAgo(9))

	held := *k.edge()
	m := dbtest.Meter(t, store, k.tenant, "late", "call")
	require.Equal(t, metering.Backfilling, m.Version.Status)
	require.True(t, held.Equal(*m.Version.CountedFrom))
	require.Zero(t, k.retain(50), "the backfill needs the events")
	require.True(t, held.Equal(*k.edge()))
	require.NoError(t, backfill(t.Context(), store, k.tenant, m.Version.ID))
	edgeAfter(k.daysAgo(50))

	all := metering.Range{Start: k.daysAgo(310).Truncate(time.Hour), End: k.now.Truncate(time.Hour)}
	totals := total(t, store, k.tenant, "acme", all)
	require.Equal(t, "100", totals[0].Usage.String())
	kept := 0
	for days := 1; days < 300; days += 3 {
		if !k.daysAgo(days).Before(held) {
			kept++
		}
	}
	require.Equal(t, fmt.Sprint(kept), totals[1].Usage.String(), "only events after the edge are counted")
}

func TestRetainMeasuresCustomerAgeAtGivenTime(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	k := newKeeperAt(t, store, address)
	ingest(t, store, k.tenant, dbtest.Event(t, "call", "acme", k.daysAgo(300), "1", "", ""))
	k.exec(`update customers set created_at = $1, billing_starts_at = $2`, k.daysAgo(250), k.daysAgo(10))
	cutoff := k.daysAgo(50)

	_, err := store.Maintenance.Retain(t.Context(), cutoff, k.daysAgo(240))
	require.NoError(t, err)
	require.True(t, k.edge().Before(k.daysAgo(250)), "its first month is kept")
	_, err = store.Maintenance.Retain(t.Context(), cutoff, k.now)
	require.NoError(t, err)
	require.True(t, k.edge().After(k.daysAgo(60)))
}

func TestIngestContinuesWhileRetentionEdgeMoves(t *testing.T) {
	t.Parallel()
	eachEdition(t, func(t *testing.T, store *db.DB, conn *pgx.Conn, _ bool) {
		k := newKeeper(t, store, conn, "UTC")
		dbtest.Meter(t, store, k.tenant, "calls", "call")
		writer := store.NewWriter(usage.WriterOptions{GroupEvents: 20, Deadline: dbtest.Deadline})
		defer writer.Close()
		counted, failed := make([]int, 4), make(chan error)
		for sender := range counted {
			go func() {
				random := rand.New(rand.NewPCG(uint64(sender), 3))
				seen := make(map[string]bool)
				for range 60 {
					var batch []metering.Event
					for range 5 { // the same keys at the same instants, repeatedly
						days := 40 + random.IntN(60)
						batch = append(batch, dbtest.Event(t, "call", "acme", k.daysAgo(days), "1", fmt.Sprint(sender, "-", days), ""))
					}
					batch = append(batch, dbtest.Event(t, "call", "acme", k.daysAgo(40+random.IntN(60)), "1", "", ""))
					outcomes, err := writer.Ingest(t.Context(), k.tenant, batch)
					if err != nil {
						failed <- err
						return
					}
					for i, o := range outcomes {
						key := batch[i].IdempotencyKey
						if key != "" && reflect.DeepEqual(o, usage.Outcome{}) && seen[key] {
							failed <- fmt.Errorf("%s is counted twice", key)
							return
						}
						if reflect.DeepEqual(o, usage.Outcome{}) {
							seen[key] = true
							counted[sender]++
						}
					}
				}
				failed <- nil
			}()
		}
		for days, senders := 100, len(counted); senders > 0; {
			select {
			case err := <-failed:
				require.NoError(t, err)
				senders--
			default:
				days = max(45, days-7)
				_, err := store.Maintenance.Retain(t.Context(), k.now.AddDate(0, 0, -days), k.now)
				if metering.CodeOf(err) != metering.CodeOverloaded { // a writer is creating the chunk again; the next call drops it
					require.NoError(t, err)
				}
			}
		}
		all := metering.Range{Start: k.daysAgo(120).Truncate(time.Hour), End: k.now.Truncate(time.Hour)}
		sum := 0
		for _, n := range counted {
			sum += n
		}
		require.Equal(t, fmt.Sprint(sum), total(t, store, k.tenant, "acme", all)[0].Usage.String())
		require.NotNil(t, k.edge())
		k.retain(45)
		require.Zero(t, k.count(`select count(*) from events where ts < (select kept_from from event_retention)`))
		require.Zero(t, k.count(`
			select count(*) from events e
			where idempotency_key is not null
			  and not exists (select from event_keys k where k.tenant_id = e.tenant_id and k.key = event_key(e.idempotency_key))`), "an event that is kept has its key")
	})
}

// TestBilledLateUsageIsKeptAfterItsEventsAreDropped uses a subscription's period that begins and ends in the
// middle of an hour, so that its late usage is counted from events.
func TestBilledLateUsageIsKeptAfterItsEventsAreDropped(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b := newBillerAt(t, store, address)
	now := b.now
	start := metering.Instant(now.AddDate(0, 0, -200).Truncate(24 * time.Hour).Add(25 * time.Minute))
	closed, open := metering.Range{Start: start, End: start.AddDate(0, 0, 60)}, metering.Range{Start: start.AddDate(0, 0, 60), End: now.AddDate(0, 0, 10)}
	b.created(start)
	b.price("10", "100", "0.005")
	for _, period := range []metering.Range{closed, open} {
		b.exec(`insert into billing_periods (tenant_id, customer_id, starts_at, ends_at) values ($1, $2, $3, $4)`, b.tenant, b.customer.ID, period.Start, period.End)
	}
	b.useAt("200", start.Add(time.Minute))
	b.now = closed.End.Add(72 * time.Hour)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	b.useAt("100", start.Add(time.Minute)) // this event and the next are in hours that the period covers in part
	b.useAt("40", closed.End.Add(-time.Minute))
	carried := adjustments(t, b.accept())
	require.Len(t, carried, 1)
	require.Equal(t, "140", carried[0].Usage.String())
	require.Equal(t, "0.7", carried[0].Amount.String())
	statement := func() billing.StatementLine {
		list, err := dbtest.Items(store.Ledger.Statements(t.Context(), b.tenant, b.customer.ID, billing.PeriodPlace{Start: now}, 10, now))
		require.NoError(t, err)
		return list[len(list)-1].Lines[0]
	}
	before := statement()

	b.digests()
	retain := func() {
		dropped, err := store.Maintenance.Retain(t.Context(), now.AddDate(0, 0, -40), now)
		require.NoError(t, err)
		require.Positive(t, dropped)
	}
	retain()
	require.Equal(t, before, statement())
	require.Empty(t, b.plan(anew).Send, "nothing has changed")

	groupBy := []string{"model"}
	_, backfilling, err := store.Meters.Update(t.Context(), b.tenant, metering.Operator, b.meter.Slug, metersBy(groupBy))
	require.NoError(t, err)
	require.NoError(t, backfill(t.Context(), store, b.tenant, backfilling.ID))
	require.Equal(t, before, statement(), "a new meter version changes only usage of retained events")
	b.useAt("5", b.now)
	require.Equal(t, carried, adjustments(t, b.accept()), "the adjustment is unchanged")

	b.useAt("1000", start.Add(time.Minute)) // without a key, and so accepted
	require.Equal(t, before, statement(), "the event is too late to be billed")
	require.Empty(t, b.plan(anew).Send)
	retain()
}

// TestLateUsageInPartialHourKeepsItsValue uses two billing schedules with the same periods, which begin and end in the
// middle of an hour. The meter moves to the second schedule in the middle of an hour. Late usage of these hours is
// therefore counted from events. The value property of the meter changes twice.
func TestLateUsageInPartialHourKeepsItsValue(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	now := b.now
	start := metering.Instant(now.AddDate(0, 0, -90).Truncate(24 * time.Hour).Add(25 * time.Minute))
	moved := start.AddDate(0, 0, 20)
	closed, open := metering.Range{Start: start, End: start.AddDate(0, 0, 40)}, metering.Range{Start: start.AddDate(0, 0, 40), End: now.AddDate(0, 0, 10)}
	b.created(start)
	b.price("0", "0", "1")
	b.exec(`insert into billing_stream_meters (tenant_id, customer_id, meter_id, stream, effective_from, recorded_at) values ($1, $2, $3, 1, $4, $4)`, b.tenant, b.customer.ID, b.meter.ID, moved)
	b.exec(`update customers set streams = 2 where tenant_id = $1 and id = $2`, b.tenant, b.customer.ID)
	for stream := range 2 {
		for _, period := range []metering.Range{closed, open} {
			b.exec(`insert into billing_periods (tenant_id, customer_id, stream, starts_at, ends_at) values ($1, $2, $3, $4, $5)`, b.tenant, b.customer.ID, stream, period.Start, period.End)
		}
	}
	late := func(value, inB string) {
		for _, at := range []time.Time{start.Add(time.Minute), moved.Add(-time.Minute), moved, closed.End.Add(-time.Microsecond)} {
			e := dbtest.Event(t, "api_call", "acme", at, value, "", `{"b":`+inB+`}`)
			e.ReceivedAt = b.now
			_, err := b.writer.Ingest(t.Context(), b.tenant, []metering.Event{e})
			require.NoError(t, err)
		}
	}
	change := func(property string) {
		_, version, err := b.store.Meters.Update(t.Context(), b.tenant, metering.Operator, b.meter.Slug, catalog.MeterChange{ValueProperty: &property})
		require.NoError(t, err)
		require.NoError(t, backfill(t.Context(), b.store, b.tenant, version.ID))
	}
	requireLate := func(want string) {
		list, err := dbtest.Items(b.store.Ledger.Statements(t.Context(), b.tenant, b.customer.ID, billing.PeriodPlace{Start: now}, 10, now))
		require.NoError(t, err)
		var all []string
		for _, s := range list {
			if s.Start.Equal(start) {
				all = append(all, s.Lines[0].LateUsage.String())
			}
		}
		require.Equal(t, []string{want, want}, all, "by billing schedule")
	}
	late("100", "1")
	b.now = closed.End.Add(72 * time.Hour)
	b.acceptAll()
	b.closePeriods()
	requireLate("0")
	late("10", "3")
	requireLate("20")
	change("b")
	requireLate("20")
	late("1000", "5")
	requireLate("30")
	change("")
	requireLate("30")
	late("7", "2000")
	requireLate("44")
	require.NoError(t, b.store.Ledger.KeepLateUsage(t.Context(), b.tenant, b.customer.ID, closed.End))
	requireLate("44")
	late("1", "1")
	requireLate("44")
}

// TestFailedSettlementOfLateUsageDelaysOnlyItsCustomer makes the settlement of one customer's late usage fail. Only
// that settlement is delayed, and no events are dropped until it succeeds.
func TestFailedSettlementOfLateUsageDelaysOnlyItsCustomer(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	now := clock.Now()
	start := metering.Instant(now.AddDate(0, 0, -200).Truncate(24 * time.Hour))
	var all []*biller
	for range 3 {
		b := newBillerAt(t, store, address)
		b.created(start)
		b.price("10", "100", "0.005")
		for n := range 2 {
			from := start.AddDate(0, 0, 60*n)
			b.exec(`insert into billing_periods (tenant_id, customer_id, starts_at, ends_at) values ($1, $2, $3, $4)`, b.tenant, b.customer.ID, from, from.AddDate(0, 0, 60+80*n))
		}
		b.useAt("200", start.Add(time.Minute))
		b.now = start.AddDate(0, 0, 63)
		b.acceptAll()
		require.Equal(t, 1, b.closePeriods().Closed)
		b.digests()
		all = append(all, b)
	}
	waiting := func() (tenants []metering.TenantID) {
		for _, b := range all {
			var n int
			require.NoError(t, b.connect().QueryRow(t.Context(), `select count(*) from billing_period_totals where tenant_id = $1 and late_count is null`, b.tenant).Scan(&n))
			if n > 0 {
				tenants = append(tenants, b.tenant)
			}
		}
		return tenants
	}
	fails := all[1]
	fails.exec(`create function refuse() returns trigger language plpgsql as 'begin raise exception ''refused''; end'`)
	fails.exec(fmt.Sprintf(`create trigger refused before update on billing_period_totals for each row when (new.tenant_id = %d) execute function refuse()`, int64(fails.tenant)))

	dropped, err := store.Maintenance.Retain(t.Context(), now.AddDate(0, 0, -40), now)
	require.ErrorContains(t, err, fails.tenant.String())
	require.ErrorContains(t, err, fails.customer.ID.String())
	require.Zero(t, dropped)
	require.Equal(t, []metering.TenantID{fails.tenant}, waiting())

	fails.exec(`drop trigger refused on billing_period_totals`)
	dropped, err = store.Maintenance.Retain(t.Context(), now.AddDate(0, 0, -40), now)
	require.NoError(t, err)
	require.Positive(t, dropped)
	require.Empty(t, waiting())
}
