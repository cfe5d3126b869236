package db_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// sender is one attempt at a report, cut into the steps between which a
// crash may happen. What it holds is what its process would remember.
type sender struct {
	report   uuid.UUID
	attempt  int
	account  string
	body     []byte
	answered bool
	outcome  billing.State
}

// far is the receiving end: of each period it keeps what came last by number.
type far struct {
	bodies map[int64]string // that it has taken
	no     map[int64]bool   // which numbers it has refused
	last   map[string]int64 // by the period's start
	held   map[string]owed
	late   map[string]map[string]owed // by the starts of the target and of the closed period
}

type owed struct{ usage, amount metering.Decimal }

func (o owed) String() string { return o.usage.String() + " for " + o.amount.String() }

func (o owed) plus(p owed) owed { return owed{o.usage.Add(p.usage), o.amount.Add(p.amount)} }

func newFar() *far {
	return &far{bodies: map[int64]string{}, no: map[int64]bool{}, last: map[string]int64{}, held: map[string]owed{}, late: map[string]map[string]owed{}}
}

// billed is what all of these receivers hold for each period, and what has been
// added to each since it was closed.
func billed(all map[string]*far) (held, late map[string]owed) {
	held, late = map[string]owed{}, map[string]owed{}
	for _, f := range all {
		for period, o := range f.held {
			held[period] = held[period].plus(o)
		}
		for _, carried := range f.late {
			for period, o := range carried {
				late[period] = late[period].plus(o)
			}
		}
	}
	return held, late
}

// machine drives one customer's ledger through arbitrary interleavings.
type machine struct {
	*biller
	conn     *pgx.Conn
	used     map[string]metering.Decimal // by the period's start
	late     map[string]metering.Decimal // what came when the period was closed already
	closed   map[string]billing.Price    // as of when it was
	prices   []billing.Price
	accounts map[string]*far
	known    []written // that some process has been handed
	senders  []*sender
}

// written is a report with its bytes when it was handed out.
type written struct {
	db.Report
	body []byte
}

func (m *machine) know(planned db.Planned) {
	m.Helper()
	for _, r := range planned.Send {
		w := written{Report: r}
		row := m.conn.QueryRow(m.Context(), `select body from billing_reports where tenant_id = $1 and id = $2`, m.tenant, r.ID)
		require.NoError(m, row.Scan(&w.body))
		m.known = append(m.known, w)
	}
}

func (m *machine) arrive(t *rapid.T, s *sender) {
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
		f.late[period] = map[string]owed{}
		for _, a := range adjustments(m, message) {
			f.late[period][a.Period.Start.Format(time.DateOnly)] = owed{a.Usage, a.Amount}
		}
	}
}

// expected is what the receiver ought to hold for each period.
func (m *machine) expected() map[string]owed {
	expected := map[string]owed{}
	for period, used := range m.used {
		start, err := time.Parse(time.DateOnly, period)
		require.NoError(m, err)
		expected[period] = owed{used, billing.RoundMoney(m.priceOf(period, start).Charge(used), "USD")}
	}
	return expected
}

func (m *machine) priceOf(period string, start time.Time) billing.Price {
	if price, closed := m.closed[period]; closed {
		return price
	}
	price, _ := billing.PriceAt(m.prices, 0, start)
	return price
}

// expectedLate is what ought to have been added to each closed period.
func (m *machine) expectedLate() map[string]owed {
	expected := map[string]owed{}
	for period, late := range m.late {
		price, then := m.closed[period], m.used[period]
		now := billing.RoundMoney(price.Charge(then.Add(late)), "USD")
		expected[period] = owed{late, now.Sub(billing.RoundMoney(price.Charge(then), "USD"))}
	}
	return expected
}

// requireBilled says whether the receivers hold what was used, each period as
// it was closed, and what came later as adjustments that add up.
func (m *machine) requireBilled(t *rapid.T) {
	held, late := billed(m.accounts)
	if got, want := fmt.Sprint(held), fmt.Sprint(m.expected()); got != want {
		t.Fatalf("the receivers hold %s, we hold %s", got, want)
	}
	for period, want := range m.expectedLate() {
		if got := late[period]; got.String() != want.String() {
			t.Fatalf("%s has come late for %s, the receivers were reported %s", want, period, got)
		}
		delete(late, period)
	}
	for period, got := range late {
		if !got.usage.IsZero() || !got.amount.IsZero() {
			t.Fatalf("nothing has come late for %s, the receivers were reported %s", period, got)
		}
	}
	m.requireClosed(t)
}

