package db_test

import (
	"context"
	"errors"
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
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// sender is one attempt to send a report, divided into steps between which a crash may happen. Its fields are the state
// in the memory of the sending process.
type sender struct {
	ledger.Leased
	account string
	called  bool          // it has called the receiver
	outcome billing.State // "": no response was received
}

// machine drives one customer's ledger through random sequences of steps.
type machine struct {
	*biller
	conn     *pgx.Conn
	used     map[string]metering.Decimal // usage by the period's start, without late usage
	late     map[string]metering.Decimal // late usage by the start of the closed period
	closed   map[string]billing.Price    // prices at the close, by the start of the closed period
	prices   []billing.Price
	accounts map[string]*modelReceiver
	known    []written // reports that were handed to a process
	senders  []*sender
}

// written is a report with the body that it had when it was handed out.
type written struct {
	ledger.Report
	body []byte
}

func (m *machine) know(planned ledger.Planned) {
	m.Helper()
	for _, r := range planned.Send {
		w := written{Report: r}
		row := m.conn.QueryRow(m.Context(), `select body from billing_reports where tenant_id = $1 and id = $2`, m.tenant, r.ID)
		require.NoError(m, row.Scan(&w.body))
		m.known = append(m.known, w)
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

// ingestLate ingests an event of any period so far, which may be closed.
func (m *machine) ingestLate(t *rapid.T) {
	value := rapid.SampledFrom([]string{"1", "2.5", "-1", "100.005", "0.000000000001"}).Draw(t, "value")
	period := rapid.SampledFrom(slices.Sorted(maps.Keys(m.used))).Draw(t, "period")
	start, err := time.Parse(time.DateOnly, period)
	require.NoError(m, err)
	until := billing.CalendarPeriod(start, time.UTC).Intersect(metering.Range{Start: start, End: m.now}).End
	m.useAt(value, start.Add(time.Duration(rapid.Int64Range(0, int64(until.Sub(start))-1).Draw(t, "age"))))
	sums := m.used
	if _, closed := m.closed[period]; closed {
		sums = m.late
	}
	sums[period] = sums[period].Add(metering.MustDecimal(value))
}

// closeOne closes the periods that are due, in any state of their reports.
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

// closeDue advances the clock beyond the grace. Then it sends all reports and closes the periods that are due, as the
// hourly maintenance does once all receivers respond again.
func (m *machine) closeDue(t *rapid.T) {
	m.wait(t)
	m.quiesce(t)
	m.closeOne(t)
}

// wait advances the clock by more than the grace.
func (m *machine) wait(*rapid.T) {
	m.now = m.now.Add(80 * time.Hour)
	m.count("0")
}

// turn advances the clock past the end of the month. The next month is billed from zero.
func (m *machine) turn(*rapid.T) {
	m.now = billing.CalendarPeriod(m.now, time.UTC).End.Add(time.Hour)
	m.count("0")
}

func (m *machine) setPrice(t *rapid.T) {
	rate := rapid.SampledFrom([]string{"0", "0.005", "1.25"}).Draw(t, "rate")
	price := dbtest.Price(m, m.store, m.tenant, billing.Price{
		MeterID: m.meter.ID, Terms: billing.Terms{BasePrice: metering.Whole(3), IncludedUnits: metering.Whole(1), OverageRate: metering.MustDecimal(rate), Currency: "USD"}, EffectiveFrom: billing.CalendarPeriod(m.now, time.UTC).End,
	})
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
	planned := make([]ledger.Planned, 2)
	errs := make([]error, 2)
	for i := range planned {
		both.Go(func() {
			planned[i], errs[i] = m.store.Ledger.Plan(context.Background(), m.tenant, m.customer.ID, ledger.Pass{After: anew}, dbtest.Frame, m.now)
		})
	}
	both.Wait()
	for i := range planned {
		require.NoError(m, errs[i])
		m.know(planned[i])
	}
}

func (m *machine) leaseOne(t *rapid.T) {
	if r, ok := pick(t, m.known, "report"); ok {
		m.leaseIt(r)
	}
}

func (m *machine) leaseIt(r written) {
	leased, err := m.store.Ledger.Lease(m.Context(), m.tenant, r.ID, m.now, lease)
	var busy ledger.Busy
	if errors.As(err, &busy) || metering.CodeOf(err) == metering.CodeConflict {
		return
	}
	require.NoError(m, err)
	require.Equal(m, r.body, leased.Body)
	m.senders = append(m.senders, &sender{Leased: leased, account: leased.Provider.Address})
}

func (m *machine) deliver(t *rapid.T) {
	if s, ok := pick(t, m.senders, "sender"); ok && !s.called {
		m.call(t, s)
	}
}

// call draws the outcome of sending a report. The receiver accepts it, accepts it and the response is lost, refuses it,
// or never receives it. The receiver may refuse a report that it accepted in an earlier attempt.
func (m *machine) call(t *rapid.T, s *sender) {
	s.called = true
	switch rapid.SampledFrom([]string{"taken", "taken", "unheard", "lost", "refused"}).Draw(t, "fate") {
	case "taken":
		m.arrive(t, s)
		s.outcome = billing.Accepted
	case "unheard":
		m.arrive(t, s)
	case "refused":
		if s.outcome = billing.Rejected; s.MayHaveArrived {
			s.outcome = billing.InDoubt
		}
	}
}

// moveWhileSending sends a new report, and switches to a random account before the response is received.
func (m *machine) moveWhileSending(t *rapid.T) {
	m.quiesce(t)
	m.ingest(t)
	m.know(m.plan(anew))
	m.leaseIt(m.known[len(m.known)-1])
	m.call(t, m.senders[len(m.senders)-1])
	m.useProvider(rapid.SampledFrom(slices.Sorted(maps.Keys(m.accounts))).Draw(t, "account"))
}

// resolve resolves all reports with an unknown outcome, as an operator does after a check of the receiver. No process
// is still sending these reports.
func (m *machine) resolve(*rapid.T) {
	rows, err := m.conn.Query(m.Context(), `
		select r.id, r.number, c.address
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
		require.NoError(m, m.store.Ledger.Resolve(m.Context(), m.tenant, ledger.Resolution{Report: d.ID, State: outcome, Actor: metering.Operator}, m.now))
		m.senders = slices.DeleteFunc(m.senders, func(s *sender) bool { return s.ReportID == d.ID })
	}
}

func (m *machine) completeOne(t *rapid.T) {
	if s, ok := pick(t, m.senders, "sender"); ok && s.outcome != "" {
		require.NoError(m, m.store.Ledger.CompleteAttempt(m.Context(), m.tenant, s.Leased, s.outcome, "tested", m.now))
	}
}

// release ends a lease without a decision. A process in a batch also does so after a refusal.
func (m *machine) release(t *rapid.T) {
	s, ok := pick(t, m.senders, "sender")
	switch {
	case !ok:
	case s.outcome == "":
		require.NoError(m, m.store.Ledger.Release(m.Context(), m.tenant, s.ReportID, s.Attempt, "no answer", false))
	case s.outcome == billing.Rejected:
		require.NoError(m, m.store.Ledger.ReleaseRefused(m.Context(), m.tenant, s.Leased, "refused"))
	}
}

func (m *machine) expire(*rapid.T) { m.now = m.now.Add(lease) }

// quiesce sends reports until none is left, as a worker does once everything answers again.
func (m *machine) quiesce(t *rapid.T) {
	for range 200 {
		m.now = m.now.Add(lease)
		planned := m.plan(anew)
		if len(planned.Send) == 0 {
			return
		}
		leased := m.lease(planned.Send[0].ID)
		m.arrive(t, &sender{Leased: leased, account: leased.Provider.Address})
		m.complete(leased.ReportID, billing.Accepted)
	}
	t.Fatal("there is always something left to send")
}

func newMachine(t *testing.T, conn *pgx.Conn, accounts ...string) *machine {
	m := &machine{
		biller: newBiller(t), conn: conn, accounts: map[string]*modelReceiver{},
		used: map[string]metering.Decimal{}, late: map[string]metering.Decimal{}, closed: map[string]billing.Price{},
	}
	m.created(clock.Month(clock.Now(), -48)) // months pass in this test, and events cannot lie in the future
	m.count("0")
	for _, account := range accounts {
		m.accounts[account] = newModelReceiver()
		m.useProvider(account)
	}
	return m
}

func TestPropertyReceiverTotalsEqualTheBill(t *testing.T) {
	t.Parallel()
	conn := dbtest.Conn(t)
	histories.Check(t, func(rt *rapid.T) {
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

// TestPropertyAccountsTogetherBillUsageOnce checks that usage is billed exactly once when accounts change.
// The totals of all accounts add up to the usage, for any received responses, once an operator has resolved the unknown
// outcomes.
func TestPropertyAccountsTogetherBillUsageOnce(t *testing.T) {
	t.Parallel()
	conn := dbtest.Conn(t)
	accounts := []string{"https://1.example.com/", "https://2.example.com/", "https://3.example.com/"}
	histories.Check(t, func(rt *rapid.T) {
		m := newMachine(t, conn, accounts...)
		use := func(rt *rapid.T) { m.useProvider(rapid.SampledFrom(accounts).Draw(rt, "account")) }
		rt.Repeat(map[string]func(*rapid.T){
			"ingest": m.ingest, "late": m.ingestLate, "account": use, "move while sending": m.moveWhileSending, "sync": m.quiesce, "wait": m.wait, "turn": m.turn, "close one": m.closeOne,
			"price": m.setPrice, "close": m.closeDue, "decimals": m.setDecimals, "plan": m.planOne, "lease": m.leaseOne,
			"deliver": m.deliver, "complete": m.completeOne, "release": m.release, "expire": m.expire, "resolve": m.resolve,
		})
		m.quiesce(rt)
		m.resolve(rt)
		m.quiesce(rt)
		m.requireBilledTogether(rt)
	})
}
