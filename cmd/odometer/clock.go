//go:build !drill

package main

import "time"

// now is the time.
func now() time.Time { return time.Now() }
