// Package examples shows servers that stop customers at their quotas.
package examples

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/odometer-metering/odometer/client"
)

// Customer returns the customer of a request. Replace it by your authentication.
func Customer(r *http.Request) string { return r.Header.Get("X-Customer") }

// LimitCalls returns 429 if a hard quota of the meter is used up for the customer, and 503 if there is no
// decision. It passes other requests to next.
func LimitCalls(quotas *client.Quotas, meter string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check, err := quotas.Check(r.Context(), client.QuotaCheck{Customer: Customer(r), Meter: meter, Amount: "1"})
		switch {
		case err == nil && check.Allowed:
			next.ServeHTTP(w, r)
		case err != nil || check.Failure != nil:
			http.Error(w, "quotas are not available", http.StatusServiceUnavailable)
		default:
			writeRefusal(w, check.ResetsAt)
		}
	})
}

// writeRefusal returns 429. Retry-After is the time until the quota's next period, in seconds.
func writeRefusal(w http.ResponseWriter, resetsAt *time.Time) {
	if resetsAt != nil {
		seconds := math.Ceil(time.Until(*resetsAt).Seconds())
		w.Header().Set("Retry-After", strconv.Itoa(max(int(seconds), 1)))
	}
	http.Error(w, "the quota is used up", http.StatusTooManyRequests)
}
