package api

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestRequestsDuringLookupShareNextLookup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads [][]string
		gate := make(chan struct{})
		c := &coalescer[string, string]{timeout: time.Minute, run: func(_ context.Context, keys []string) (map[string]string, error) {
			reads = append(reads, keys)
			<-gate
			found := make(map[string]string)
			for _, key := range keys {
				found[key] = "what " + key + " leads to"
			}
			return found, nil
		}}
		var requests sync.WaitGroup
		ask := func(key string) {
			requests.Go(func() {
				found, err := c.find(t.Context(), key)
				require.NoError(t, err)
				require.Equal(t, "what "+key+" leads to", found)
			})
		}
		ask("first")
		synctest.Wait()
		for range 50 {
			ask("first")
			ask("second")
		}
		synctest.Wait()
		require.Len(t, reads, 1, "nobody joins a lookup that has begun")
		gate <- struct{}{}
		synctest.Wait()
		require.Len(t, reads, 2)
		require.Len(t, reads[1], 2)
		close(gate)
		requests.Wait()
		require.Len(t, reads, 2)
	})
}

func TestFailedLookupReturnsUnavailableAndNextLookupWorks(t *testing.T) {
	t.Parallel()
	failure := errors.New("connection refused")
	c := &coalescer[string, string]{timeout: time.Minute, run: readCredentials(func(context.Context, []string) (map[string]string, error) { return nil, failure })}
	_, err := c.find(t.Context(), "a")
	require.Equal(t, metering.CodeUnavailable, metering.CodeOf(err))
	require.ErrorIs(t, err, failure)
	failure = nil
	found, err := c.find(t.Context(), "a")
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestAPanicOfALookupIsAnErrorOfItsRequests(t *testing.T) {
	t.Parallel()
	c := &coalescer[string, string]{timeout: time.Minute, run: func(_ context.Context, keys []string) (map[string]string, error) {
		if keys[0] == "a" {
			panic("a price without terms")
		}
		return map[string]string{keys[0]: "found"}, nil
	}}
	_, err := c.find(t.Context(), "a")
	require.ErrorContains(t, err, "a price without terms")
	found, err := c.find(t.Context(), "b")
	require.NoError(t, err)
	require.Equal(t, "found", found)
}

func TestAStuckDatabaseDoesNotHoldRequestsForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &coalescer[string, string]{timeout: 5 * time.Second, run: readCredentials(func(ctx context.Context, _ []string) (map[string]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})}
		began := time.Now()
		_, err := c.find(t.Context(), "a")
		require.Equal(t, metering.CodeUnavailable, metering.CodeOf(err))
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}
