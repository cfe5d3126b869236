package db_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// billingPeriods returns the customer's periods as "start..end", each with the date and hour in UTC.
func (b *biller) billingPeriods() []string {
	b.Helper()
	rows, err := b.connect().Query(b.Context(), `
		select to_char(starts_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24') || '..' || to_char(ends_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24')
		from billing_periods
		where tenant_id = $1 and customer_id = $2
		order by starts_at`, b.tenant, b.customer.ID)
	require.NoError(b, err)
	defer rows.Close()
	var links []string
	for rows.Next() {
		var link string
		require.NoError(b, rows.Scan(&link))
		links = append(links, link)
	}
	require.NoError(b, rows.Err())
	return links
}

// exec executes SQL, for changes that no method makes.
func (b *biller) exec(sql string, args ...any) {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), b.address)
	require.NoError(b, err)
	defer conn.Close(b.Context())
	_, err = conn.Exec(b.Context(), sql, args...)
	require.NoError(b, err)
}

// created sets the customer's time of creation, and sets the clock to the same time.
func (b *biller) created(at time.Time) {
	b.Helper()
	b.exec(`update customers set created_at = $3 where tenant_id = $1 and id = $2`,
		b.tenant, b.customer.ID, at)
	b.now = at
}

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func TestBillingScheduleBeginsInMonthOfCreationWithoutGaps(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.created(at("2026-01-31T23:59:59Z"))
	b.plan(0)
	require.Equal(t, []string{"2026-01-01T00..2026-02-01T00"}, b.billingPeriods())
	b.now = at("2026-04-01T00:00:00Z")
	b.accept()
	b.accept()
	require.Equal(t, []string{
		"2026-01-01T00..2026-02-01T00", "2026-02-01T00..2026-03-01T00", "2026-03-01T00..2026-04-01T00", "2026-04-01T00..2026-05-01T00",
	}, b.billingPeriods())
	b.accept()
	require.Len(t, b.billingPeriods(), 4)
}

// TestStartOfBillingScheduleDoesNotDependOnEarlierPlans checks that the start of the billing schedule depends on the
// times at which events arrived, and not on earlier plans. The start is decided once, after the grace of the month
// before the customer's creation.
func TestStartOfBillingScheduleDoesNotDependOnEarlierPlans(t *testing.T) {
	t.Parallel()
	may, june := "2026-05-01T00..2026-06-01T00", "2026-06-01T00..2026-07-01T00"
	for name, c := range map[string]struct {
		came string
		want []string
	}{
		"InTime":  {"2026-06-03T23:59:59Z", []string{may, june}},
		"TooLate": {"2026-06-04T00:00:00Z", []string{june}},
	} {
		for _, planned := range []bool{false, true} {
			b := newBiller(t)
			b.created(at("2026-06-01T12:00:00Z"))
			if planned {
				b.plan(0)
				require.Equal(t, []string{june}, b.billingPeriods(), name)
			}
			b.now = at(c.came)
			b.useAt("1", at("2026-05-31T23:00:00Z"))
			if planned {
				b.plan(0)
			}
			b.now = at("2026-06-04T01:00:00Z")
			b.plan(0)
			require.Equal(t, c.want, b.billingPeriods(), name)

			b.exec(`update tenants set grace = interval '20 days' where id = $1`, b.tenant)
			b.useAt("1", at("2026-04-30T23:00:00Z"))
			b.plan(0)
			require.Equal(t, c.want, b.billingPeriods(), "the start is decided")
		}
	}
}

// TestBillingScheduleExtendsToEarlierMonthWithoutProvider checks that the billing schedule is extended to an earlier
// month even without a provider, which means without syncs.
func TestBillingScheduleExtendsToEarlierMonthWithoutProvider(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.exec(`update billing_connections set retired_at = now() where tenant_id = $1`, b.tenant)
	b.created(at("2026-06-01T12:00:00Z"))
	due := func() []metering.CustomerID {
		page, err := b.store.Ledger.DuePeriods(t.Context(), b.tenant, 0, 10, b.now)
		require.NoError(t, err)
		return page.Customers
	}
	require.Empty(t, due())
	require.Len(t, b.billingPeriods(), 1)
	b.useAt("1", at("2026-05-31T23:00:00Z"))
	b.now = at("2026-06-04T00:00:00Z").Add(metering.MaxIngestDelay)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, due(), "May, which has had its grace")
	require.Len(t, b.billingPeriods(), 2)
}

func TestUsageBeforeBillingScheduleIsNeverBilled(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.created(at("2026-06-20T00:00:00Z"))
	b.useAt("7", at("2026-05-31T23:00:00Z"))
	b.useAt("1", at("2026-06-01T00:00:00Z"))
	require.Equal(t, "1", b.accept().Data.Meters[0].Usage.String())
	require.Equal(t, []string{"2026-06-01T00..2026-07-01T00"}, b.billingPeriods())
}

func TestBillingStartsAtTimeSetByOperator(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.created(at("2026-01-20T00:00:00Z"))
	b.exec(`update customers set billing_starts_at = $3 where tenant_id = $1 and id = $2`,
		b.tenant, b.customer.ID, at("2026-03-10T06:00:00Z"))
	require.Empty(t, b.plan(0).Send, "no period begins before billing_starts_at")
	require.Empty(t, b.billingPeriods())
	b.now = at("2026-04-02T00:00:00Z")
	b.plan(0)
	require.Equal(t, []string{"2026-03-10T06..2026-04-01T00", "2026-04-01T00..2026-05-01T00"}, b.billingPeriods())
}

func TestPeriodsAreTheTenantsLocalMonths(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.exec(`update tenants set timezone = 'America/New_York' where id = $1`, b.tenant)
	b.created(at("2026-03-01T04:59:59Z")) // still February in New York
	b.plan(0)
	require.Equal(t, []string{"2026-02-01T05..2026-03-01T05"}, b.billingPeriods())
	b.now = at("2026-03-20T00:00:00Z")
	b.accept()
	b.plan(0)
	require.Equal(t, []string{"2026-02-01T05..2026-03-01T05", "2026-03-01T05..2026-04-01T04"}, b.billingPeriods(), "across the change of the clocks")
}

func TestCurrentPeriodMatchesUnstoredBillingSchedule(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.created(at("2026-06-20T00:00:00Z"))
	june := metering.Range{Start: at("2026-06-01T00:00:00Z"), End: at("2026-07-01T00:00:00Z")}
	current := func() metering.Range {
		r, err := b.store.Ledger.CurrentPeriod(t.Context(), b.tenant, b.customer.ID, b.now)
		require.NoError(t, err)
		return metering.Range{Start: r.Start.UTC(), End: r.End.UTC()}
	}
	require.Equal(t, june, current())
	require.Empty(t, b.billingPeriods(), "a read creates no period")
	b.plan(0)
	require.Equal(t, june, current())
	b.now = at("2026-08-20T00:00:00Z")
	require.Equal(t, metering.Range{Start: at("2026-08-01T00:00:00Z"), End: at("2026-09-01T00:00:00Z")}, current())
}
