package db_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// requireOnce calls do twice concurrently for each report. It requires that one of the two calls succeeds, and that the
// other fails with the code.
func (b *biller) requireOnce(reports []uuid.UUID, code metering.Code, do func(report uuid.UUID) error) {
	b.Helper()
	n := len(reports)
	errs := make([]error, 2*n)
	_ = atOnce(2*n, func(i int) error {
		errs[i] = do(reports[i%n])
		return nil
	})
	for i := range reports {
		one, other := errs[i], errs[i+n]
		require.NotEqual(b, one == nil, other == nil, "%v and %v", one, other)
		require.Equal(b, code, metering.CodeOf(errors.Join(one, other)))
	}
}

// requireTwice calls do twice concurrently for each report, and requires that both calls succeed.
func (b *biller) requireTwice(reports []uuid.UUID, do func(report uuid.UUID) error) {
	b.Helper()
	require.NoError(b, atOnce(2*len(reports), func(i int) error { return do(reports[i%len(reports)]) }))
}

// planTwice plans twice concurrently, requires the same reports of both plans, and returns their ids.
func (b *biller) planTwice(reports int) (ids []uuid.UUID) {
	b.Helper()
	var planned [2]ledger.Planned
	require.NoError(b, atOnce(2, func(i int) (err error) {
		planned[i], err = b.store.Ledger.Plan(context.Background(), b.tenant, b.customer.ID, ledger.Pass{After: anew}, dbtest.Frame, b.now)
		return err
	}))
	require.Len(b, planned[0].Send, reports)
	require.Equal(b, planned[0].Send, planned[1].Send)
	for _, r := range planned[0].Send {
		ids = append(ids, r.ID)
	}
	return ids
}

// TestConcurrentReportStepsTakeEffectOnce runs each step of a report twice concurrently, and requires that the step
// takes effect once. It uses six hours, because each hour has its own series and therefore its own report.
func TestConcurrentReportStepsTakeEffectOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asWindow)
	for hour := range 6 {
		b.useAt("1", b.now.Add(time.Duration(hour)*time.Hour))
	}
	b.now = b.now.Add(6 * time.Hour)
	books := b.store.Ledger

	reports := b.planTwice(6)
	b.requireOnce(reports, metering.CodeOverloaded, func(r uuid.UUID) error {
		_, err := books.Lease(ctx, b.tenant, r, b.now, lease)
		return err
	})
	require.Equal(t, reports, b.planTwice(6), "the same reports, while they are outstanding")
	b.requireTwice(reports, func(r uuid.UUID) error { return books.Complete(ctx, b.tenant, r, billing.InDoubt, "", b.now) })
	outcome := map[uuid.UUID]billing.State{}
	for i, r := range reports {
		outcome[r] = []billing.State{billing.Accepted, billing.Rejected}[i%2]
	}
	b.requireOnce(reports, metering.CodeConflict, func(r uuid.UUID) error {
		return books.Resolve(ctx, b.tenant, ledger.Resolution{Report: r, State: outcome[r], Actor: metering.Operator}, b.now)
	})
	require.Len(t, b.audited("report.resolve"), 6)
	b.requireTwice(reports, func(r uuid.UUID) error {
		return books.StoreObserved(ctx, b.tenant, []uuid.UUID{r}, billing.Counted, "")
	})

	again := b.planTwice(3)
	require.NoError(t, atOnce(2*len(again), func(i int) error {
		return books.Complete(ctx, b.tenant, again[i/2], []billing.State{billing.Rejected, billing.Accepted}[i%2], "", b.now)
	}))
	for _, r := range again {
		state, _ := b.state(r)
		require.Equal(t, billing.Accepted, state, "an acceptance outweighs a rejection, whichever is first")
	}
	require.Equal(t, "0", b.reportAll().String())
}

func TestASeriesHasOneOutstandingReport(t *testing.T) {
	t.Parallel()
	for _, use := range []func(b *biller, month metering.Range){
		func(*biller, metering.Range) {},
		func(b *biller, month metering.Range) {
			b.useStripe("acct_1")
			b.link("sub_1", month, asDelta)
		},
	} {
		b, month := newOldBiller(t)
		use(b, month)
		b.use("10")
		s := b.next(0).ID
		conn := b.connect()
		insert := func(number int, state billing.State) error {
			_, err := conn.Exec(t.Context(), `
				insert into billing_reports (tenant_id, id, customer_id, number, series_id, period_id, quantity, body, state, recorded_at)
				select tenant_id, $3, customer_id, $4, series_id, period_id, quantity, body, $5, recorded_at
				from billing_reports
				where tenant_id = $1
				  and id = $2`, b.tenant, s, uuid.New(), number, state)
			return err
		}
		for i, outstanding := range []billing.State{billing.Planned, billing.Sending, billing.InDoubt} {
			b.exec(`update billing_reports set state = $3 where tenant_id = $1 and id = $2`, b.tenant, s, outstanding)
			for j, state := range billing.State("").Values() {
				err := insert(2+10*i+j, state)
				if !state.Outstanding() {
					require.NoError(t, err)
					continue
				}
				var refused *pgconn.PgError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, "billing_reports_outstanding", refused.ConstraintName)
			}
		}
	}
}

func TestConcurrentPlansContainTheSameReport(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	for round := range 10 {
		b.use("1")
		const many = 6
		planned := make([]ledger.Planned, many)
		require.NoError(t, atOnce(many, func(i int) (err error) {
			planned[i], err = b.store.Ledger.Plan(context.Background(), b.tenant, b.customer.ID, ledger.Pass{After: anew}, dbtest.Frame, b.now)
			return err
		}))
		for i := range many {
			require.Len(t, planned[i].Send, 1)
			require.Equal(t, planned[0].Send, planned[i].Send)
			require.EqualValues(t, round+1, planned[i].Send[0].Number)
		}
		require.EqualValues(t, round+1, b.readMessage(planned[0].Send[0].ID).Data.Sequence)
		b.complete(planned[0].Send[0].ID, billing.Accepted)
		b.now = b.now.Add(time.Second)
	}
}
