package db_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// request requests a sync of the customer.
func (h *hooked) request() metering.Sync {
	h.Helper()
	requested, err := h.store.Syncs.Request(h.Context(), h.tenant, metering.Operator, h.customer.ID, metering.Manual, h.now)
	require.NoError(h, err)
	return requested
}

// reportDelays reports the delayed syncs as two concurrent workers do.
func (h *hooked) reportDelays() {
	h.Helper()
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			delayed, err := h.store.Syncs.Delayed(h.Context(), h.now)
			if err != nil {
				h.Error(err)
			}
			for _, d := range delayed {
				for range 2 {
					if err := h.store.Syncs.ReportDelay(h.Context(), d, h.now); err != nil {
						h.Error(err)
					}
				}
			}
		})
	}
	workers.Wait()
}

func TestADelayedSyncIsReportedOnce(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncDelayed)
	first := h.request()
	h.now = h.now.Add(ledger.SyncDelayedAfter)
	h.reportDelays()
	require.Empty(t, h.deliveries(), "it is not delayed yet")

	h.now = h.now.Add(time.Second)
	h.reportDelays()
	h.now = h.now.Add(time.Hour)
	h.reportDelays()
	sent := h.deliveries()
	require.Len(t, sent, 1)
	require.JSONEq(t, `{
	  "sync_id": "`+first.ID.String()+`", "requested_at": "2026-11-03T10:20:00Z", "cause": "no worker has started the sync",
	  "tenant_id": "`+h.tenant.String()+`", "customer_id": "`+h.customer.ID.String()+`", "customer_external_id": "acme"
	}`, string(sent[0].Data))

	begun, err := h.store.Syncs.Begin(t.Context(), h.tenant, h.customer.ID, h.now)
	require.NoError(t, err)
	second := h.request()
	h.now = h.now.Add(time.Hour)
	h.reportDelays()
	require.Len(t, h.deliveries(), 1, "the first sync is the oldest one, and was reported")
	_, err = h.store.Syncs.Finish(t.Context(), h.tenant, h.customer.ID, begun.PassID, ledger.Answer{}, h.now)
	require.NoError(t, err)
	h.reportDelays()
	sent = h.deliveries()
	require.Len(t, sent, 2)
	require.Contains(t, string(sent[0].Data), second.ID.String())
}

func TestADelayedSyncOfAFailingCustomerIsNotReported(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncDelayed)
	h.runSync("the webhook answered 400")
	h.request()
	h.now = h.now.Add(time.Hour)
	h.reportDelays()
	require.Empty(t, h.deliveries())
}

func TestASyncThatEndsIsNotReportedAsDelayed(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncDelayed)
	h.request()
	h.now = h.now.Add(time.Hour)
	delayed, err := h.store.Syncs.Delayed(t.Context(), h.now)
	require.NoError(t, err)
	require.Len(t, delayed, 1)
	h.runSync("")
	require.NoError(t, h.store.Syncs.ReportDelay(t.Context(), delayed[0], h.now))
	require.Empty(t, h.deliveries())
}
