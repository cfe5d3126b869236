package db_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// digests creates the missing digests, and returns those of the customer's first period.
func (b *biller) digests() map[metering.MeterID]ledger.Digest {
	b.Helper()
	const atOnce = 10
	for made := atOnce; made == atOnce; {
		var err error
		made, err = b.store.Ledger.DigestClosed(b.Context(), atOnce)
		require.NoError(b, err)
	}
	periods, err := dbtest.Items(b.store.Ledger.Statements(b.Context(), b.tenant, b.customer.ID, billing.PeriodPlace{Start: b.now.AddDate(1, 0, 0)}, 100, b.now))
	require.NoError(b, err)
	digests, err := b.store.Ledger.Digests(b.Context(), b.tenant, periods[len(periods)-1].ID)
	require.NoError(b, err)
	return digests
}

// recounted computes the digest of an event type from the listed events.
func (b *biller) recounted(eventType string, r metering.Range) (d ledger.Digest) {
	b.Helper()
	events, err := b.store.Events.Page(b.Context(), b.tenant, b.customer.ID, r, nil, nil, 10_000)
	require.NoError(b, err)
	all, days := sha256.New(), map[string][]byte{}
	var order []string
	for _, e := range events {
		if e.EventType != eventType {
			continue
		}
		d.Events++
		day := e.At.Format(time.DateOnly)
		if days[day] == nil {
			order = append(order, day)
		}
		one := sha256.Sum256([]byte(strings.Join([]string{
			e.ID.String(), e.At.Format("2006-01-02T15:04:05.000000Z"), e.EventType, e.Value.String(), string(e.Properties),
		}, "\n")))
		days[day] = append(days[day], one[:]...)
	}
	for _, day := range order { // ascending, because the events are listed by timestamp
		digest := sha256.Sum256(days[day])
		all.Write(digest[:])
	}
	d.Algorithm, d.Value = ledger.DigestAlgorithm, all.Sum(nil)
	return d
}

func TestDigestCoversEventsOfPeriodAtItsClosing(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	tokens, none := dbtest.Meter(t, b.store, b.tenant, "tokens", "token"), dbtest.Meter(t, b.store, b.tenant, "none", "nothing")
	random := rand.New(rand.NewPCG(3, 4))
	var events []metering.Event
	for n := range 300 {
		at := month.Start.AddDate(0, 0, 14).Add(time.Duration(random.Int64N(int64(12 * 24 * time.Hour)))).Truncate(time.Duration(1 + n%2*int(time.Hour)))
		properties := []string{"", `{}`, `{"model":"größer\n", "b":[1.50,null], "a":{"é":"\u0000x"}}`}[n%3]
		properties = strings.ReplaceAll(properties, `\u0000`, "")
		events = append(events, dbtest.Event(t, []string{"api_call", "token"}[n%2], []string{"acme", "beta"}[n%5/4], at,
			fmt.Sprintf("%d.%02d0", random.IntN(1000)-100, random.IntN(100)), "", properties))
	}
	ingest(t, b.store, b.tenant, events...)
	b.now = over(month)
	require.Equal(t, ledger.Closing{Closed: 1}, b.closePeriods())
	want := map[metering.MeterID]ledger.Digest{
		b.meter.ID: b.recounted("api_call", month), tokens.ID: b.recounted("token", month), none.ID: b.recounted("nothing", month),
	}
	require.Greater(t, want[b.meter.ID].Events, int64(100))

	b.useAt("5", month.Start.AddDate(0, 0, 20)) // late usage
	require.Equal(t, want, b.digests())
	require.NotEqual(t, want[b.meter.ID], b.recounted("api_call", month), "no digest includes late usage")

	_, err := b.connect().Exec(t.Context(), `update events set value = value + 1 where tenant_id = $1 and event_type = 'api_call' and customer_id = $2`, b.tenant, b.customer.ID)
	require.NoError(t, err)
	require.Equal(t, want, b.digests(), "it is made once")
}

func TestEventsAreKeptUntilTheDigestOfTheirPeriodIsMade(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b := newBillerAt(t, store, address)
	k := newKeeperAt(t, store, address)
	old := b.now.AddDate(0, 0, -200)
	b.created(old)
	b.useAt("5", old)
	b.now = clock.Now()
	b.acceptAll()
	require.Greater(t, b.closePeriods().Closed, 3)
	require.Zero(t, k.retain(90))
	require.NotEmpty(t, b.digests())
	require.Positive(t, k.retain(90))
}
