package main_test

import (
	"testing"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// TestDrillTheDocsAreUsedInABrowser lists the operations, authorizes, and executes an operation in Chromium.
// Chromium reports no error and no request to another origin.
func TestDrillTheDocsAreUsedInABrowser(t *testing.T) {
	t.Parallel()
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable})
	_, key := system.Tenant(t)
	runInBrowser(t, "docs", "ODOMETER_URL="+system.API(t).URL, "ODOMETER_KEY="+key)
}
