//go:build drill

package main

import (
	"os"
	"strings"
	"time"
)

// now returns the current time plus the duration in the file CLOCK_AHEAD_FILE, so that tests can simulate
// months. This file is only part of binaries that tests build with the tag drill.
func now() time.Time { return time.Now().Add(ahead()) }

// aheadOf returns how far now is ahead of the database's time. With DATABASE_CLOCK_FOLLOWS=true, it treats
// the database's clock as shifted by the same duration.
func aheadOf(database time.Time) time.Duration {
	if os.Getenv("DATABASE_CLOCK_FOLLOWS") == "true" {
		return time.Since(database)
	}
	return now().Sub(database)
}

// ahead returns the duration in the file CLOCK_AHEAD_FILE.
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
