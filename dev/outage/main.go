// Command outage demonstrates an outage of Stripe on the system that `make up` runs. It sends usage of the demo
// tenant that bills through Stripe, and makes the fake of Stripe fail in three ways. It prints the waiting runs
// during the first failure, and kills the worker during the third.
//
// When all runs have ended, it compares the fake's bills with our totals. The exit status is 1 if any
// differs.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	temporal "go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

func main() {
	proc.Main("outage", func(t testing.TB) {
		c := configure(t, ".dev/credentials.json")
		o := newOutage(proc.Drill{TB: t, Out: os.Stdout}, c, proc.Temporal(t, c.TemporalAddress, temporal.DefaultNamespace), local{})
		o.timeLimit = 3 * time.Minute
		o.run()
	})
}

// config contains the fields of the file that `make up` writes.
type config struct {
	BaseURL         string `json:"base_url"`
	TenantID        string `json:"stripe_tenant_id"`
	AdminKey        string `json:"stripe_admin_key"`
	StripeURL       string `json:"stripe_fake_url"`
	TemporalAddress string `json:"temporal_address"`
	TemporalUIURL   string `json:"temporal_ui_url"`
}

// configure reads the file.
func configure(t testing.TB, path string) (c config) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &c), path)
	return c
}

// worker is the worker process, which the demonstration kills and starts again.
type worker interface {
	Kill(t testing.TB)
	Start(t testing.TB)
}

// local controls the worker that `make up` runs.
type local struct{}

// Kill kills the worker with SIGKILL, as a crash would, and waits for its end.
func (local) Kill(t testing.TB) {
	t.Helper()
	text, err := os.ReadFile(".dev/run/worker.pid")
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	file := fmt.Sprintf("/proc/%d/exe", pid)
	program, err := os.Readlink(file)
	require.NoError(t, err)
	require.Regexp(t, "^odometer", filepath.Base(program), "process %d is not the worker", pid)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	dbtest.Within(t, 10*time.Second, func() error {
		if _, err := os.Readlink(file); err == nil {
			return fmt.Errorf("the worker still runs as process %d", pid)
		}
		return nil
	})
}

// Start starts the processes of `make up` that are not running.
func (local) Start(t testing.TB) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "dev/up", "start").CombinedOutput()
	require.NoError(t, err, string(out))
}
