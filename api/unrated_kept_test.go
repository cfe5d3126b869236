package api

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// TestCanceledRequestCachesNoUnratedTotals checks that a canceled request caches no totals for the next
// one. The totals of other requests, including failed ones, are cached for cachedFor, which is one minute.
func TestCanceledRequestCachesNoUnratedTotals(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	c := new(clock)
	s := &server{Deps: Deps{Store: store, Now: c.now, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, unratedKept: newBoundedCache[metering.TenantID, []ledger.UnratedTotal]()}
	ctx := context.WithValue(t.Context(), exchangeKey{}, &exchange{principal: Principal{Tenant: dbtest.Tenant(t, store)}})
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	require.Empty(t, s.recentUnrated(canceled))
	require.Empty(t, s.recentUnrated(ctx))
	store.Close()
	c.advance(cachedFor - time.Second)
	require.Empty(t, s.recentUnrated(ctx), "what is kept")
	c.advance(time.Second)
	failed := s.recentUnrated(ctx)
	require.Len(t, failed, 1)
	require.Equal(t, billing.UnratedUnknown, failed[0].Reason)
}
