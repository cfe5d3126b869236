package db_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// newOldBiller returns a biller with the clock in the middle of a month that ended long ago. The
// customer was created at that instant. The price is 10 a month, with 100 included units, and half a
// cent for each further unit.
func newOldBiller(t *testing.T) (b *biller, month metering.Range) {
	t.Helper()
	b = newBiller(t)
	return b, b.old()
}

// newOldBillerIn is newOldBiller with its own database and a pool of the given number of connections. A test may lock
// whole tables of this database.
func newOldBillerIn(t *testing.T, connections int) (b *biller, month metering.Range) {
	t.Helper()
	_, address := dbtest.Fresh(t)
	store, err := dbtest.Connect(t.Context(), fmt.Sprintf("%s&pool_max_conns=%d", address, connections))
	require.NoError(t, err)
	t.Cleanup(store.Close)
	b = newBillerAt(t, store, address)
	return b, b.old()
}

func (b *biller) old() (month metering.Range) {
	b.Helper()
	month = billing.CalendarPeriod(clock.Month(clock.Now(), -5), time.UTC)
	b.created(month.Start.AddDate(0, 0, 14))
	b.price("10", "100", "0.005")
	return month
}

func (b *biller) closePeriods() ledger.Closing {
	b.Helper()
	f, err := b.store.Ledger.ClosePeriods(b.Context(), b.tenant, []metering.CustomerID{b.customer.ID}, b.now)
	require.NoError(b, err)
	return f
}

// acceptAll plans and sends reports until none is left. The provider accepts each of them.
func (b *biller) acceptAll() {
	b.Helper()
	for planned := b.plan(anew); len(planned.Send) > 0; planned = b.plan(anew) {
		b.acceptOf(planned)
	}
}

// over returns the end of the grace after a month.
func over(month metering.Range) time.Time { return month.End.Add(72 * time.Hour) }

func (b *biller) closedUntil() *time.Time {
	b.Helper()
	var until *time.Time
	row := b.connect().QueryRow(b.Context(), `select closed_until from customers where tenant_id = $1 and id = $2`, b.tenant, b.customer.ID)
	require.NoError(b, row.Scan(&until))
	return until
}

// statedAdjustment is an adjustment of a statement with undecoded steps. Steps may have more decimals than a request
// may have.
type statedAdjustment struct {
	webhook.Adjustment

	Steps json.RawMessage `json:"steps"`
}

func adjustments(t testing.TB, m message) []statedAdjustment {
	t.Helper()
	text, err := json.Marshal(m.Data.Adjustments)
	require.NoError(t, err)
	var list []statedAdjustment
	require.NoError(t, json.Unmarshal(text, &list))
	return list
}

func TestPeriodClosesBeforeProviderHasAcceptedItsTotal(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("141.75")
	b.accept()

	b.now = over(month).Add(-time.Microsecond)
	b.acceptAll()
	require.Equal(t, ledger.Closing{}, b.closePeriods(), "its grace is not over")
	b.now = over(month)
	b.useAt("1", month.Start.AddDate(0, 0, 20))
	require.Equal(t, ledger.Closing{Closed: 1}, b.closePeriods(), "the period closes although the last unit was not reported")
	require.Equal(t, ledger.Closing{}, b.closePeriods(), "the period is closed already")
	require.True(t, month.End.Equal(*b.closedUntil()))
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync())
	b.useAt("1", month.Start.AddDate(0, 0, 20))
	last := b.accept()
	require.True(t, month.Start.Equal(last.Data.Period.Start))
	require.Equal(t, "142.75", last.Data.Meters[0].Usage.String(), "the statement has the closed total, without the late usage")
	b.acceptAll()
	require.Empty(t, b.outOfSync())
	b.exec(`update customers set look_again_at = null where id = $1`, b.customer.ID)
	require.Empty(t, b.plan(anew).Send, "a closed period gets no further statement")
	var complete bool
	b.scan(`select complete from billing_periods where tenant_id = $1 and starts_at = $2`, []any{b.tenant, month.Start}, &complete)
	require.True(t, complete)

	var usage, charge metering.Decimal
	var events int64
	var version int
	var billed bool
	row := dbtest.Conn(t).QueryRow(t.Context(), `
		select usage, event_count, price_version, charge, billed from billing_period_totals where tenant_id = $1`, b.tenant)
	require.NoError(t, row.Scan(&usage, &events, &version, &charge, &billed))
	require.Equal(t, "142.75", usage.String())
	require.EqualValues(t, 2, events)
	require.Equal(t, 1, version)
	require.Equal(t, "10.21", charge.String())
	require.True(t, billed)
}

