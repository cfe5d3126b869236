package providers

import (
	"net/http"
	"strconv"
	"time"
)

const maxRetryAfter = time.Hour

// RetryAfter returns the wait of a Retry-After header: seconds or an HTTP date (RFC 9110 §10.2.3). The wait
// is 0 if the header is empty, invalid or in the past, and at most one hour.
func RetryAfter(header string, now time.Time) time.Duration {
	if header == "" {
		return 0
	}
	var wait time.Duration
	if seconds, err := strconv.Atoi(header); err == nil {
		wait = time.Duration(max(0, min(seconds, int(maxRetryAfter/time.Second)))) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		wait = at.Sub(now)
	}
	return max(0, min(wait, maxRetryAfter))
}
