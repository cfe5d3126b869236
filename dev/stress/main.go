// Command stress keeps every core busy while it runs a command, and exits with the command's status: stress
// COMMAND ARG…
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// maxDuration ends the load even if the command still runs.
const maxDuration = 3 * time.Hour

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: stress COMMAND ARG…")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	busy, end := context.WithTimeout(ctx, maxDuration)
	for range runtime.NumCPU() {
		go work(busy)
	}
	command := exec.CommandContext(ctx, os.Args[1], os.Args[2:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	err := command.Run()
	end()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(1)
	}
}

// work computes until ctx ends.
func work(ctx context.Context) {
	var sum [sha256.Size]byte
	for ctx.Err() == nil {
		for range 10_000 {
			sum = sha256.Sum256(sum[:])
		}
	}
}
