// Command invoice simulates two month ends at the fake of Stripe, for customers of every kind. It uses a real
// database, a real Temporal server and real processes. For each meter it prints the usage, the quantity that
// Stripe counted, the quantity on the final invoices, and the state of the reconciliation.
//
// Operators decide on disputes, and after the second month every difference must be billed, waived or decided
// on by a named operator. The exit status is 1 if a difference remains unresolved, or if Stripe's invoices do
// not add up to our charges.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/odometer-metering/odometer/dev/proc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := proc.Run(ctx, func(t testing.TB) {
		if err := newDrill(t, os.Stdout).run(); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "invoice:", err)
		os.Exit(1)
	}
}
