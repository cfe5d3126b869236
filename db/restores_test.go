package db_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// billedThere is a receiver that keeps its state when the database is restored. For each period, it bills the statement
// with the highest sequence.
type billedThere struct {
	sequence map[time.Time]int64
	usage    map[time.Time]string
	amount   map[time.Time]metering.Decimal // including adjustments of closed periods
	bodies   map[int64]message
}

func newBilledThere() *billedThere {
	return &billedThere{map[time.Time]int64{}, map[time.Time]string{}, map[time.Time]metering.Decimal{}, map[int64]message{}}
}

func (r *billedThere) take(t testing.TB, m message) {
	t.Helper()
	if former, known := r.bodies[m.Data.Sequence]; known {
		require.Equal(t, former, m, "each sequence has one body")
	}
	r.bodies[m.Data.Sequence] = m
	start := m.Data.Period.Start
	if m.Data.Sequence >= r.sequence[start] {
		r.sequence[start], r.usage[start] = m.Data.Sequence, m.Data.Meters[0].Usage.String()
		r.amount[start] = metering.MustDecimal(m.Data.Meters[0].Amount.String())
		for _, a := range adjustments(t, m) {
			r.amount[start] = r.amount[start].Add(metering.MustDecimal(a.Amount.String()))
		}
	}
}

// takeAll sends all planned statements to the receiver.
func (r *billedThere) takeAll(b *biller) {
	b.Helper()
	for planned := b.plan(anew); len(planned.Send) > 0; planned = b.plan(anew) {
		r.take(b, b.acceptOf(planned))
	}
}

// restored replaces the biller's database by the restored backup, raises the epoch, and ingests the events that the
// client kept. It returns a biller on the restored database.
func (b *biller) restored(backup string, kept []metering.Event) (ledger.Restored, *biller) {
	b.Helper()
	b.writer.Close()
	b.store.Close()
	store, err := dbtest.Connect(b.Context(), backup)
	require.NoError(b, err)
	b.Cleanup(store.Close)
	raised, err := store.Restores.Raise(b.Context(), b.now)
	require.NoError(b, err)
	after := *b
	after.store, after.address, after.writer = store, backup, store.NewWriter(dbtest.WriterOptions)
	b.Cleanup(after.writer.Close)
	_, err = after.writer.Ingest(b.Context(), b.tenant, kept)
	require.NoError(b, err)
	return raised, &after
}

// backUp copies the biller's database, and returns the address of the copy.
func (b *biller) backUp() string {
	b.Helper()
	b.writer.Close()
	b.store.Close()
	backup := dbtest.Copy(b, b.address)
	store, err := dbtest.Connect(b.Context(), b.address)
	require.NoError(b, err)
	b.store, b.writer = store, store.NewWriter(dbtest.WriterOptions)
	return backup
}

// keep ingests an event and returns it.
func (b *biller) keep(value string) metering.Event {
	b.Helper()
	event := dbtest.Event(b, "api_call", "acme", b.now, value, uuid.NewString(), "")
	event.ReceivedAt = b.now
	_, err := b.writer.Ingest(b.Context(), b.tenant, []metering.Event{event})
	require.NoError(b, err)
	return event
}

func TestReceiverGetsCorrectedStatementsAfterRestore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sentAgain bool
		usage     string
	}{"ClientsSendKeptEventsAgain": {true, "31"}, "LostEventsAreNotSentAgain": {false, "22"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, address := dbtest.Fresh(t)
			b := newBillerAt(t, store, address)
			b.created(clock.Month(b.now, -1)) // no month ends meanwhile
			there := newBilledThere()
			kept := []metering.Event{b.keep("10")}
			there.take(t, b.accept())
			kept = append(kept, b.keep("5"))
			planned := b.plan(anew) // not sent yet when the backup is made
			backup := b.backUp()

			there.take(t, b.acceptOf(planned))
			for _, value := range []string{"7", "2"} {
				kept = append(kept, b.keep(value))
				there.take(t, b.accept())
			}
			if !c.sentAgain {
				kept = nil
			}
			last := there.sequence[billing.CalendarPeriod(b.now, time.UTC).Start]
			b.now = b.now.Add(time.Minute)
			raised, after := b.restored(backup, kept)
			require.Equal(t, ledger.Restored{Epoch: b.now.Unix(), InDoubt: 1, Periods: 1}, raised)
			require.Equal(t, []metering.CustomerID{b.customer.ID}, after.outOfSync())

			again := after.accept()
			require.Zero(t, again.Data.LedgerEpoch)
			there.take(t, again)
			first := after.accept()
			require.Equal(t, raised.Epoch, first.Data.LedgerEpoch)
			require.Greater(t, first.Data.Sequence, last)
			there.take(t, first)
			require.Empty(t, after.plan(anew).Send, "the statement is sent once")
			require.Empty(t, after.outOfSync())
			after.keep("7")
			there.take(t, after.accept())
			require.Equal(t, c.usage, there.usage[first.Data.Period.Start])
		})
	}
}

