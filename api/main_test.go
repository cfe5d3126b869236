package api

import (
	"os"
	"testing"
	"time"

	"github.com/odometer-metering/odometer/db/dbtest"
)

// TestMain extends the waits of requests, so that tests pass on a busy machine. Tests of the waits themselves run
// in simulated time.
func TestMain(m *testing.M) {
	for _, wait := range []*time.Duration{&hashingWait, &processorWait, &heavyWait, &credentialTimeout, &redisTimeout, &issuerTimeout, &warningsWait} {
		*wait = dbtest.Deadline
	}
	os.Exit(m.Run())
}
