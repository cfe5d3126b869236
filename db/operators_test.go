package db_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

func TestRunUpdateIsInAuditLogOnce(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	meter := dbtest.Meter(t, store, tenant, "calls", "call")
	update := access.RunUpdate{
		Asked:    metering.Asked{By: "ada", Reason: "it is being moved"},
		Workflow: "sync-customer/1/2", Run: "0192b1a0-0000-7000-8000-000000000000", ID: "u1", Name: "exclude-meter", Meter: meter.ID,
	}
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { require.NoError(t, store.AuditLog.RecordUpdate(t.Context(), tenant, update)) })
	}
	all.Wait()
	entries, err := dbtest.Items(store.AuditLog.List(t.Context(), tenant, access.AuditFilter{Action: "run."}, 0, 10))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	e := entries[0]
	require.Equal(t, []string{"operator", "run.exclude-meter", "sync-customer/1/2", "it is being moved", "u1"},
		[]string{string(e.Actor), e.Action, e.Resource, e.Reason, e.RequestID})
	require.JSONEq(t, `{"by":"ada","meter_id":"`+meter.ID.String()+`"}`, string(e.After))

	another := update
	another.Run = "0192b1a0-0000-7000-8000-000000000001"
	require.NoError(t, store.AuditLog.RecordUpdate(t.Context(), tenant, another), "an update of another run is recorded too")
	another.ID, another.Meter = "u2", 999_999
	err = store.AuditLog.RecordUpdate(t.Context(), tenant, another)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	require.ErrorContains(t, err, "mtr_999999")
	entries, err = dbtest.Items(store.AuditLog.List(t.Context(), tenant, access.AuditFilter{Action: "run."}, 0, 10))
	require.NoError(t, err)
	require.Len(t, entries, 2)
}
