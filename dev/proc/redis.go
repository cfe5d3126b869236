package proc

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// RedisURL returns the URL of a database of the tests' Redis. Each caller names a database of its own, from 1 to 15.
func RedisURL(t testing.TB, database int) string {
	t.Helper()
	url := os.Getenv("TEST_REDIS_URL")
	require.NotEmpty(t, url, "run make test, or dev/up test go test ./...")
	return url + "/" + strconv.Itoa(database)
}

// HoldWindows keeps the rate-limit windows of a database for another hour. A window lasts a minute by the clock of
// Redis, and a busy machine may need longer for all requests of a test.
func HoldWindows(t testing.TB, client *redis.Client) {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		require.NoError(t, client.PExpire(t.Context(), key, time.Hour).Err())
	}
}
