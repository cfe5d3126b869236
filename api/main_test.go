package api

import (
	"os"
	"testing"
	"time"
)

// TestMain lets requests wait for a busy machine. Tests of the waits themselves run in
// simulated time.
func TestMain(m *testing.M) {
	for _, wait := range []*time.Duration{&hashingWait, &processorWait, &largePageWait, &credentialTimeout, &redisTimeout} {
		*wait = 5 * time.Minute
	}
	os.Exit(m.Run())
}
