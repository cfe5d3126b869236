package db_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// periodOf returns the id of the customer's period that contains an instant.
func (b *biller) periodOf(at time.Time) (id metering.PeriodID) {
	b.Helper()
	b.scan(`select id from billing_periods where tenant_id = $1 and customer_id = $2 and starts_at <= $3 and ends_at > $3`,
		[]any{b.tenant, b.customer.ID, at}, &id)
	return id
}

// statement returns the statement of the period that contains an instant, with a page of its reports.
func (b *biller) statement(at time.Time, page ledger.ReportPage) ledger.PeriodStatement {
	b.Helper()
	s, err := b.store.Ledger.Statement(b.Context(), b.tenant, b.periodOf(at), page, b.now)
	require.NoError(b, err)
	return s
}

var allReports = ledger.ReportPage{Before: math.MaxInt64, Limit: 1000}

func TestStatementIsReadWithConstantNumberOfSQLStatements(t *testing.T) {
	t.Parallel()
	few, month := newOldBiller(t)
	few.plan(anew)

	many, _ := newOldBiller(t)
	for i := range 30 {
		dbtest.Meter(t, many.store, many.tenant, fmt.Sprintf("meter-%d", i), fmt.Sprintf("type-%d", i))
	}
	for range 10 {
		many.use("1")
		many.accept()
	}
	many.now = over(month)
	many.acceptAll()
	many.closePeriods()
	many.useAt("50", month.Start.AddDate(0, 0, 20))

	store, counter := openCounted(t)
	read := func(b *biller) (n int, s ledger.PeriodStatement) {
		n = counter.Count(func() {
			var err error
			s, err = store.Ledger.Statement(t.Context(), b.tenant, b.periodOf(month.Start), allReports, b.now)
			require.NoError(t, err)
		})
		return n, s
	}
	least, s := read(few)
	require.Equal(t, [2]int{1, 1}, [2]int{len(s.Lines), len(s.Reports.Items)})
	most, s := read(many)
	require.Len(t, s.Lines, 31)
	require.Len(t, s.Reports.Items, 10)
	require.Len(t, s.Reports.Items[0].Lines, 31)
	require.Equal(t, "50", s.Lines[0].LateUsage.String())
	require.Equal(t, least, most)
	require.LessOrEqual(t, most, 19)
}

func TestStatementListsReportsThatBillItsPeriodNewestFirst(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("141.75")
	b.accept()
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	b.use("7")
	b.reportAll()
	b.now = over(month)
	february := billing.CalendarPeriod(month.End, time.UTC)
	b.link("sub_1", february, asDelta)
	b.reportAll()
	b.closePeriods()
	b.useAt("1000", month.Start.AddDate(0, 0, 20))
	b.use("3")
	b.reportAll()

	reports := func(s ledger.PeriodStatement) (all []string) {
		for _, r := range s.Reports.Items {
			sent := "-"
			if r.Quantity != nil {
				sent = r.Quantity.String()
			}
			require.Len(t, r.Lines, 1)
			require.Equal(t, month == r.Lines[0].Of, r.Kind != billing.QuantityReport || s.Start.Equal(month.Start))
			all = append(all, fmt.Sprintf("%d %s %s %s %s: %s for %s", r.Number, r.Provider, r.Kind, r.State, sent, r.Lines[0].Quantity, r.Lines[0].Amount))
		}
		return all
	}
	require.Equal(t, []string{
		"2 stripe quantity counted 7: 7 for 0.03", "1 webhook statement accepted -: 141.75 for 10.21", // 148.75 in total, 149 in whole units: 10.245, rounded half to even
	}, reports(b.statement(month.Start, allReports)))
	charged := reports(b.statement(month.End, allReports))
	require.Len(t, charged, 2)
	require.Contains(t, charged[0]+charged[1], "stripe quantity counted 3: 3 for 10")
	require.Contains(t, charged[0]+charged[1], "stripe charge counted 5: 1000 for 5", "the late charge is reported with the target period: 1149 units less 149 at the closing")

	page := b.statement(month.Start, ledger.ReportPage{Before: 2, Limit: 1})
	require.EqualValues(t, 1, page.Reports.Items[0].Number)
	page = b.statement(month.Start, ledger.ReportPage{Before: math.MaxInt64, Limit: 1})
	require.Len(t, page.Reports.Items, 1)
	require.EqualValues(t, 2, page.Reports.Items[0].Number)
}

func TestTenantCannotReadStatementOfAnotherTenant(t *testing.T) {
	t.Parallel()
	ours, theirs := newBiller(t), newBiller(t)
	ours.use("1")
	ours.plan(anew)
	theirs.use("1000")
	theirs.accept()
	_, err := ours.store.Ledger.Statement(t.Context(), ours.tenant, theirs.periodOf(theirs.now), allReports, ours.now)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	_, err = ours.store.Ledger.StatementOf(t.Context(), ours.tenant, theirs.customer.ID, 0, func(billing.Period) bool { return true }, ours.now)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	s := ours.statement(ours.now, allReports)
	require.Equal(t, "1", s.Lines[0].Usage.String())
	require.Len(t, s.Reports.Items, 1)
	require.Equal(t, ours.connection, s.Reports.Items[0].Connection)
}

// TestARunningPeriodThatIsNotStoredHasAStatement checks the statement of a current period that is not stored. Before
// the first period begins, the statement is for the current calendar month, as in the preview.
func TestARunningPeriodThatIsNotStoredHasAStatement(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.price("3", "0", "2")
	b.use("5")
	s, err := b.store.Ledger.StatementOf(t.Context(), b.tenant, b.customer.ID, 0, func(p billing.Period) bool { return p.Contains(b.now) }, b.now)
	require.NoError(t, err)
	require.Zero(t, s.ID)
	require.Equal(t, "13", s.Lines[0].Amount.String())
	b.exec(`update customers set billing_starts_at = $2 where tenant_id = $1`, b.tenant, b.now.AddDate(0, 0, 62))
	s, err = b.store.Ledger.StatementOf(t.Context(), b.tenant, b.customer.ID, 0, func(p billing.Period) bool { return p.Contains(b.now) }, b.now)
	require.NoError(t, err)
	require.Equal(t, billing.CalendarPeriod(b.now, time.UTC), s.Range)
	require.Equal(t, "5", s.Lines[0].Usage.String())
	_, err = b.store.Ledger.StatementOf(t.Context(), b.tenant, b.customer.ID, 0, func(p billing.Period) bool { return p.Contains(s.End) }, b.now)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
}