// TestLateUsageOfAStatementThatWasPlannedAtABackupIsBilledOnce makes the backup while a statement that includes late
// usage is planned and its period is closed. The statement arrives after the backup. After the restore, it is sent
// again, and a new statement of the closed period includes the late usage too. The next period does not bill it.
func TestLateUsageOfAStatementThatWasPlannedAtABackupIsBilledOnce(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b := newBillerAt(t, store, address)
	there := newBilledThere()
	first := billing.CalendarPeriod(clock.Month(b.now, -4), time.UTC)
	second := nextMonth(first)
	b.created(first.Start)
	b.price("0", "0", "100")
	b.now = first.Start.AddDate(0, 0, 9)
	b.use("10")
	there.takeAll(b)
	b.now = over(first)
	require.Equal(t, 1, b.closePeriods().Closed)
	b.use("5")
	there.takeAll(b)
	b.useAt("3", first.Start)
	planned := b.plan(anew)
	b.now = over(second)
	require.Equal(t, 1, b.closePeriods().Closed)
	backup := b.backUp()
	there.take(t, b.acceptOf(planned))
	require.Equal(t, "800", there.amount[second.Start].String(), "the statement has arrived")

	b.now = b.now.Add(time.Minute)
	raised, after := b.restored(backup, nil)
	require.EqualValues(t, 1, raised.InDoubt)
	there.takeAll(after)
	billed := make(map[time.Time]string)
	for start, amount := range there.amount {
		billed[start] = amount.String()
	}
	require.Equal(t, map[time.Time]string{first.Start: "1000", second.Start: "800", second.End: "0"}, billed)
	require.Empty(t, after.outOfSync())
}

// TestNewReceiverDoesNotGetUnitsInDoubtAfterRestore makes the backup while a statement of 5 more units is planned.
// The statement arrives after the backup, and the receiver is replaced after the restore. The new receiver gets these
// units only after an operator decides that they did not arrive.
func TestNewReceiverDoesNotGetUnitsInDoubtAfterRestore(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b := newBillerAt(t, store, address)
	b.created(clock.Month(b.now, -1)) // no month ends meanwhile
	kept := []metering.Event{b.keep("10")}
	b.accept()
	kept = append(kept, b.keep("5"))
	planned := b.plan(anew)
	backup := b.backUp()
	require.Equal(t, "15", b.acceptOf(planned).Data.Meters[0].Usage.String())

	b.now = b.now.Add(time.Minute)
	_, after := b.restored(backup, kept)
	after.useProvider(anotherReceiver)
	require.Equal(t, "0", after.accept().Data.Meters[0].Usage.String())
	after.keep("2")
	require.Equal(t, "2", after.accept().Data.Meters[0].Usage.String())
	inDoubt := planned.Send[0].ID
	state, _ := after.state(inDoubt)
	require.Equal(t, billing.InDoubt, state)
	require.NoError(t, after.store.Ledger.Resolve(t.Context(), after.tenant, ledger.Resolution{Report: inDoubt, State: billing.Rejected, Actor: metering.Operator}, after.now))
	require.Equal(t, "7", after.accept().Data.Meters[0].Usage.String())
}

// TestRestoredPeriodClosesAfterANewGrace checks that a restored period accepts events that are sent again for
// the duration of the grace, before it closes.
func TestRestoredPeriodClosesAfterANewGrace(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b := newBillerAt(t, store, address)
	month := billing.CalendarPeriod(clock.Month(b.now, -2), time.UTC)
	b.created(month.Start)
	b.useAt("10", month.Start)
	b.now = over(month)
	b.acceptAll()
	_, err := dbtest.Owner(t, address).Restores.Raise(t.Context(), b.now)
	require.NoError(t, err)
	require.Zero(t, b.closePeriods().Closed)
	b.useAt("5", month.Start)
	b.now = b.now.Add(72 * time.Hour)
	b.acceptAll()
	require.NotZero(t, b.closePeriods().Closed)
	var usage metering.Decimal
	b.scan(`
		select t.usage
		from billing_period_totals t
		join billing_periods p on p.tenant_id = t.tenant_id and p.id = t.period_id
		where p.tenant_id = $1 and p.starts_at = $2`, []any{b.tenant, month.Start}, &usage)
	require.Equal(t, "15", usage.String())
}

