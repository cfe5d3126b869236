package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// TestInvalidScheduleDoesNotPreventOtherSchedules breaks the schedule of the first of two tenants. The worker
// applies schedules in the order of the tenants, and must still apply the second schedule.
func TestInvalidScheduleDoesNotPreventOtherSchedules(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	other := dbtest.Tenant(t, s.store).ID
	require.Greater(t, other, s.tenant)
	for _, tenant := range []metering.TenantID{s.tenant, other} {
		_, err := s.store.AutoSyncs.Save(t.Context(), tenant, metering.Operator, metering.AutoSync{Enabled: true, Schedule: "0 0 29 2 *"}, time.Now())
		require.NoError(t, err)
	}
	_, err := s.connect().Exec(t.Context(), `update auto_syncs set schedule = 'no schedule at all' where tenant_id = $1`, s.tenant)
	require.NoError(t, err)
	s.work()
	dbtest.Eventually(t, func() error {
		state, err := workflows.DescribeAutoSync(t.Context(), s.temporal, other)
		if err == nil && len(state.Next) == 0 {
			err = fmt.Errorf("no run is planned")
		}
		return err
	})
}
