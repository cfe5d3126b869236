// Command invoice lets a month end at the fake of Stripe for customers of every
// kind, with a real database, a real Temporal server and processes of ours, and
// shows meter by meter what was used, what Stripe counted, what its final invoices
// bill, and how that stands. Operators decide on what is disputed, a second month
// passes, and then every difference has to be billed, waived or decided on by
// somebody with a name. It ends with 1 where one is not, or where Stripe's invoices
// do not add up to our charges.
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
