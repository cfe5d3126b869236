package main_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// block is a fenced block of a page. Mark is the comment before it: "run" for a shell block to run, "file" for
// the content of a file. A block without a mark shows the output of the block before it.
type block struct{ Mark, Name, Text string }

var fenced = regexp.MustCompile("(?s)(?:<!-- (file|run): (\\S+) -->\n)?```\\w+\n(.*?)```\n")

// blocks returns the fenced blocks of a page that name a language.
func blocks(t *testing.T, path string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, match := range fenced.FindAllSubmatch(text, -1) {
		all = append(all, block{string(match[1]), string(match[2]), string(match[3])})
	}
	return all
}

// marked returns the blocks with a mark.
func marked(all []block, mark string) (found []block) {
	for _, b := range all {
		if b.Mark == mark {
			found = append(found, b)
		}
	}
	return found
}

// runScript runs a script in a new folder with the files and returns its output.
func runScript(t *testing.T, script string, files []block, env ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, file := range files {
		require.NoError(t, os.WriteFile(filepath.Join(folder, file.Name), []byte(file.Text), 0o600))
	}
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	command.Dir = folder
	command.Env = append(os.Environ(), env...)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// clients copies the clients of the repository to a new folder and returns its path, so that installing a
// client changes nothing in the repository.
func clients(t *testing.T) string {
	t.Helper()
	checkout := t.TempDir()
	copied, err := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c",
		`cd ../.. && git ls-files -coz --exclude-standard client | xargs -0 cp --parents -t "$1"`, "bash", checkout).CombinedOutput()
	require.NoError(t, err, "%s", copied)
	return checkout
}

// TestEachQuickstartPrintsItsTotal runs the blocks of docs/quickstart.md, each with its own tenant.
func TestEachQuickstartPrintsItsTotal(t *testing.T) {
	t.Parallel()
	all := blocks(t, "../../docs/quickstart.md")
	files, runs := marked(all, "file"), marked(all, "run")
	require.Len(t, files, 3)
	require.Len(t, runs, 5)
	require.Len(t, all, len(files)+len(runs), "each block is run")

	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable})
	address := system.API(t).URL
	checkout := clients(t)
	for _, run := range runs {
		t.Run(run.Name, func(t *testing.T) {
			t.Parallel()
			_, key := system.Tenant(t)
			said := runScript(t, run.Text, files, "ODOMETER_URL="+address, "ODOMETER_KEY="+key, "ODOMETER="+checkout, "GOFLAGS=-mod=mod")
			require.Regexp(t, `total"?:? ?1250\b`, said)
			require.Regexp(t, `amount"?:? ?30\b`, said)
			if run.Name == "strict" {
				require.Contains(t, said, `did you mean \"value\"?`)
			}
		})
	}
}

// TestEachGuidePrintsTheShownOutput runs the blocks of each page of docs/guides in order, in one shell and with one
// tenant per page. The blocks of the index run first, because they define the functions that the pages use.
func TestEachGuidePrintsTheShownOutput(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/guides/*.md")
	require.NoError(t, err)
	index := slices.IndexFunc(pages, func(path string) bool { return filepath.Base(path) == "README.md" })
	require.GreaterOrEqual(t, index, 0)
	setUp := blocks(t, pages[index])
	require.NotEmpty(t, setUp)
	pages = slices.Delete(pages, index, index+1)
	require.NotEmpty(t, pages)

	stripe := httptest.NewServer(stripetest.New(stripetest.Options{}))
	t.Cleanup(stripe.Close)
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{
		DatabaseURL: url, TemporalAddress: os.Getenv("TEST_TEMPORAL_ADDRESS"), Env: []string{"STRIPE_API_BASE=" + stripe.URL},
	})
	api := system.API(t)
	system.Worker(t)
	checkout := clients(t)
	for _, page := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			all := blocks(t, page)
			require.NotEmpty(t, marked(all, "run"), "a guide has a block that runs")
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			require.Equal(t, 2*len(all), strings.Count(string(text), "```"), "each block is run, or shows what one prints")
			_, port, _ := strings.Cut(proc.FreeAddress(t), ":")
			_, key := system.Tenant(t)
			all = append(slices.Clone(setUp), all...)
			printed := runScript(t, guideScript(all), marked(all, "file"),
				"ODOMETER_URL="+api.URL, "ODOMETER_KEY="+key, "STRIPE_URL="+stripe.URL, "PORT="+port, "ODOMETER="+checkout)
			requireShown(t, all, printed)
		})
	}
}

// guideScript returns a script of the blocks that run. It prints the index of each block before its output.
func guideScript(all []block) string {
	var script strings.Builder
	for i, b := range all {
		if b.Mark == "run" {
			fmt.Fprintf(&script, "echo '--- block %d'\n%s", i, b.Text)
		}
	}
	return script.String()
}

// requireShown checks that the output of each block that runs contains the block without a mark after it. In the
// text of that block, "…" stands for anything, and white space does not count. The output may contain an error
// of the API only if the page shows an error.
func requireShown(t *testing.T, all []block, printed string) {
	t.Helper()
	outputs := strings.Split(printed, "--- block ")[1:]
	for i, b := range all {
		if b.Mark != "run" {
			continue
		}
		_, output, _ := strings.Cut(outputs[0], "\n")
		outputs = outputs[1:]
		var shown string
		if i+1 < len(all) && all[i+1].Mark == "" {
			shown = all[i+1].Text
		}
		var pattern strings.Builder
		for piece := range strings.SplitSeq(shown, "…") {
			if pattern.Len() > 0 {
				pattern.WriteString(".*")
			}
			pattern.WriteString(regexp.QuoteMeta(withoutSpace(piece)))
		}
		require.Regexp(t, pattern.String(), withoutSpace(output), "the output of\n%s", b.Text)
		if !strings.Contains(shown, `"code"`) {
			require.NotContains(t, output, "/errors/", "the output of\n%s", b.Text)
		}
	}
}

func withoutSpace(text string) string { return strings.Join(strings.Fields(text), "") }