// requireClosed holds the totals of the closed periods to what was used before.
func (m *machine) requireClosed(t *rapid.T) {
	rows, err := m.conn.Query(m.Context(), `
		select to_char(p.starts_at at time zone 'UTC', 'YYYY-MM-DD'), t.usage, t.charge
		from billing_period_totals t
		join billing_periods p on p.tenant_id = t.tenant_id and p.id = t.period_id
		where t.tenant_id = $1`, m.tenant)
	require.NoError(m, err)
	kept := map[string]owed{}
	var period string
	var o owed
	_, err = pgx.ForEachRow(rows, []any{&period, &o.usage, &o.amount}, func() error { kept[period] = o; return nil })
	require.NoError(m, err)
	expected := m.expected()
	for period := range m.closed {
		if got, want := kept[period].String(), expected[period].String(); got != want {
			t.Fatalf("%s was closed at %s, it came to %s", period, got, want)
		}
	}
	if len(kept) != len(m.closed) {
		t.Fatalf("%d periods are closed, %d should be", len(kept), len(m.closed))
	}
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
	period := billing.CalendarPeriod(m.now, time.UTC).Start.Format(time.DateOnly)
	m.used[period] = m.used[period].Add(metering.MustDecimal(value))
}

// ingestLate comes for any period so far, which may be closed.
func (m *machine) ingestLate(t *rapid.T) {
	value := rapid.SampledFrom([]string{"1", "2.5", "-1", "100.005", "0.000000000001"}).Draw(t, "value")
	period := rapid.SampledFrom(slices.Sorted(maps.Keys(m.used))).Draw(t, "period")
	start, err := time.Parse(time.DateOnly, period)
	require.NoError(m, err)
	until := billing.CalendarPeriod(start, time.UTC).Within(metering.Range{Start: start, End: m.now}).End
	m.useAt(value, start.Add(time.Duration(rapid.Int64Range(0, int64(until.Sub(start))-1).Draw(t, "age"))))
	sums := m.used
	if _, closed := m.closed[period]; closed {
		sums = m.late
	}
	sums[period] = sums[period].Add(metering.MustDecimal(value))
}

// closeOne closes what is due, whatever is under way.
func (m *machine) closeOne(*rapid.T) {
	m.closePeriods()
	rows, err := m.conn.Query(m.Context(), `
		select starts_at from billing_periods where tenant_id = $1 and closed_at is not null`, m.tenant)
	require.NoError(m, err)
	starts, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	require.NoError(m, err)
	for _, start := range starts {
		period := start.UTC().Format(time.DateOnly)
		if _, known := m.closed[period]; !known {
			m.closed[period] = m.priceOf(period, start)
		}
	}
}

// closeDue is what the hourly maintenance does once everything answers again.
func (m *machine) closeDue(t *rapid.T) {
	m.wait(t)
	m.quiesce(t)
	m.closeOne(t)
}

// wait is longer than the grace.
func (m *machine) wait(*rapid.T) {
	m.now = m.now.Add(80 * time.Hour)
	m.count("0")
}

// turn is the end of a month: the next one is billed, from nothing.
func (m *machine) turn(*rapid.T) {
	m.now = billing.CalendarPeriod(m.now, time.UTC).End.Add(time.Hour)
	m.count("0")
}

func (m *machine) setPrice(t *rapid.T) {
	rate := rapid.SampledFrom([]string{"0", "0.005", "1.25"}).Draw(t, "rate")
	price, err := m.store.Prices.Set(m.Context(), m.tenant, metering.Operator, billing.Price{
		MeterID: m.meter.ID, BasePrice: metering.Whole(3), IncludedUnits: metering.Whole(1), OverageRate: metering.MustDecimal(rate),
		Currency: "USD", EffectiveFrom: billing.CalendarPeriod(m.now, time.UTC).End,
	})
	require.NoError(m, err)
	m.prices = append(m.prices, price)
}

func (m *machine) planOne(t *rapid.T) {
	planned := m.plan(0)
	if rapid.Bool().Draw(t, "new pass") {
		planned = m.plan(anew)
	}
	m.know(planned)
}

