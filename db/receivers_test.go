package db_test

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// modelReceiver is a receiver of statements. For each period, it keeps the statement with the highest sequence.
type modelReceiver struct {
	bodies map[int64]string // accepted statements by sequence
	last   map[string]int64 // highest sequences by the period's start
	held   map[string]owed
	late   map[string]map[string]owed // by the starts of the target period and of the closed period
}

type owed struct{ usage, amount metering.Decimal }

func (o owed) String() string { return o.usage.String() + " for " + o.amount.String() }

func (o owed) plus(p owed) owed { return owed{o.usage.Add(p.usage), o.amount.Add(p.amount)} }

func newModelReceiver() *modelReceiver {
	return &modelReceiver{bodies: map[int64]string{}, last: map[string]int64{}, held: map[string]owed{}, late: map[string]map[string]owed{}}
}

// billed returns the totals that all of these receivers hold for each period, and the late additions to each closed
// period.
func billed(all map[string]*modelReceiver) (held, late map[string]owed) {
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

func (m *machine) arrive(t *rapid.T, s *sender) {
	message := read(m, s.Body)
	f := m.accounts[s.account]
	sequence := message.Data.Sequence
	if before, seen := f.bodies[sequence]; seen && before != string(s.Body) {
		t.Fatalf("sequence %d came with two bodies:\n%s\n%s", sequence, before, s.Body)
	}
	f.bodies[sequence] = string(s.Body)
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

// expected returns the totals that the receivers must hold for each period.
func (m *machine) expected() map[string]owed {
	expected := map[string]owed{}
	for period, used := range m.used {
		start, err := time.Parse(time.DateOnly, period)
		require.NoError(m, err)
		expected[period] = owed{used, billing.RoundMoney(m.priceOf(period, start).Charge(billing.Measured{Units: used}).Exact, "USD")}
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

// expectedLate returns the late usage and the amount that must have been added to each closed period.
func (m *machine) expectedLate() map[string]owed {
	expected := map[string]owed{}
	for period, late := range m.late {
		price, then := m.closed[period], m.used[period]
		now := billing.RoundMoney(price.Charge(billing.Measured{Units: then.Add(late)}).Exact, "USD")
		expected[period] = owed{late, now.Sub(billing.RoundMoney(price.Charge(billing.Measured{Units: then}).Exact, "USD"))}
	}
	return expected
}

// requireBilled requires that the receivers hold the usage of each period as it was closed, and late usage as
// adjustments that add up.
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

// requireBilledTogether requires that the receivers hold the usage of each period together with its adjustments. Usage
// that a previous receiver turns out to lack after the period is closed becomes an adjustment.
func (m *machine) requireBilledTogether(t *rapid.T) {
	held, late := billed(m.accounts)
	came := m.expectedLate()
	for period, want := range m.expected() {
		usage, amount := held[period].usage.Add(late[period].usage), held[period].amount.Add(late[period].amount)
		if !usage.Equal(want.usage.Add(came[period].usage)) || !amount.Equal(want.amount.Add(came[period].amount)) {
			t.Fatalf("of %s the receivers hold %s and %s of adjustments, we hold %s and %s", period, held[period], late[period], want, came[period])
		}
	}
	m.requireClosed(t)
}

// requireClosed requires that the stored totals of the closed periods equal the usage before they closed.
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
