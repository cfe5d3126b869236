package api

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

func TestRequestsThatComeDuringALookupShareTheNextOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads [][][]byte
		gate := make(chan struct{})
		c := &credentials{timeout: time.Minute, read: func(_ context.Context, hashes [][]byte) ([]db.Credential, error) {
			reads = append(reads, hashes)
			<-gate
			var found []db.Credential
			for _, h := range hashes {
				found = append(found, db.Credential{Hash: h})
			}
			return found, nil
		}}
		var requests sync.WaitGroup
		ask := func(hash string) {
			requests.Go(func() {
				found, err := c.find(t.Context(), []byte(hash))
				require.NoError(t, err)
				require.Equal(t, hash, string(found.Hash))
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

func TestAFailedLookupIsUnavailableAndTheNextOneWorks(t *testing.T) {
	t.Parallel()
	failure := errors.New("connection refused")
	c := &credentials{timeout: time.Minute, read: func(context.Context, [][]byte) ([]db.Credential, error) { return nil, failure }}
	_, err := c.find(t.Context(), []byte("a"))
	require.Equal(t, metering.CodeUnavailable, metering.CodeOf(err))
	require.ErrorIs(t, err, failure)
	failure = nil
	found, err := c.find(t.Context(), []byte("a"))
	require.NoError(t, err)
	require.Nil(t, found)
}

func TestAStuckDatabaseDoesNotHoldRequestsForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &credentials{timeout: 5 * time.Second, read: func(ctx context.Context, _ [][]byte) ([]db.Credential, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		began := time.Now()
		_, err := c.find(t.Context(), []byte("a"))
		require.Equal(t, metering.CodeUnavailable, metering.CodeOf(err))
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}
