package activities_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

func TestACustomerWhoIsLinkedElsewhereMeanwhileHoldsNobodyUp(t *testing.T) {
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
