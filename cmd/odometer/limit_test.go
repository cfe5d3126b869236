package main_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// TestTwoReplicasLetExactlyTheLimitThrough checks that two replicas together accept exactly the limit, although
// one of the replicas is killed and restarted.
func TestTwoReplicasLetExactlyTheLimitThrough(t *testing.T) {
	t.Parallel()
	_, url := dbtest.Fresh(t)
	redis := proc.RedisURL(t, 2) + "?read_timeout=" + dbtest.Deadline.String() // no read times out on a busy machine
	client, err := api.OpenRedis(redis)
	require.NoError(t, err)
	defer client.Close()
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable, Env: []string{"REDIS_URL=" + redis}})
	_, key := system.LimitedTenant(t, 1000)
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
	proc.HoldWindows(t, client)
	send(392)
	replicas[1].Restart(t)
	send(800)
	require.Equal(t, int64(1000), accepted.Load())
	require.Equal(t, int64(200), limited.Load())
	require.NotContains(t, replicas[0].Log(t), "per replica")
}

func TestWithoutRedisAStartSaysThatTheLimitIsPerReplica(t *testing.T) {
	t.Parallel()
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable})
	require.Contains(t, system.API(t).Log(t), "REDIS_URL is not set: each replica applies the rate limits on its own")
}
