package metering

import "time"

// DeliveryStatus is where a message stands on its way to an endpoint.
type DeliveryStatus string

const (
	DeliveryPending   DeliveryStatus = "pending"
	DeliveryDelivered DeliveryStatus = "delivered"
	DeliveryFailed    DeliveryStatus = "failed" // it is not tried again unless somebody asks
)

// retries is how long after an attempt in vain the next one follows: the
// example of Standard Webhooks, three days in all.
var retries = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// RetryAfter returns how long after attempts in vain a message is tried again;
// false: never.
func RetryAfter(attempts int) (time.Duration, bool) {
	if attempts < 1 || attempts > len(retries) {
		return 0, false
	}
	return retries[attempts-1], true
}

// FailingAtMost is how long an endpoint may fail without a break before it is
// disabled.
const FailingAtMost = 5 * 24 * time.Hour

// Backoff returns how long nothing is sent to an endpoint that has failed so
// often in a row, so that what waits for it does not beat on it.
func Backoff(failures int) time.Duration {
	const first, most = 5 * time.Second, 5 * time.Minute
	return min(first<<min(max(failures, 1)-1, 10), most)
}

// Delivery is one message on its way to one endpoint.
type Delivery struct {
	Message
	Status    DeliveryStatus
	Attempts  int        // since it was asked for
	DueAt     *time.Time // the next attempt, of a pending one
	SettledAt *time.Time
}

// Attempt is one try to deliver a message.
type Attempt struct {
	At      time.Time
	Took    time.Duration
	Status  int    // the HTTP status; 0: there was no answer
	Problem string // "" when it was delivered
}
