// Package histories checks properties against random histories: sequences of operations, different ones in each run.
package histories

import (
	"flag"
	"os"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// defaultCount is small, because each run tries other histories.
const defaultCount = 10

// Count returns the number of histories for each property: HISTORIES, or defaultCount.
func Count() int {
	n, err := strconv.Atoi(os.Getenv("HISTORIES"))
	if err != nil || n < 1 {
		return defaultCount
	}
	return n
}

var setCount = sync.OnceValue(func() error { return flag.Set("rapid.checks", strconv.Itoa(Count())) })

// Check reports the smallest history that it finds for which the property does not hold.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	if err := setCount(); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, property)
}