func (m *machine) planTwiceAtOnce(*rapid.T) {
	var both sync.WaitGroup
	planned := make([]db.Planned, 2)
	errs := make([]error, 2)
	for i := range planned {
		both.Go(func() {
			planned[i], errs[i] = m.store.Ledger.Plan(context.Background(), m.tenant, m.customer.ID, db.Pass{After: anew}, dbtest.Frame, m.now)
		})
	}
	both.Wait()
	for i := range planned {
		require.NoError(m, errs[i])
		m.know(planned[i])
	}
}

func (m *machine) leaseOne(t *rapid.T) {
	r, ok := pick(t, m.known, "report")
	if !ok {
		return
	}
	leased, err := m.store.Ledger.Lease(m.Context(), m.tenant, r.ID, m.now, lease)
	var busy db.Busy
	if errors.As(err, &busy) || metering.CodeOf(err) == metering.CodeConflict {
		return
	}
	require.NoError(m, err)
	require.Equal(m, r.body, leased.Body)
	m.senders = append(m.senders, &sender{report: r.ID, attempt: leased.Attempt, account: leased.Provider.Account, body: leased.Body})
}

// deliver lets the receiver take it, or refuse it, or do so unheard.
func (m *machine) deliver(t *rapid.T) {
	if s, ok := pick(t, m.senders, "sender"); ok {
		m.meet(t, s, "taken", "taken", "unheard", "lost", "refused")
	}
}

// deliverConsistently is deliver to a receiver that never says two things of
// one report.
func (m *machine) deliverConsistently(t *rapid.T) {
	s, ok := pick(t, m.senders, "sender")
	if !ok {
		return
	}
	f, number := m.accounts[s.account], read(m, s.body).Data.Sequence
	switch _, taken := f.bodies[number]; {
	case taken:
		m.meet(t, s, "taken", "unheard", "lost")
	case f.no[number]:
		m.meet(t, s, "refused", "lost")
	default:
		m.meet(t, s, "taken", "unheard", "lost", "refused")
	}
}

// meet lets one of some fates meet what is sent.
func (m *machine) meet(t *rapid.T, s *sender, fates ...string) {
	switch rapid.SampledFrom(fates).Draw(t, "fate") {
	case "taken":
		m.arrive(t, s)
		s.answered, s.outcome = true, billing.Accepted
	case "unheard":
		m.arrive(t, s)
	case "refused":
		m.accounts[s.account].no[read(m, s.body).Data.Sequence] = true
		s.answered, s.outcome = true, billing.Rejected
	}
}

// resolve is what an operator does about everything in doubt, who looks at what
// the receiver has. Nobody is still sending it.
func (m *machine) resolve(*rapid.T) {
	rows, err := m.conn.Query(m.Context(), `
		select r.id, r.number, c.account
		from billing_reports r
		join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id
		join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
		join billing_connections c on c.tenant_id = d.tenant_id and c.id = d.connection_id
		where r.tenant_id = $1
		  and r.state = 'in_doubt'`, m.tenant)
	require.NoError(m, err)
	type doubt struct {
		ID      uuid.UUID
		Number  int64
		Account string
	}
	doubts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[doubt])
	require.NoError(m, err)
	for _, d := range doubts {
		outcome := billing.Rejected
		if _, taken := m.accounts[d.Account].bodies[d.Number]; taken {
			outcome = billing.Accepted
		}
		require.NoError(m, m.store.Ledger.Resolve(m.Context(), m.tenant, metering.Operator, d.ID, outcome, m.now))
		m.senders = slices.DeleteFunc(m.senders, func(s *sender) bool { return s.report == d.ID })
	}
}

func (m *machine) completeOne(t *rapid.T) {
	if s, ok := pick(t, m.senders, "sender"); ok && s.answered {
		m.complete(s.report, s.outcome)
	}
}

func (m *machine) release(t *rapid.T) {
	if s, ok := pick(t, m.senders, "sender"); ok && !s.answered {
		require.NoError(m, m.store.Ledger.Release(m.Context(), m.tenant, s.report, s.attempt, "no answer", false))
	}
}

func (m *machine) expire(*rapid.T) { m.now = m.now.Add(lease) }

