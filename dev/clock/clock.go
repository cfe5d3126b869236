// Package clock is where tests get the time from, so that make test-dates can
// run them on another day. Only tests use it.
package clock

import (
	"fmt"
	"os"
	"time"
)

const variable = "TEST_DATE"

var offset = offsetOf(os.Getenv(variable))

// Now is the time, moved so that the test binary started at TEST_DATE, an
// instant as in RFC 3339, where that is set.
func Now() time.Time {
	// Asked each time: go test's cache knows only what tests read while they run.
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
