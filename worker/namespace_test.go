package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/worker"
)

func TestWorkerKeepsRetentionAndLogsPrepareCommand(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	var log bytes.Buffer
	s.log = slog.New(slog.NewJSONHandler(&log, nil))
	s.work()()
	require.Equal(t, 24*time.Hour, s.retention())
	require.Contains(t, log.String(), `"namespace":"`+s.namespace+`","retention":"1d","command":"TEMPORAL_NAMESPACE=`+s.namespace+` odometer temporal prepare --retention 90d"`)

	_, _, err := worker.PrepareNamespace(t.Context(), s.temporal, s.namespace, worker.NamespaceRetention)
	require.NoError(t, err)
	log.Reset()
	s.work()()
	require.NotContains(t, log.String(), "retention")
}

func TestPreparingANamespaceNeverShortensItsRetention(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	const day = 24 * time.Hour
	for _, c := range []struct{ asked, before, after time.Duration }{
		{90 * day, day, 90 * day},
		{90 * day, 90 * day, 90 * day},
		{365 * day, 90 * day, 365 * day},
		{90 * day, 365 * day, 365 * day},
	} {
		before, after, err := worker.PrepareNamespace(t.Context(), s.temporal, s.namespace, c.asked)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{c.before, c.after, c.after}, []time.Duration{before, after, s.retention()})
	}
}

// retention returns the retention of the Temporal namespace.
func (s *system) retention() time.Duration {
	s.Helper()
	described, err := s.temporal.WorkflowService().DescribeNamespace(s.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: s.namespace})
	require.NoError(s, err)
	return described.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration()
}

// TestAWorkerNeedsTheSearchAttributes starts a worker that may not register search attributes. The worker fails until
// PrepareNamespace has registered them.
func TestAWorkerNeedsTheSearchAttributes(t *testing.T) {
	t.Parallel()
	s := newSystemIn(t, proc.BareNamespace(t, temporalAddress(t)))
	temporal, err := client.Dial(client.Options{
		HostPort: temporalAddress(t), Namespace: s.namespace, Logger: s.log,
		ConnectionOptions: client.ConnectionOptions{GetSystemInfoTimeout: dbtest.Deadline, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
				if method == operatorservice.OperatorService_AddSearchAttributes_FullMethodName {
					return status.Error(codes.PermissionDenied, "operators only")
				}
				return call(ctx, method, request, answer, conn, options...)
			})}},
	})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	err = worker.Run(t.Context(), worker.Config{Store: s.store, Temporal: temporal, Namespace: s.namespace, Keyring: s.keyring, Log: s.log})
	require.ErrorContains(t, err, "the Temporal namespace "+s.namespace+" needs the search attributes OdometerCustomer, OdometerOutcome, OdometerPeriod, OdometerTenant, OdometerTrigger; "+
		"run TEMPORAL_NAMESPACE="+s.namespace+" odometer temporal prepare")
	require.ErrorContains(t, err, "operators only")

	dbtest.Eventually(t, func() error { // a busy server may not know the search attributes in time
		_, _, err := worker.PrepareNamespace(t.Context(), s.temporal, s.namespace, worker.NamespaceRetention)
		return err
	})
	s.workerClient = temporal
	s.work()
}

func TestRunsAreFoundBySearchAttributes(t *testing.T) {
	t.Parallel()
	s := newSystemIn(t, proc.BareNamespace(t, temporalAddress(t)))
	s.work()()
	s.work() // a second worker finds the attributes registered
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
