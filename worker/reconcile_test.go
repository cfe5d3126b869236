package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

func TestWorkerHandlesSyncRequestWithLostSignal(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.use("3")
	lost, err := s.store.Syncs.Request(t.Context(), s.tenant, metering.Operator, s.customer.ID, metering.Manual, time.Now().Add(-2*time.Minute))
	require.NoError(t, err)
	s.work()
	require.Equal(t, metering.SyncSucceeded, s.await(lost.ID).Status)
	require.Equal(t, "3", s.billed()[s.customer.ExternalID])
}

func TestWorkerRestartsTerminatedSyncRun(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.use("3")
	stop := s.work()
	s.behave(`{"status":503,"times":1000}`)
	id := s.request()
	dbtest.Eventually(t, func() error {
		if len(s.received()) == 0 {
			return fmt.Errorf("nothing was sent yet")
		}
		return nil
	})
	stop()
	require.NoError(t, s.temporal.TerminateWorkflow(t.Context(), workflows.SyncCustomerID(s.tenant, s.customer.ID), "", "for the test"))
	s.behave(`{"times":0}`)
	conn := s.connect()
	_, err := conn.Exec(t.Context(), `update billing_syncs set requested_at = requested_at - interval '2 minutes' where tenant_id = $1`, s.tenant)
	require.NoError(t, err)
	s.work()
	require.Equal(t, metering.SyncSucceeded, s.await(id).Status)
	require.Equal(t, "3", s.billed()[s.customer.ExternalID])
}

func TestWorkerStartsPendingBackfill(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	_, err := s.writer.Ingest(t.Context(), s.tenant,
		[]metering.Event{dbtest.Event(t, "stored", s.customer.ExternalID, time.Now(), "2.5", "", "")})
	require.NoError(t, err)
	meter := dbtest.Meter(t, s.store, s.tenant, "storage", "stored")
	require.Equal(t, metering.Backfilling, meter.Version.Status)
	s.work()
	dbtest.Eventually(t, func() error {
		now, err := s.store.Meters.Get(t.Context(), s.tenant, "storage")
		if err == nil && now.Version.Status != metering.Complete {
			err = fmt.Errorf("the meter version is %s", now.Version.Status)
		}
		return err
	})
	sync := s.await(s.request())
	require.Len(t, sync.Lines, 2)
	require.Equal(t, "2.5", sync.Lines[1].Usage.String())
	require.Empty(t, sync.Excluded)
}

func TestMeterIsExcludedDuringItsBackfill(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	_, err := s.writer.Ingest(t.Context(), s.tenant,
		[]metering.Event{dbtest.Event(t, "stored", s.customer.ExternalID, time.Now(), "2.5", "", "")})
	require.NoError(t, err)
	meter := dbtest.Meter(t, s.store, s.tenant, "storage", "stored")
	planned, err := s.store.Ledger.Plan(t.Context(), s.tenant, s.customer.ID, ledger.Pass{Lease: time.Minute}, dbtest.Frame, time.Now())
	require.NoError(t, err)
	require.NotContains(t, string(planned.Leased.Body), "storage")
	require.Equal(t, []billing.Exclusion{{
		MeterID: meter.ID, MeterSlug: "storage", ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedBackfilling},
	}}, planned.Excluded)
}