func TestRestoreRaisesEpochsAndSkipsUsedIDs(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	owner := dbtest.Owner(t, address)
	tenant := dbtest.Tenant(t, store).ID
	before := dbtest.Customer(t, store, tenant, "before")
	now := time.Unix(1_800_000_000, 0)
	first, err := owner.Restores.Raise(t.Context(), now)
	require.NoError(t, err)
	require.EqualValues(t, 1_800_000_000, first.Epoch)
	second, err := owner.Restores.Raise(t.Context(), now.Add(-time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, 1_800_000_001, second.Epoch, "even if the clock has gone back")
	require.Greater(t, dbtest.Customer(t, store, tenant, "after").ID, before.ID+2_000_000)
}

// TestKnownAtIsThatOfTheFirstUnreadRestore checks KnownAt of a customer that no pass reads between
// two restores. KnownAt keeps its value of the first restore, even if another customer's usage was reported since.
func TestKnownAtIsThatOfTheFirstUnreadRestore(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	owner, b, other := dbtest.Owner(t, address), newBillerAt(t, store, address), newBillerAt(t, store, address)
	b.created(clock.Month(b.now, -1))
	other.created(b.now)
	b.useStripe("acct_1")
	b.link("sub_1", billing.CalendarPeriod(b.now, time.UTC), asDelta)
	b.sendAccepted("10")
	reported := b.now
	raise := func(after time.Duration) {
		b.now = b.now.Add(after)
		_, err := owner.Restores.Raise(t.Context(), b.now)
		require.NoError(t, err)
	}
	reading := func() ledger.Reading {
		r, unread, err := store.Restores.Unread(t.Context(), b.tenant, b.customer.ID, b.now)
		require.NoError(t, err)
		require.True(t, unread)
		return r
	}
	raise(time.Hour)
	require.Equal(t, metering.Instant(reported), reading().KnownAt.UTC())
	other.now = b.now.Add(time.Hour)
	other.use("1")
	other.accept()
	raise(2 * time.Hour)
	require.Equal(t, metering.Instant(reported), reading().KnownAt.UTC())

	read := func(customer string) {
		require.NoError(t, store.Restores.Read(t.Context(), b.tenant, b.customer.ID, ledger.Seen{Customer: customer}, dbtest.Frame, b.now))
	}
	read("cus_2")
	require.Equal(t, metering.Instant(reported), reading().KnownAt.UTC(), "the reading of another customer at the provider is not stored")
	read("cus_1")
	raise(time.Hour)
	require.Equal(t, metering.Instant(other.now), reading().KnownAt.UTC())
}

// TestOnlyWindowsBeforeRestoreAreRead links a customer in the month after a restore. Its usage of that month cannot have
// been reported before the restore, so a total at the provider has another source.
func TestOnlyWindowsBeforeRestoreAreRead(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	owner, b := dbtest.Owner(t, address), newBillerAt(t, store, address)
	b.created(clock.Month(b.now, -1))
	b.useStripe("acct_1")
	b.link("sub_1", billing.CalendarPeriod(b.now, time.UTC), asDelta)
	_, err := owner.Restores.Raise(t.Context(), b.now)
	require.NoError(t, err)
	starts := func() (starts []time.Time) {
		r, unread, err := store.Restores.Unread(t.Context(), b.tenant, b.customer.ID, b.now)
		require.NoError(t, err)
		require.True(t, unread)
		for _, at := range r.Places {
			starts = append(starts, at.Window.Start.UTC())
		}
		return starts
	}
	month := billing.CalendarPeriod(b.now, time.UTC)
	require.Equal(t, []time.Time{month.Start}, starts())
	b.now = month.End.Add(time.Hour)
	b.linkAs("cus_2", "sub_2", billing.CalendarPeriod(b.now, time.UTC), asDelta)
	require.Empty(t, starts())
}

// TestReportToPreviousProviderCustomerWaitsForReadAfterRestore links the customer to cus_2 after a restore. The totals
// of cus_2 are read, and those of cus_1 are not. They may include the report to cus_1, so it is not sent again.
func TestReportToPreviousProviderCustomerWaitsForReadAfterRestore(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	owner, b := dbtest.Owner(t, address), newBillerAt(t, store, address)
	month := billing.CalendarPeriod(b.now, time.UTC)
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	b.use("10")
	report := b.next(anew).ID
	b.lease(report)
	_, err := owner.Restores.Raise(t.Context(), b.now)
	require.NoError(t, err)
	isUnread := func() bool {
		_, unread, err := store.Restores.Unread(t.Context(), b.tenant, b.customer.ID, b.now)
		require.NoError(t, err)
		return unread
	}
	isSentAgain := func() bool {
		resumed := slices.ContainsFunc(b.plan(anew).Send, func(r ledger.Report) bool { return r.ID == report })
		_, err := store.Ledger.Lease(t.Context(), b.tenant, report, b.now, lease)
		require.Equal(t, resumed, err == nil, "%s", err)
		if err != nil {
			b.requireConflict(err, "restored from a backup")
		}
		return resumed
	}
	require.True(t, isUnread())
	require.False(t, isSentAgain())

	b.linkAs("cus_2", "sub_2", month, asDelta)
	require.True(t, isUnread())
	require.NoError(t, store.Restores.Read(t.Context(), b.tenant, b.customer.ID, ledger.Seen{Customer: "cus_2"}, dbtest.Frame, b.now))
	require.False(t, isUnread())
	require.False(t, isSentAgain())

	b.link("sub_1", month, asDelta)
	require.True(t, isUnread())
	require.NoError(t, store.Restores.Read(t.Context(), b.tenant, b.customer.ID, ledger.Seen{Customer: "cus_1"}, dbtest.Frame, b.now))
	require.True(t, isSentAgain())
}
