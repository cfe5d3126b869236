//go:build !drill

package main

import "time"

// now returns the current time.
func now() time.Time { return time.Now() }

// aheadOf returns how far now is ahead of the database's time.
func aheadOf(database time.Time) time.Duration { return now().Sub(database) }
