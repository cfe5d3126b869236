package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// TestEachQuickstartEndsWithTheBill runs the blocks of docs/quickstart.md, each
// language's for a tenant of its own.
func TestEachQuickstartEndsWithTheBill(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs/quickstart.md"))
	require.NoError(t, err)
	files := regexp.MustCompile("(?s)<!-- file: (\\S+) -->\n```\\w+\n(.*?)```\n").FindAllSubmatch(text, -1)
	runs := regexp.MustCompile("(?s)<!-- run: (\\w+) -->\n```sh\n(.*?)```\n").FindAllSubmatch(text, -1)
	require.Len(t, files, 3)
	require.Len(t, runs, 5)
	shown := regexp.MustCompile("(?m)^```\\w+$").FindAll(text, -1)
	require.Len(t, shown, len(files)+len(runs), "each block is run")

	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable})
	address := system.API(t).URL
	checkout := t.TempDir() // what installing leaves behind is not left in this one
	copied, err := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c",
		`cd "$1" && git ls-files -coz --exclude-standard client | xargs -0 cp --parents -t "$2"`, "bash", root, checkout).CombinedOutput()
	require.NoError(t, err, "%s", copied)
	for _, run := range runs {
		t.Run(string(run[1]), func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			for _, file := range files {
				require.NoError(t, os.WriteFile(filepath.Join(folder, string(file[1])), file[2], 0o600))
			}
			_, key := system.Tenant(t)
			command := exec.CommandContext(t.Context(), "bash", "-euc", string(run[2]))
			command.Dir = folder
			command.Env = append(os.Environ(), "ODOMETER_URL="+address, "ODOMETER_KEY="+key, "ODOMETER="+checkout, "GOFLAGS=-mod=mod")
			said, err := command.CombinedOutput()
			require.NoError(t, err, "%s", said)
			require.Regexp(t, `total"?:? ?1250\b`, string(said))
			require.Regexp(t, `amount"?:? ?30\b`, string(said))
			if string(run[1]) == "strict" {
				require.Contains(t, string(said), `did you mean \"value\"?`)
			}
		})
	}
}
