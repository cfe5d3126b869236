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
	for _, wait := range []*time.Duration{
		&hashingWait, &processorWait, &heavyWait, &credentialTimeout, &redisTimeout, &issuerTimeout, &warningsWait,
		&compareTimeout, &checkTimeout, &auditTimeout, &searchTime, &omittedAfter, &bodyTime, &answerTime,
	} {
		*wait = dbtest.Deadline
	}
	redisWindow = 3 * dbtest.Deadline // tests advance the time by up to two thirds of a window
	os.Exit(m.Run())
}
