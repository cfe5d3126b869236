package activities_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

func TestBatchSyncsOtherCustomersAfterCustomerIsRelinked(t *testing.T) {
	t.Parallel()
	s := newRegular(t)
	other, err := s.store.Customers.Create(t.Context(), s.tenant, metering.Operator, metering.Customer{ExternalID: "other"}, clock.Now())
	require.NoError(t, err)
	var relink sync.Once
	s.answered = func() {
		relink.Do(func() {
			if _, err := s.conn.Exec(t.Context(), `update customers set billing_provider_id = 'cus_2' where tenant_id = $1 and id = $2`, s.tenant, s.customer); err != nil {
				t.Error(err)
			}
		})
	}
	value, err := s.ExecuteActivity(s.do.SyncBatch, activities.BatchInput{TenantID: s.tenant, Customers: []metering.CustomerID{s.customer, other.ID}})
	require.NoError(t, err)
	var result activities.SyncBatchResult
	require.NoError(t, value.Get(&result))
	require.Equal(t, activities.SyncBatchResult{Customers: 2, Failed: []metering.CustomerID{s.customer}}, result)
}

// TestBatchInterruptedAfterAnyCallReportsUsageOnce closes a batch's database connection after a different call in
// each subtest. Reports that were sent and not recorded are sent again under the same key.
func TestBatchInterruptedAfterAnyCallReportsUsageOnce(t *testing.T) {
	t.Parallel()
	const calls = 10 // more calls than the batch makes until its last report is decided
	for call := range calls {
		t.Run(fmt.Sprintf("call %d", call+1), func(t *testing.T) {
			t.Parallel()
			s := newRegular(t)
			for _, meter := range inAllWays {
				s.ingest(meter, "5")
			}
			s.diesInABatch(call)
			for _, meter := range inAllWays {
				s.ingest(meter, "2")
			}
			s.fake.Advance(time.Minute) // longer than any lease
			for range 2 {               // undecided reports, and new usage
				s.must(s.do.SyncBatch, s.batchInput())
				s.fake.Advance(time.Minute)
			}
			for _, meter := range inAllWays {
				require.Equal(t, "7", s.fake.Quantity("si_"+meter).String(), meter)
			}
			require.Zero(t, s.report())
		})
	}
}

// diesInABatch runs a batch that loses the database when the provider has answered more calls than after.
func (s *subscriber) diesInABatch(after int) {
	store, err := dbtest.Connect(s.Context(), dbtest.URL(s))
	require.NoError(s, err)
	defer store.Close()
	answers := 0
	s.answered = func() {
		if answers++; answers > after {
			store.Close()
		}
	}
	defer func() { s.answered = nil }()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env, do := suite.NewTestActivityEnvironment(), s.of(store)
	env.RegisterActivity(do)
	_, err = env.ExecuteActivity(do.SyncBatch, s.batchInput())
	s.T.Logf("after %d answers: %v", answers, err)
}
