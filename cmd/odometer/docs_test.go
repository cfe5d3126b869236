package main_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

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
	command := exec.CommandContext(t.Context(), "go", "run", "-C", "../../dev/browser", "./docs", system.API(t).URL)
	command.Env = append(os.Environ(), "ODOMETER_KEY="+key)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
