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

// TestACheckoutOfTheTypeScriptClientIsInstalled copies the client's files that git does not ignore, and imports
// the client from a program in another folder.
func TestACheckoutOfTheTypeScriptClientIsInstalled(t *testing.T) {
	t.Parallel()
	checkout, program := t.TempDir(), t.TempDir()
	run := func(folder, script string) string {
		command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script, "bash", checkout)
		command.Dir = folder
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	run("../..", `git ls-files -coz --exclude-standard client/typescript | xargs -0 cp --parents -t "$1"`)
	run(program, `npm init --yes >/dev/null && npm install --no-audit --no-fund "$1/client/typescript"`)
	out := run(program, `node --input-type=module -e 'import { createClient } from "@odometer-metering/client"; console.log(typeof createClient)'`)
	require.Equal(t, "function\n", out)
}
