package metering

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// Retention is the time for which events are kept. Zero means forever. Totals are always kept forever.
type Retention time.Duration

const (
	// MinRetention is longer than a month, its grace and an export's default window.
	MinRetention = 35 * 24 * time.Hour

	// retentionMargin is the maximum time from the call of Judge until the event is stored. It includes the
	// lag of a slow clock.
	retentionMargin = time.Hour
)

// ParseRetention parses whole days such as 400d, or a duration such as 9600h, of at least MinRetention.
func ParseRetention(text string) (Retention, error) {
	length, err := ParseDays(text)
	if err != nil {
		return 0, err
	}
	if length < MinRetention {
		return 0, errors.New("must be 35d or longer")
	}
	return Retention(length), nil
}

// ParseDays parses whole days such as 400d, or a duration such as 9600h.
func ParseDays(text string) (time.Duration, error) {
	length, err := time.ParseDuration(text)
	if number, ok := strings.CutSuffix(text, "d"); ok {
		var days uint64
		days, err = strconv.ParseUint(number, 10, 15)
		length = time.Duration(days) * 24 * time.Hour
	}
	if err != nil {
		return 0, errors.New("must be a duration such as 400d or 9600h")
	}
	return length, nil
}

// FormatDays returns the text that ParseDays parses, in whole days if possible.
func FormatDays(length time.Duration) string {
	if length%(24*time.Hour) != 0 {
		return length.String()
	}
	return strconv.FormatInt(int64(length/(24*time.Hour)), 10) + "d"
}

// Cutoff returns the instant before which events can be deleted.
func (r Retention) Cutoff(now time.Time) time.Time { return now.Add(-time.Duration(r)) }

// Judge rejects an event if its idempotency key is about to be deleted. Without the key, a repeated event
// could not be distinguished from a new one.
func (r Retention) Judge(e Event, now time.Time) *Rejection {
	if r == 0 || e.IdempotencyKey == "" || !e.At.Before(r.Cutoff(now).Add(retentionMargin)) {
		return nil
	}
	hours := (time.Duration(r) - retentionMargin) / time.Hour
	return reject("timestamp_too_old", "timestamp", "must not be more than %d hours in the past for an event with an idempotency_key", hours)
}

// KeyConflict returns the rejection of an event that reuses an idempotency_key with different content.
func KeyConflict() *Rejection {
	return reject("idempotency_conflict", "idempotency_key", "was already used for another customer or other content; send the event with a new key")
}

// Forgotten returns the rejection of an event that is older than the stored idempotency keys.
func Forgotten() *Rejection {
	return reject("timestamp_too_old", "timestamp", "is older than the idempotency keys that are still stored, so a repeated event could not be detected")
}
