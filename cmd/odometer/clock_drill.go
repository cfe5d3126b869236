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
func now() time.Time { return time.Now().Add(aheadIn("CLOCK_AHEAD_FILE")) }

// aheadOf returns how far now is ahead of the database's time. Where DATABASE_CLOCK_AHEAD_FILE
// names the file that CLOCK_AHEAD_FILE does, months pass for the database too; it is read once,
// because it may change at any moment.
func aheadOf(database time.Time) time.Duration {
	wrong := aheadIn("CLOCK_AHEAD_FILE")
	if os.Getenv("DATABASE_CLOCK_AHEAD_FILE") == os.Getenv("CLOCK_AHEAD_FILE") {
		wrong = 0
	}
	return time.Since(database) + wrong
}

func aheadIn(variable string) time.Duration {
	text, err := os.ReadFile(os.Getenv(variable))
	if err != nil {
		panic(err)
	}
	ahead, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		panic(err)
	}
	return ahead
}