// TestClosingWaitsForAsLongAsItLockedTheTenant checks that a closing waits after its writes for as long as it held the
// tenant's lock. Without this wait, repeated closings would block ingest.
func TestClosingWaitsForAsLongAsItLockedTheTenant(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{1, 3} { // planned while ingest waits, and beside ingest
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			t.Parallel()
			b, month := newOldBillerIn(t, connections)
			b.use("141.75")
			b.plan(anew)
			b.now = over(month)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b.store.HoldLocksFor(1000 * time.Hour)
			closed := make(chan ledger.Closing, 1)
			go func() {
				f, err := b.store.Ledger.ClosePeriods(ctx, b.tenant, []metering.CustomerID{b.customer.ID}, b.now)
				assert.NoError(t, err)
				closed <- f
			}()
			dbtest.Eventually(t, func() error {
				var periods int
				b.scan(`select count(*) from billing_periods where tenant_id = $1 and closed_at is not null`, []any{b.tenant}, &periods)
				if periods == 0 {
					return errors.New("the period is open")
				}
				return nil
			})
			b.use("1")
			require.Empty(t, closed, "the closing pauses while events are ingested")
			cancel()
			require.Equal(t, ledger.Closing{Closed: 1}, <-closed)
		})
	}
}

func TestIngestContinuesWhileClosingsArePlanned(t *testing.T) {
	t.Parallel()
	b, month := newOldBillerIn(t, 8)
	b.use("141.75")
	b.now = over(month)
	tx, err := b.connect().Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from customers where id = $1 for update`, b.customer.ID) // planning waits for this row lock
	require.NoError(t, err)
	closed := make(chan ledger.Closing, 1)
	go func() { closed <- b.closePeriods() }()
	awaitBlocked(t, tx)
	b.use("1")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, ledger.Closing{Closed: 1}, <-closed)
}

// TestEventStoredWhileClosingIsPlannedIsInTheClosing stores an event after a closing was planned and
// before it is written. The event is counted once, in the closing and not as late usage.
func TestEventStoredWhileClosingIsPlannedIsInTheClosing(t *testing.T) {
	t.Parallel()
	b, month := newOldBillerIn(t, 8)
	late := month.Start.AddDate(0, 0, 20)
	b.useAt("141.75", late) // creates the chunk: otherwise, ingest would wait to create it before its transaction begins
	b.now = over(month)
	tx, err := b.connect().Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `lock table events in share mode`) // ingest waits for this lock while it holds the tenant's lock
	require.NoError(t, err)
	ingested, closed := make(chan struct{}), make(chan ledger.Closing, 1)
	go func() {
		b.useAt("1", late)
		close(ingested)
	}()
	awaitBlocked(t, tx)
	go func() { closed <- b.closePeriods() }()
	watch := b.connect()
	dbtest.Eventually(t, func() error { return checkLockIsAwaited(watch) }) // the closing waits
	require.NoError(t, tx.Rollback(t.Context()))
	<-ingested
	require.Equal(t, ledger.Closing{Closed: 1}, <-closed)

	var usage metering.Decimal
	b.scan(`select usage from billing_period_totals where tenant_id = $1`, []any{b.tenant}, &usage)
	require.Equal(t, "142.75", usage.String())
	var lateEvents int64
	b.scan(`select sum(late_count) from usage_months where tenant_id = $1`, []any{b.tenant}, &lateEvents)
	require.Zero(t, lateEvents)
}

func TestClosePeriodsDoesNotLockTenantIfNoPeriodIsDue(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("141.75")
	b.now = over(month).Add(-time.Microsecond)
	conn := b.connect()
	_, err := conn.Exec(t.Context(), `select pg_advisory_lock($1)`, b.tenant)
	require.NoError(t, err)
	within, cancel := context.WithTimeout(t.Context(), dbtest.Deadline)
	defer cancel()
	f, err := b.store.Ledger.ClosePeriods(within, b.tenant, []metering.CustomerID{b.customer.ID}, b.now)
	require.NoError(t, err)
	require.Equal(t, ledger.Closing{}, f, "its grace is not over")
}

func TestConcurrentClosingsNeedFewConnections(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			t.Parallel()
			b, month := newOldBillerIn(t, connections)
			b.use("141.75")
			b.now = over(month)
			within, cancel := context.WithTimeout(t.Context(), dbtest.Deadline)
			defer cancel()
			closed := make(chan int, 8)
			for range cap(closed) {
				go func() {
					f, err := b.store.Ledger.ClosePeriods(within, b.tenant, []metering.CustomerID{b.customer.ID}, b.now)
					assert.NoError(t, err)
					closed <- f.Closed
				}()
			}
			all := 0
			for range cap(closed) {
				all += <-closed
			}
			require.Equal(t, 1, all, "the period closes once")
		})
	}
}

func TestClosedPeriodStoresTermsAndBreakdownOfItsCharge(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("141.75")
	b.now = over(month)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)

	var version metering.MeterVersionID
	var terms billing.Terms
	var hash []byte
	var working []billing.Step
	row := dbtest.Conn(t).QueryRow(t.Context(), `
		select t.meter_version_id, m.hash, m.terms, t.working
		from billing_period_totals t
		join price_terms m on m.tenant_id = t.tenant_id and m.hash = t.terms
		where t.tenant_id = $1`, b.tenant)
	require.NoError(t, row.Scan(&version, &hash, &terms, &working))
	require.Equal(t, b.meter.Version.ID, version)
	require.Equal(t, `{"schema":1,"base_price":10,"included_units":100,"overage_rate":0.005,"currency":"USD"}`, string(terms.JSON()))
	sum := terms.Hash()
	require.Equal(t, sum[:], hash, "the hash is that of the stored terms")
	require.Equal(t, "141.75", working[0].Amount.String())
	require.Equal(t, version, working[0].MeterVersion)
	last := working[len(working)-1]
	require.Equal(t, billing.StepCharge, last.Name)
	require.Equal(t, "10.21", last.Amount.String())

	var sequences int
	b.scan(`
		select count(distinct s)
		from (
		  select sequence from billing_reports where tenant_id = $1
		  union all
		  select closed_sequence from billing_periods where tenant_id = $1 and closed_at is not null) x (s)`, []any{b.tenant}, &sequences)
	require.Equal(t, 3, sequences, "two statements and a closing, each with a number of its own in the ledger")
}

func TestLateUsageIsAdjustedAtPriceOfClosedPeriod(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	late := month.Start.AddDate(0, 0, 20)
	b.use("141.75") // 10.20875, rounded to 10.21
	b.now = over(month)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	b.price("99", "0", "7") // for later periods

	b.useAt("100", late) // 241.75 units cost 10.70875
	m := b.accept()
	require.True(t, m.Data.Period.Start.Equal(month.End), "the statement of the oldest open period has the adjustment")
	require.Equal(t, "0", m.Data.Meters[0].Usage.String())
	list := adjustments(t, m)
	require.Len(t, list, 1)
	require.True(t, list[0].Period.Start.Equal(month.Start) && list[0].Period.End.Equal(month.End))
	require.Equal(t, b.meter.ID.String(), list[0].MeterID)
	require.Equal(t, "api-calls", list[0].MeterSlug)
	require.Equal(t, "100", list[0].Usage.String())
	require.Equal(t, "0.5", list[0].Amount.String())
	require.Equal(t, "0.005", list[0].UnitPrice.String())
	require.Equal(t, "USD", list[0].Currency)
	require.Empty(t, b.plan(anew).Send)

	b.useAt("100", late)
	list = adjustments(t, b.accept())
	require.Equal(t, "200", list[0].Usage.String(), "statements are cumulative, and so are their adjustments")
	require.Equal(t, "1", list[0].Amount.String())

	b.useAt("-200", late)
	list = adjustments(t, b.accept())
	require.Len(t, list, 1, "a statement of 0 takes the adjustment back")
	require.Equal(t, "0", list[0].Usage.String())
	require.Equal(t, "0", list[0].Amount.String())
}

func TestNextTargetPeriodBillsOnlyLateUsageNotYetBilled(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	late := month.Start.AddDate(0, 0, 20)
	b.use("100")
	b.now = over(month)
	b.acceptAll()
	b.closePeriods()
	b.useAt("100", late)
	b.acceptAll()

	next := billing.CalendarPeriod(month.End, time.UTC)
	b.now = over(next)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	require.Empty(t, b.plan(anew).Send, "closing changes no reported quantity")
	b.useAt("300", late)
	m := b.accept()
	require.True(t, m.Data.Period.Start.Equal(next.End))
	list := adjustments(t, m)
	require.Len(t, list, 1)
	require.Equal(t, "300", list[0].Usage.String())
	require.Equal(t, "1.5", list[0].Amount.String())

	b.useAt("40", next.Start.AddDate(0, 0, 3)) // late usage of the first target period: its base price covers the 40 units
	list = adjustments(t, b.accept())
	require.Len(t, list, 2)
	require.Equal(t, "40", list[1].Usage.String())
	require.Equal(t, "0", list[1].Amount.String())
}

func TestAdjustmentIsNotRepeatedForAnotherConnection(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("100")
	b.now = over(month)
	b.acceptAll()
	b.closePeriods()
	b.useAt("100", month.Start.AddDate(0, 0, 20))
	b.acceptAll()
	b.useProvider("https://other.example.com/")
	require.Empty(t, adjustments(t, b.accept()))
	b.useAt("20", month.Start.AddDate(0, 0, 20))
	list := adjustments(t, b.accept())
	require.Equal(t, "20", list[0].Usage.String())
	require.Equal(t, "0.1", list[0].Amount.String())
}

func TestLatePolicyReportDoesNotBillLateUsage(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.exec(`update tenants set late_policy = 'report' where id = $1`, b.tenant)
	b.use("100")
	b.now = over(month)
	b.acceptAll()
	b.closePeriods()
	b.useAt("100", month.Start.AddDate(0, 0, 20))
	require.Empty(t, b.plan(anew).Send)
}

func TestLateUsageOfPeriodClosedWithoutProviderIsNotBilled(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.exec(`update billing_connections set retired_at = validated_at where tenant_id = $1`, b.tenant)
	b.use("100")
	b.now = over(month)
	require.Equal(t, 1, b.closePeriods().Closed)
	b.useAt("100", month.Start.AddDate(0, 0, 20))
	b.useProvider("https://billing.example.com/usage")
	require.Empty(t, adjustments(t, b.accept()), "no billed total exists to adjust")
}

func TestPeriodStaysOpenDuringFirstBackfillOfMeter(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	_, err := b.writer.Ingest(t.Context(), b.tenant, []metering.Event{dbtest.Event(t, "stored", "acme", month.Start.AddDate(0, 0, 16), "1", "", "")})
	require.NoError(t, err)
	dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	b.now = over(month)
	b.acceptAll()
	require.Len(t, b.closePeriods().Open, 1)
}

func TestLateUsageIsShownBesideUnchangedClosedUsage(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("100")
	b.now = over(month)
	b.acceptAll()
	b.closePeriods()
	b.useAt("7", month.Start.AddDate(0, 0, 20))
	page, err := b.store.Usage.Windows(t.Context(), b.tenant, usage.WindowQuery{
		Customer: b.customer.ID, Meter: b.meter, Range: month, Granularity: metering.Month, Limit: 10,
	})
	require.NoError(t, err)
	require.Len(t, page.Windows, 1)
	require.True(t, page.Windows[0].Final)
	require.Equal(t, "100", page.Windows[0].Value.String())
	require.Equal(t, "7", page.Windows[0].LateValue.String())
	require.Equal(t, "107", page.Total.String())
}

func TestAdjustmentsOfExcludedMeterKeepReportedUsage(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	late := month.Start.AddDate(0, 0, 20)
	dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	b.use("100")
	b.now = over(month)
	b.acceptAll()
	b.closePeriods()
	b.useAt("100", late)
	b.accept()
	b.useAt("100", late)
	_, err := b.writer.Ingest(t.Context(), b.tenant, []metering.Event{dbtest.Event(t, "stored", "acme", late, "3", "", "")})
	require.NoError(t, err)
	list := adjustments(t, b.acceptOf(b.plan(anew, b.meter.ID)))
	require.Len(t, list, 2)
	require.Equal(t, "100", list[0].Usage.String())
	require.True(t, month.Start.Equal(list[0].Period.Start))
	require.Equal(t, "3", list[1].Usage.String())
	require.Equal(t, "200", adjustments(t, b.accept())[0].Usage.String())
}

// TestAggregationChangeKeepsBilledLateUsage changes the aggregation of a meter after a period closed. The period's
// late usage still uses the previous aggregation, and each late event is billed once.
func TestAggregationChangeKeepsBilledLateUsage(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	late := month.Start.AddDate(0, 0, 20)
	b.use("1000") // 14.50
	b.now = over(month)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	b.useAt("1000", late)
	require.Equal(t, "5", adjustments(t, b.accept())[0].Amount.String())

	count := metering.Count
	_, version, err := b.store.Meters.Update(t.Context(), b.tenant, metering.Operator, b.meter.Slug, catalog.MeterChange{Aggregation: &count})
	require.NoError(t, err)
	require.NoError(t, backfill(t.Context(), b.store, b.tenant, version.ID))
	b.acceptAll()
	b.useAt("100", late)
	list := adjustments(t, b.accept())
	require.Len(t, list, 1)
	require.Equal(t, "1100", list[0].Usage.String())
	require.Equal(t, "5.5", list[0].Amount.String())

	require.Equal(t, []string{"2: 1000 to 2000 is 5, billed t", "3: 2000 to 2100 is 0.5, billed t"}, b.bookings())
	require.NoError(t, b.store.Ledger.KeepLateUsage(t.Context(), b.tenant, b.customer.ID, month.End))
	b.use("1")
	require.Equal(t, list, adjustments(t, b.accept()), "retention stores the late usage as it was billed")
}

// TestDefinitionChangeKeepsEarlierLateUsage changes the value property or the filters of a meter after a period closed.
// Late usage that arrived before the change counts by the previous definition, whether it is booked or not. Only later
// events count by the new one. The same holds after retention has stored the late usage.
func TestDefinitionChangeKeepsEarlierLateUsage(t *testing.T) {
	t.Parallel()
	property, filters := "b", []metering.Filter{{Property: "kind", Operator: metering.FilterEq, Values: []metering.FilterValue{metering.ParseFilterValue([]byte(`"new"`))}}}
	for name, change := range map[string]catalog.MeterChange{
		"ValueProperty": {ValueProperty: &property},
		"Filters":       {Filters: &filters},
		"Both":          {ValueProperty: &property, Filters: &filters},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, month := newOldBiller(t)
			late := func(value, properties string) {
				event := dbtest.Event(t, "api_call", "acme", month.Start.AddDate(0, 0, 20), value, "", properties)
				event.ReceivedAt = b.now
				_, err := b.writer.Ingest(t.Context(), b.tenant, []metering.Event{event})
				require.NoError(t, err)
			}
			b.use("1000") // 14.50
			b.now = over(month)
			b.acceptAll()
			require.Equal(t, 1, b.closePeriods().Closed)
			late("1000", `{"b":5,"kind":"old"}`)
			require.Equal(t, "5", adjustments(t, b.accept())[0].Amount.String())
			late("200", `{"b":7,"kind":"new"}`) // it is booked after the change

			_, version, err := b.store.Meters.Update(t.Context(), b.tenant, metering.Operator, b.meter.Slug, change)
			require.NoError(t, err)
			late("400", `{"b":11,"kind":"old"}`) // it arrives during the backfill
			require.NoError(t, backfill(t.Context(), b.store, b.tenant, version.ID))
			list := adjustments(t, b.accept())
			require.Len(t, list, 1)
			require.Equal(t, "1600", list[0].Usage.String())
			late("800", `{"b":800,"kind":"new"}`)
			list = adjustments(t, b.accept())
			require.Equal(t, "2400", list[0].Usage.String())
			want := []string{"2: 1000 to 2000 is 5, billed t", "4: 2000 to 2600 is 3, billed t", "5: 2600 to 3400 is 4, billed t"}
			require.Equal(t, want, b.bookings())

			require.NoError(t, b.store.Ledger.KeepLateUsage(t.Context(), b.tenant, b.customer.ID, month.End))
			b.useProvider("https://other.example.com/")
			require.Empty(t, adjustments(t, b.accept()), "all of it is billed")
			require.Equal(t, want, b.bookings())
		})
	}
}

// TestDefinitionCannotChangeWhileUnarchivedMeterIsBackfilled refuses another value property while the events since the
// archiving are not counted. Late usage since then would otherwise be missing in the difference of both definitions.
func TestDefinitionCannotChangeWhileUnarchivedMeterIsBackfilled(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("1000")
	b.now = over(month)
	b.acceptAll()
	b.closePeriods()
	require.NoError(t, b.store.Meters.Archive(t.Context(), b.tenant, metering.Operator, b.meter.Slug, b.now))
	b.useAt("1", month.Start.AddDate(0, 0, 20))
	version, err := b.store.Meters.Unarchive(t.Context(), b.tenant, metering.Operator, b.meter.Slug)
	require.NoError(t, err)
	property, unit := "b", "calls"
	change := func(c catalog.MeterChange) error {
		_, _, err := b.store.Meters.Update(t.Context(), b.tenant, metering.Operator, b.meter.Slug, c)
		return err
	}
	require.NoError(t, change(catalog.MeterChange{Unit: &unit}))
	b.requireConflict(change(catalog.MeterChange{ValueProperty: &property}), "the meter still counts the events from the time when it was archived")
	require.NoError(t, backfill(t.Context(), b.store, b.tenant, version.ID))
	require.NoError(t, change(catalog.MeterChange{ValueProperty: &property}))
}

// TestAnArchivedMeterKeepsItsDefinition archives a meter during the backfill of another value property. Late usage that
// arrives while the meter is archived counts by the definition that the meter keeps.
func TestAnArchivedMeterKeepsItsDefinition(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	within := month.Start.AddDate(0, 0, 20)
	b.use("1000")
	b.now = over(month)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	b.useAt("200", within)
	property := "b"
	_, canceled, err := b.store.Meters.Update(t.Context(), b.tenant, metering.Operator, b.meter.Slug, catalog.MeterChange{ValueProperty: &property})
	require.NoError(t, err)
	require.NotNil(t, canceled)
	require.NoError(t, b.store.Meters.Archive(t.Context(), b.tenant, metering.Operator, b.meter.Slug, b.now))
	b.useAt("400", within)
	version, err := b.store.Meters.Unarchive(t.Context(), b.tenant, metering.Operator, b.meter.Slug)
	require.NoError(t, err)
	require.NoError(t, backfill(t.Context(), b.store, b.tenant, version.ID))
	list := adjustments(t, b.accept())
	require.Len(t, list, 1)
	require.Equal(t, "600", list[0].Usage.String())
}

// bookings returns the tenant's bookings of late usage as texts, in order.
func (b *biller) bookings() []string {
	b.Helper()
	rows, err := b.connect().Query(b.Context(), `
		select format('%s: %s to %s is %s, billed %s', event_count, trim_scale(units_before), trim_scale(units), trim_scale(amount), billed)
		from billing_adjustments
		where tenant_id = $1
		order by id`, b.tenant)
	require.NoError(b, err)
	booked, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b, err)
	return booked
}

// A statement can repeat lines of the last accepted one. The facts therefore contain the slugs of their meters.
func TestFactsNameMetersOfAcceptedLines(t *testing.T) {
	t.Parallel()
	b, _ := newOldBiller(t)
	b.use("1000")
	b.accept()
	accepted := b.facts().Statements
	require.Len(t, accepted, 1)
	require.Equal(t, "api-calls", accepted[0].Lines[0].MeterSlug)
}
