// Command outage demonstrates an outage of Stripe on the system that `make up` runs. It sends usage of the demo
// tenant that bills through Stripe, and makes the fake of Stripe fail in three ways. It prints the waiting runs
// during the first failure, and kills the worker during the third.
//
// When all runs have ended, it compares the fake's bills with our totals. The exit status is 1 if any
// differs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := demonstrate(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "outage:", err)
		os.Exit(1)
	}
}

func demonstrate(ctx context.Context) error {
	c, err := configure(".dev/credentials.json")
	if err != nil {
		return err
	}
	temporal, err := client.Dial(client.Options{HostPort: c.TemporalAddress, Logger: quiet{}})
	if err != nil {
		return fmt.Errorf("connect to Temporal: %w", err)
	}
	defer temporal.Close()
	o, err := newOutage(c, temporal, local{}, os.Stdout)
	if err != nil {
		return err
	}
	return o.run(ctx)
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

func configure(path string) (config, error) {
	var c config
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read credentials: %w", err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("read credentials: %w", err)
	}
	return c, nil
}

// worker is the worker process, which the demonstration kills and starts again.
type worker interface {
	Kill(ctx context.Context) error
	Start(ctx context.Context) error
}

// local controls the worker that `make up` runs.
type local struct{}

// Kill kills the worker with SIGKILL, as a crash would, and waits for its end.
func (local) Kill(ctx context.Context) error {
	text, err := os.ReadFile(".dev/run/worker.pid")
	if err != nil {
		return fmt.Errorf("find the worker: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("find the worker: %w", err)
	}
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || !strings.HasPrefix(filepath.Base(program), "odometer") {
		return fmt.Errorf("process %d is not the worker", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the worker: %w", err)
	}
	return eventually(ctx, 10*time.Second, func() error {
		if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil {
			return errors.New("the worker still runs")
		}
		return nil
	})
}

// Start starts the processes of `make up` that are not running.
func (local) Start(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "dev/up", "start").CombinedOutput(); err != nil {
		return fmt.Errorf("start the worker: %w: %s", err, out)
	}
	return nil
}

// quiet is a logger that discards everything.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
