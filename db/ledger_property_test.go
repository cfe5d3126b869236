package db_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// sender is one attempt at a delivery, cut into the steps between which a
// crash may happen. What it holds is what its process would remember.
type sender struct {
	snapshot uuid.UUID
	attempt  int
	account  string
	body     []byte
	answered bool
	outcome  db.SnapshotStatus
}

// far is the receiving end: of each period it keeps what came last by sequence.
type far struct {
	bodies map[int64]string
	last   map[string]int64 // by the period's start
	held   map[string]owed
}

type owed struct{ usage, amount metering.Decimal }

func (o owed) String() string { return o.usage.String() + " for " + o.amount.String() }

func newFar() *far {
	return &far{bodies: map[int64]string{}, last: map[string]int64{}, held: map[string]owed{}}
}

// machine drives one customer's ledger through arbitrary interleavings.
type machine struct {
	*biller
	used     map[string]metering.Decimal // by the period's start
	prices   []metering.Price
	accounts map[string]*far
	known    []*db.Snapshot // that some process has been handed
	senders  []*sender
}

func (m *machine) take(t *rapid.T, s *sender) {
	message := read(m, s.body)
	f := m.accounts[s.account]
	sequence := message.Data.Sequence
	if before, seen := f.bodies[sequence]; seen && before != string(s.body) {
		t.Fatalf("sequence %d came with two bodies:\n%s\n%s", sequence, before, s.body)
	}
	f.bodies[sequence] = string(s.body)
	period := message.Data.Period.Start.Format(time.DateOnly)
	if sequence >= f.last[period] {
		line := message.Data.Meters[0]
		f.last[period] = sequence
		f.held[period] = owed{metering.MustDecimal(line.Usage.String()), metering.MustDecimal(line.Amount.String())}
	}
}

// expected is what the receiver ought to hold for each period.
func (m *machine) expected() map[string]owed {
	expected := map[string]owed{}
	for period, used := range m.used {
		start, err := time.Parse(time.DateOnly, period)
		require.NoError(m, err)
		price, _ := metering.PriceAt(m.prices, start)
		expected[period] = owed{used, metering.RoundMoney(price.Charge(used), "USD")}
	}
	return expected
}

func pick[T any](t *rapid.T, from []T, label string) (T, bool) {
	if len(from) == 0 {
		var none T
		return none, false
	}
	return from[rapid.IntRange(0, len(from)-1).Draw(t, label)], true
}

func (m *machine) ingest(t *rapid.T) {
	value := rapid.SampledFrom([]string{"1", "2.5", "-1", "0", "0.000000000001"}).Draw(t, "value")
	m.use(value)
	m.count(value)
}

func (m *machine) count(value string) {
	period := metering.CalendarPeriod(m.now, time.UTC).Start.Format(time.DateOnly)
	m.used[period] = m.used[period].Add(metering.MustDecimal(value))
}

// turn is the end of a month: the next one is billed, from nothing.
func (m *machine) turn(*rapid.T) {
	m.now = metering.CalendarPeriod(m.now, time.UTC).End.Add(time.Hour)
	m.count("0")
}

func (m *machine) setPrice(t *rapid.T) {
	rate := rapid.SampledFrom([]string{"0", "0.005", "1.25"}).Draw(t, "rate")
	price, err := m.store.Prices.Set(m.Context(), m.tenant, metering.Operator, metering.Price{
		MeterID: m.meter.ID, BasePrice: metering.Whole(3), IncludedUnits: metering.Whole(1), OverageRate: metering.MustDecimal(rate),
		Currency: "USD", EffectiveFrom: metering.CalendarPeriod(m.now, time.UTC).End,
	})
	require.NoError(m, err)
	m.prices = append(m.prices, price)
}

func (m *machine) prepareOne(t *rapid.T) {
	prepared := m.biller.prepare(0)
	if rapid.Bool().Draw(t, "new pass") {
		prepared = m.biller.prepare(1 << 40)
	}
	if prepared.Send != nil {
		m.known = append(m.known, prepared.Send)
	}
}

func (m *machine) prepareTwiceAtOnce(*rapid.T) {
	var both sync.WaitGroup
	prepared := make([]db.Prepared, 2)
	errs := make([]error, 2)
	for i := range prepared {
		both.Go(func() {
			prepared[i], errs[i] = m.store.Ledger.PrepareSnapshot(context.Background(), m.tenant, m.customer.ID, 1<<40, m.now)
		})
	}
	both.Wait()
	for i := range prepared {
		require.NoError(m, errs[i])
		if prepared[i].Send != nil {
			m.known = append(m.known, prepared[i].Send)
		}
	}
}

func (m *machine) mark(t *rapid.T) {
	s, ok := pick(t, m.known, "snapshot")
	if !ok {
		return
	}
	d, err := m.store.Ledger.MarkSent(m.Context(), m.tenant, s.ID, m.now, lease)
	var busy db.Busy
	if errors.As(err, &busy) || metering.CodeOf(err) == metering.CodeConflict {
		return
	}
	require.NoError(m, err)
	require.Equal(m, s.Body, d.Body)
	m.senders = append(m.senders, &sender{snapshot: s.ID, attempt: d.Attempt, account: d.Provider.Account, body: d.Body})
}

// deliver lets the receiver take it, or refuse it, or do so unheard.
func (m *machine) deliver(t *rapid.T) {
	s, ok := pick(t, m.senders, "sender")
	if !ok {
		return
	}
	switch rapid.SampledFrom([]string{"taken", "taken", "unheard", "lost", "refused"}).Draw(t, "fate") {
	case "taken":
		m.take(t, s)
		s.answered, s.outcome = true, db.Acknowledged
	case "unheard":
		m.take(t, s)
	case "refused":
		s.answered, s.outcome = true, db.Rejected
	}
}

