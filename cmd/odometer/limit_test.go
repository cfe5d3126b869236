package main_test

import (
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// redisURL returns the URL of Redis with a timeout that no read exceeds on a busy machine.
func redisURL(t testing.TB) string {
	t.Helper()
	url := os.Getenv("TEST_REDIS_URL")
	require.NotEmpty(t, url, "run make test, or dev/up test go test ./...")
	return url + "?read_timeout=" + dbtest.Deadline.String()
}

// holdWindows keeps the tenant's rate-limit windows in Redis for another hour. A window lasts a minute by the clock of
// Redis, and a busy machine may need longer for all requests of a test.
func holdWindows(t testing.TB, tenant string) {
	t.Helper()
	client, err := api.OpenRedis(redisURL(t))
	require.NoError(t, err)
	defer client.Close()
	keys, err := client.Keys(t.Context(), "*:"+tenant).Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		require.NoError(t, client.PExpire(t.Context(), key, time.Hour).Err())
	}
}

// TestTwoReplicasAcceptExactlyTheRateLimit checks that two replicas together accept exactly the limit, although
// one of the replicas is killed and restarted.
func TestTwoReplicasAcceptExactlyTheRateLimit(t *testing.T) {
	t.Parallel()
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable, Env: []string{"REDIS_URL=" + redisURL(t)}})
	tenant, key := system.LimitedTenant(t, 1000)
	replicas := []*proc.Process{system.API(t), system.API(t)}
	var accepted, limited atomic.Int64
	send := func(requests int) {
		var clients sync.WaitGroup
		for c := range 8 {
			clients.Go(func() {
				for range requests / 8 {
					switch status, body := call(t, "POST", replicas[c%2].URL+"/v1/events", key, event("one")); status {
					case http.StatusTooManyRequests:
						limited.Add(1)
					case http.StatusOK:
						accepted.Add(1)
					default:
						t.Errorf("%d %s", status, body)
					}
				}
			})
		}
		clients.Wait()
	}
	send(8)
	holdWindows(t, tenant)
	send(392)
	replicas[1].Restart(t)
	send(800)
	require.Equal(t, int64(1000), accepted.Load())
	require.Equal(t, int64(200), limited.Load())
	require.NotContains(t, replicas[0].Log(t), "per replica")
}

func TestStartWithoutRedisLogsThatRateLimitIsPerReplica(t *testing.T) {
	t.Parallel()
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable})
	require.Contains(t, system.API(t).Log(t), "REDIS_URL is not set: each replica applies the rate limits on its own")
}
