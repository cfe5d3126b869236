package api

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// TestConcurrentMissesShareOneRead checks that at most one read of a tenant is in progress, and that requests that miss
// values during the read share the next one. That read excludes values that are cached by then. Other tenants do not
// wait, and a failed read caches nothing.
func TestConcurrentMissesShareOneRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads [][]string
		var failure error
		gate := make(chan struct{})
		kept := newKeptValues(time.Now, func(_ context.Context, tenant metering.TenantID, keys []string, _ time.Time) (map[string]string, error) {
			reads = append(reads, slices.Sorted(slices.Values(keys)))
			if tenant == 1 {
				<-gate
			}
			if failure != nil {
				return nil, failure
			}
			values := make(map[string]string)
			for _, key := range keys {
				values[key] = "value of " + key
			}
			return values, nil
		})
		var requests sync.WaitGroup
		get := func(tenant metering.TenantID, keys ...string) {
			requests.Go(func() {
				values, err := kept.get(t.Context(), tenant, keys...)
				require.NoError(t, err)
				require.Len(t, values, len(keys))
				for _, key := range keys {
					require.Equal(t, "value of "+key, values[key])
				}
			})
		}
		get(1, "a")
		synctest.Wait()
		for range 20 {
			get(1, "a", "b")
			get(1, "c")
		}
		get(2, "a")
		synctest.Wait()
		require.Equal(t, [][]string{{"a"}, {"a"}}, reads, "one read of each tenant")
		gate <- struct{}{}
		synctest.Wait()
		require.Equal(t, []string{"b", "c"}, reads[2])
		close(gate)
		requests.Wait()
		require.Len(t, reads, 3)

		failure = errors.New("connection refused")
		values, err := kept.get(t.Context(), 1, "a", "d")
		require.ErrorIs(t, err, failure)
		require.Equal(t, map[string]string{"a": "value of a"}, values)
		failure = nil
		get(1, "d")
		requests.Wait()
		require.Len(t, reads, 5)
	})
}

// TestRequestReturnsCachedValuesIfReadTakesTooLong checks that a request returns the cached values after warningsWait,
// even if it waits for the reads of other requests.
func TestRequestReturnsCachedValuesIfReadTakesTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := newKeptValues(time.Now, func(ctx context.Context, _ metering.TenantID, keys []string, _ time.Time) (map[string]string, error) {
			if keys[0] == "b" {
				<-ctx.Done()
			}
			return nil, context.DeadlineExceeded
		})
		kept.cache.add(keyOfTenant[string]{1, "a"}, "cached", time.Now())
		var requests sync.WaitGroup
		for _, key := range []string{"b", "c"} {
			requests.Go(func() {
				began := time.Now()
				values, err := kept.get(t.Context(), 1, "a", key)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, map[string]string{"a": "cached"}, values)
				require.Equal(t, warningsWait, time.Since(began))
			})
			synctest.Wait()
		}
		requests.Wait()
	})
}