// quiesce is what a worker does once everything answers again.
func (m *machine) quiesce(t *rapid.T) {
	for range 200 {
		m.now = m.now.Add(lease)
		planned := m.plan(anew)
		if len(planned.Send) == 0 {
			return
		}
		leased := m.lease(planned.Send[0].ID)
		m.arrive(t, &sender{account: leased.Provider.Account, body: leased.Body})
		m.complete(leased.ReportID, billing.Accepted)
	}
	t.Fatal("there is always something left to send")
}

func newMachine(t *testing.T, conn *pgx.Conn, accounts ...string) *machine {
	m := &machine{
		biller: newBiller(t), conn: conn, accounts: map[string]*far{},
		used: map[string]metering.Decimal{}, late: map[string]metering.Decimal{}, closed: map[string]billing.Price{},
	}
	m.created(clock.Now().AddDate(-4, 0, 0)) // months pass in this test, and events cannot lie in the future
	m.count("0")
	for _, account := range accounts {
		m.accounts[account] = newFar()
		m.useProvider(account)
	}
	return m
}

func TestWhateverHappensTheReceiversTotalIsOurs(t *testing.T) {
	t.Parallel()
	conn := dbtest.Conn(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(t, conn, "https://billing.example.com/usage")
		rt.Repeat(map[string]func(*rapid.T){
			"ingest": m.ingest, "plan": m.planOne, "plan twice": m.planTwiceAtOnce, "lease": m.leaseOne,
			"deliver": m.deliver, "complete": m.completeOne, "release": m.release, "expire": m.expire,
			"turn": m.turn, "price": m.setPrice, "late": m.ingestLate, "wait": m.wait, "close one": m.closeOne, "close": m.closeDue, "decimals": m.setDecimals,
		})
		m.quiesce(rt)
		m.requireBilled(rt)
	})
}

// With accounts that change, no usage is billed twice or not at all: what all
// accounts hold adds up to what was used, whichever answers were heard, once an
// operator has resolved what is in doubt.
func TestWhateverAccountIsUsedNothingIsBilledTwice(t *testing.T) {
	t.Parallel()
	conn := dbtest.Conn(t)
	accounts := []string{"https://1.example.com/", "https://2.example.com/", "https://3.example.com/"}
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(t, conn, accounts...)
		use := func(rt *rapid.T) { m.useProvider(rapid.SampledFrom(accounts).Draw(rt, "account")) }
		rt.Repeat(map[string]func(*rapid.T){
			"ingest": m.ingest, "late": m.ingestLate, "account": use, "sync": m.quiesce, "wait": m.wait, "turn": m.turn, "close one": m.closeOne,
			"price": m.setPrice, "close": m.closeDue, "decimals": m.setDecimals, "plan": m.planOne, "lease": m.leaseOne,
			"deliver": m.deliverConsistently, "complete": m.completeOne, "release": m.release, "expire": m.expire, "resolve": m.resolve,
		})
		m.quiesce(rt)
		m.resolve(rt)
		m.quiesce(rt)
		m.requireBilled(rt)
	})
}

func TestManyAtOncePlanTheSameReport(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	for round := range 10 {
		b.use("1")
		const many = 6
		planned := make([]db.Planned, many)
		errs := make([]error, many)
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				planned[i], errs[i] = b.store.Ledger.Plan(context.Background(), b.tenant, b.customer.ID, db.Pass{After: anew}, dbtest.Frame, b.now)
			})
		}
		all.Wait()
		for i := range many {
			require.NoError(t, errs[i])
			require.Len(t, planned[i].Send, 1)
			require.Equal(t, planned[0].Send, planned[i].Send)
			require.EqualValues(t, round+1, planned[i].Send[0].Number)
		}
		require.EqualValues(t, round+1, b.says(planned[0].Send[0].ID).Data.Sequence)
		b.complete(planned[0].Send[0].ID, billing.Accepted)
		b.now = b.now.Add(time.Second)
	}
}

// Two meters count the same events: whatever arrives while a statement is
// planned, it says the same of both.
func TestAStatementIsReadAtOneInstant(t *testing.T) {
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
		planned := b.plan(anew)
		if len(planned.Send) == 0 {
			continue
		}
		meters := b.says(planned.Send[0].ID).Data.Meters
		require.Equal(t, meters[0].Usage, meters[1].Usage)
		b.complete(planned.Send[0].ID, billing.Accepted)
	}
}
