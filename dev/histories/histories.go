// Package histories checks properties against random histories, other ones each time.
package histories

import (
	"flag"
	"os"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// few histories are enough for each run, because every run tries others.
const few = 20

// Count returns the number of histories that a property is checked against: HISTORIES, or few.
func Count() int {
	n, err := strconv.Atoi(os.Getenv("HISTORIES"))
	if err != nil || n < 1 {
		return few
	}
	return n
}

var setCount = sync.OnceValue(func() error { return flag.Set("rapid.checks", strconv.Itoa(Count())) })

// Check fails the test with the smallest history it finds for which the property does not hold.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	if err := setCount(); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, property)
}
