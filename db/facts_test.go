package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// openCounted opens the database of dbtest.Open with a counter of statements.
func openCounted(t testing.TB) (*db.DB, *db.Counter) {
	t.Helper()
	store, counter, err := db.OpenCounted(t.Context(), dbtest.URL(t), dbtest.AuditSecret, dbtest.ReadPrice)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store, counter
}

func TestBooksAreReadWithConstantNumberOfSQLStatements(t *testing.T) {
	t.Parallel()
	few := newBiller(t)
	few.price("0", "0", "1")
	few.useStripe("acct_1")
	month := billing.CalendarPeriod(clock.Now(), time.UTC)
	few.link("sub_1", month, asDelta)
	few.use("3")
	few.reportAll()

	many := newBiller(t)
	many.created(month.Start.AddDate(0, -11, 0))
	many.now = few.now
	many.price("0", "0", "1")
	many.useStripe("acct_1")
	many.link("sub_1", month, asWindow)
	for i := range 49 {
		dbtest.Meter(t, many.store, many.tenant, fmt.Sprintf("meter-%d", i), fmt.Sprintf("type-%d", i))
	}
	many.use("3")
	for months := range 10 {
		many.useAt("3", clock.Month(many.now, -1-months))
	}
	many.reportAll()

	store, counter := openCounted(t)
	statements := func(b *biller) (int, *billing.Books) {
		var books []*billing.Books
		n := counter.Count(func() {
			var err error
			books, err = store.Ledger.Books(b.Context(), b.tenant, b.customer.ID, b.now)
			require.NoError(t, err)
		})
		require.Len(t, books, 1)
		return n, books[0]
	}
	least, facts := statements(few)
	require.Equal(t, [2]int{1, 1}, [2]int{len(facts.Meters), len(facts.UsageRanges())})
	require.Empty(t, facts.Hours)
	most, facts := statements(many)
	require.Len(t, facts.Meters, 50)
	require.GreaterOrEqual(t, len(facts.UsageRanges()), 12)
	require.NotEmpty(t, facts.Hours)
	require.Equal(t, least, most)
	require.LessOrEqual(t, most, 15)
}

func TestHourCutByUsageRangesIsReadOnce(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.price("0", "0", "1")
	b.useStripe("acct_1")
	start := metering.Instant(clock.Now().AddDate(0, 0, -3)).Truncate(time.Hour).Add(20 * time.Minute)
	b.created(start)
	b.link("sub_1", metering.Range{Start: start, End: start.AddDate(0, 1, 0)}, asWindow)
	for i, at := range []time.Duration{0, 39 * time.Minute, 40 * time.Minute, 2 * time.Hour, 26 * time.Hour} {
		b.useAt(fmt.Sprint(1<<i), start.Add(at))
	}
	hours := map[time.Duration]string{}
	for _, h := range b.facts().Hours {
		hours[h.Start.Sub(start)] = h.Total.String()
	}
	require.Equal(t, map[time.Duration]string{
		0: "3", 40 * time.Minute: "4", 100 * time.Minute: "8", 25*time.Hour + 40*time.Minute: "16",
	}, hours)
}
