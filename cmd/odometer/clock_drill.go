//go:build drill

package main

import (
	"os"
	"strings"
	"time"
)

// now is the time, ahead by the duration in the file that CLOCK_AHEAD_FILE names.
// Months pass for a binary with this tag, which tests build for themselves; no
// other binary has it.
func now() time.Time { return time.Now().Add(ahead()) }

// aheadOf returns how far now is ahead of the database's time. With DATABASE_CLOCK_FOLLOWS=true
// months pass for the database too.
func aheadOf(database time.Time) time.Duration {
	if os.Getenv("DATABASE_CLOCK_FOLLOWS") == "true" {
		return time.Since(database)
	}
	return now().Sub(database)
}

func ahead() time.Duration {
	text, err := os.ReadFile(os.Getenv("CLOCK_AHEAD_FILE"))
	if err != nil {
		panic(err)
	}
	ahead, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		panic(err)
	}
	return ahead
}
