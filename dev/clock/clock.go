// Package clock is the source of time for tests, so that make test-dates can run them on another day. Only
// tests use it.
package clock

import (
	"fmt"
	"os"
	"time"
)

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
