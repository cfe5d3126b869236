package main_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// TestThePythonClientKeepsEveryDigit runs the client's own tests against a
// running API.
func TestThePythonClientKeepsEveryDigit(t *testing.T) {
	t.Parallel()
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable})
	_, key := system.Tenant(t)
	command := exec.CommandContext(t.Context(), "../../dev/python", "python", "-B", "-m", "pytest")
	command.Dir = "../../client/python"
	command.Env = append(os.Environ(), "ODOMETER_URL="+system.API(t).URL, "ODOMETER_API_KEY="+key)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
