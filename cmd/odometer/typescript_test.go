package main_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// TestTheTypeScriptClientKeepsEveryDigit runs the client's own tests in Node
// against a running API.
func TestTheTypeScriptClientKeepsEveryDigit(t *testing.T) {
	t.Parallel()
	const root, folder = "../..", "client/typescript"
	out, err := exec.CommandContext(t.Context(), "make", "-C", root, folder+"/node_modules").CombinedOutput()
	require.NoError(t, err, "%s", out)

	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable})
	_, key := system.Tenant(t)
	command := exec.CommandContext(t.Context(), "npm", "test", "--silent", "--prefix", root+"/"+folder)
	command.Env = append(os.Environ(), "ODOMETER_URL="+system.API(t).URL, "ODOMETER_API_KEY="+key)
	out, err = command.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
