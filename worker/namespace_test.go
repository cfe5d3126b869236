package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

func TestAWorkerMakesRunsFindableAndKeepsThemForAQuarter(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.work()()
	s.work() // a second worker finds it done
	described, err := s.temporal.WorkflowService().DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: s.namespace})
	require.NoError(t, err)
	require.Equal(t, 90*24*time.Hour, described.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration())

	s.use("1")
	require.Equal(t, metering.SyncSucceeded, s.await(s.request()).Status)
	query := fmt.Sprintf("OdometerCustomer = '%s' and OdometerTenant = '%s' and OdometerOutcome = 'succeeded' and OdometerTrigger = 'manual' and OdometerPeriod = '%s'",
		s.customer.ID, s.tenant, billing.CalendarPeriod(time.Now(), time.UTC).Start.Format(time.DateOnly))
	dbtest.Eventually(t, func() error {
		found, err := s.temporal.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Namespace: s.namespace, Query: query})
		if err == nil && len(found.GetExecutions()) != 1 {
			err = fmt.Errorf("%d runs", len(found.GetExecutions()))
		}
		return err
	})
}