func (m *machine) settleOne(t *rapid.T) {
	if s, ok := pick(t, m.senders, "sender"); ok && s.answered {
		m.biller.settle(s.snapshot, s.outcome)
	}
}

func (m *machine) release(t *rapid.T) {
	if s, ok := pick(t, m.senders, "sender"); ok && !s.answered {
		require.NoError(m, m.store.Ledger.Release(m.Context(), m.tenant, s.snapshot, s.attempt, "no answer"))
	}
}

func (m *machine) expire(*rapid.T) { m.now = m.now.Add(lease) }

// quiesce is what a worker does once everything answers again.
func (m *machine) quiesce(t *rapid.T) {
	for range 200 {
		m.now = m.now.Add(lease)
		prepared := m.biller.prepare(1 << 40)
		if prepared.Send == nil {
			return
		}
		d := m.biller.mark(prepared.Send)
		m.take(t, &sender{account: d.Provider.Account, body: d.Body})
		m.biller.settle(prepared.Send.ID, db.Acknowledged)
	}
	t.Fatal("there is always something left to send")
}

func newMachine(t *testing.T, accounts ...string) *machine {
	m := &machine{biller: newBiller(t), used: map[string]metering.Decimal{}, accounts: map[string]*far{}}
	m.created(time.Now().AddDate(-4, 0, 0)) // months pass in this test, and events cannot lie in the future
	m.count("0")
	for _, account := range accounts {
		m.accounts[account] = newFar()
		m.useProvider(account)
	}
	return m
}

// The invariant holds for one account throughout; nobody can say it of an
// account that was given up with an answer outstanding.
func TestWhateverHappensTheReceiversTotalIsOurs(t *testing.T) {
	t.Parallel()
	const account = "https://billing.example.com/usage"
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(t, account)
		rt.Repeat(map[string]func(*rapid.T){
			"ingest": m.ingest, "prepare": m.prepareOne, "prepare twice": m.prepareTwiceAtOnce, "mark": m.mark,
			"deliver": m.deliver, "settle": m.settleOne, "release": m.release, "expire": m.expire,
			"turn": m.turn, "price": m.setPrice,
		})
		m.quiesce(rt)
		if got, want := fmt.Sprint(m.accounts[account].held), fmt.Sprint(m.expected()); got != want {
			rt.Fatalf("the receiver holds %s, we hold %s", got, want)
		}
	})
}

// With accounts that change, no usage is billed twice where every answer is
// heard: what all accounts hold adds up to what was used.
func TestWhateverAccountIsUsedNothingIsBilledTwice(t *testing.T) {
	t.Parallel()
	accounts := []string{"https://1.example.com/", "https://2.example.com/", "https://3.example.com/"}
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(t, accounts...)
		use := func(rt *rapid.T) { m.useProvider(rapid.SampledFrom(accounts).Draw(rt, "account")) }
		rt.Repeat(map[string]func(*rapid.T){"ingest": m.ingest, "account": use, "sync": m.quiesce})
		m.quiesce(rt)
		sums := map[string]owed{}
		for _, f := range m.accounts {
			for period, held := range f.held {
				sums[period] = owed{sums[period].usage.Add(held.usage), sums[period].amount.Add(held.amount)}
			}
		}
		if got, want := fmt.Sprint(sums), fmt.Sprint(m.expected()); got != want {
			rt.Fatalf("the receivers hold %s, we hold %s", got, want)
		}
	})
}

func TestTwoAtOncePrepareTheSameSnapshot(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	for round := range 10 {
		b.use("1")
		const many = 6
		prepared := make([]db.Prepared, many)
		errs := make([]error, many)
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				prepared[i], errs[i] = b.store.Ledger.PrepareSnapshot(context.Background(), b.tenant, b.customer.ID, 1<<40, b.now)
			})
		}
		all.Wait()
		for i := range many {
			require.NoError(t, errs[i])
			require.NotNil(t, prepared[i].Send)
			require.Equal(t, prepared[0].Send.ID, prepared[i].Send.ID)
			require.EqualValues(t, round+1, prepared[i].Send.Sequence)
			require.Equal(t, prepared[0].Send.Body, prepared[i].Send.Body)
		}
		b.settle(prepared[0].Send.ID, db.Acknowledged)
		b.now = b.now.Add(time.Second)
	}
}

// Two meters count the same events: whatever arrives while a snapshot is
// prepared, it says the same of both.
func TestASnapshotIsReadAtOneInstant(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	dbtest.Meter(t, b.store, b.tenant, "calls-again", "api_call")
	ctx, stop := context.WithCancel(t.Context())
	var ingesting sync.WaitGroup
	ingesting.Go(func() {
		for ctx.Err() == nil {
			event := dbtest.Event(t, "api_call", "acme", b.now, "1", "", "")
			_, _ = b.writer.Ingest(context.WithoutCancel(ctx), b.tenant, []metering.Event{event})
		}
	})
	defer ingesting.Wait()
	defer stop()
	for range 100 {
		prepared := b.prepare(1 << 40)
		if prepared.Send == nil {
			continue
		}
		meters := read(t, prepared.Send.Body).Data.Meters
		require.Equal(t, meters[0].Usage, meters[1].Usage)
		b.settle(prepared.Send.ID, db.Acknowledged)
	}
}
