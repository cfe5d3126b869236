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

// far is the receiving end: it keeps the last total by sequence.
type far struct {
	bodies map[int64]string
	last   int64
	usage  metering.Decimal
}

// machine drives one customer's ledger through arbitrary interleavings.
type machine struct {
	*biller
	total    metering.Decimal
	account  string
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
	if sequence >= f.last {
		f.last = sequence
		f.usage = metering.MustDecimal(message.Data.Meters[0].Usage.String())
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
	m.total = m.total.Add(metering.MustDecimal(value))
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
	for range 10 {
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

// The invariant holds for one account throughout; nobody can say it of an
// account that was given up with an answer outstanding.
func TestWhateverHappensTheReceiversTotalIsOurs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := newBiller(t)
		account := "https://billing.example.com/usage"
		m := &machine{biller: b, account: account, accounts: map[string]*far{account: {bodies: map[int64]string{}}}}
		rt.Repeat(map[string]func(*rapid.T){
			"ingest": m.ingest, "prepare": m.prepareOne, "prepare twice": m.prepareTwiceAtOnce, "mark": m.mark,
			"deliver": m.deliver, "settle": m.settleOne, "release": m.release, "expire": m.expire,
		})
		m.quiesce(rt)
		if got := m.accounts[account].usage; !got.Equal(m.total) {
			rt.Fatalf("the receiver holds %s, we hold %s", got, m.total)
		}
	})
}

// With accounts that change, no usage is billed twice where every answer is
// heard: what all accounts hold adds up to what was used.
func TestWhateverAccountIsUsedNothingIsBilledTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := newBiller(t)
		m := &machine{biller: b, accounts: map[string]*far{}}
		use := func(rt *rapid.T) {
			account := fmt.Sprintf("https://%d.example.com/", rapid.IntRange(1, 3).Draw(rt, "account"))
			if m.accounts[account] == nil {
				m.accounts[account] = &far{bodies: map[int64]string{}}
			}
			b.useProvider(account)
		}
		use(rt)
		rt.Repeat(map[string]func(*rapid.T){"ingest": m.ingest, "account": use, "sync": m.quiesce})
		m.quiesce(rt)
		var sum metering.Decimal
		for _, f := range m.accounts {
			sum = sum.Add(f.usage)
		}
		if !sum.Equal(m.total) {
			rt.Fatalf("the receivers hold %s, we hold %s", sum, m.total)
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
