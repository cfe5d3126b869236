// Package clock is the source of time for tests, so that make test-dates can run them on another day. Only
// tests use it.
package clock

import (
	"fmt"
	"os"
	"time"
)

// variable is the environment variable with the simulated time.
const variable = "TEST_DATE"

var offset = offsetOf(os.Getenv(variable))

// Now returns the current time. If TEST_DATE is set to an RFC 3339 instant, the time is shifted as if the
// test binary had started at that instant.
func Now() time.Time {
	// The variable is read in each call, because go test's cache tracks only variables that tests read
	// while they run.
	if os.Getenv(variable) == "" {
		return time.Now()
	}
	return time.Now().Add(offset)
}

// Month returns an instant in the middle of a calendar month in UTC: the month of now if months is 0, the next
// month if it is 1, the previous month if it is -1. AddDate does not do that at the end of a month: 31 March
// minus a month is 3 March.
func Month(now time.Time, months int) time.Time {
	year, month, _ := now.UTC().Date()
	return time.Date(year, month+time.Month(months), 15, 12, 0, 0, 0, time.UTC)
}

// offsetOf returns the difference between a date and now. It panics if the date is malformed.
func offsetOf(date string) time.Duration {
	if date == "" {
		return 0
	}
	start, err := time.Parse(time.RFC3339, date)
	if err != nil {
		panic(fmt.Sprintf("%s: %s", variable, err))
	}
	return time.Until(start)
}
