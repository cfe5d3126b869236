// Command invoice simulates two month ends at the fake of Stripe, for customers of every kind. It uses a real
// database, a real Temporal server and real processes. For each meter it prints the usage, the quantity that
// Stripe counted, the quantity on the final invoices, and the state of the reconciliation.
//
// Operators decide on disputes, and after the second month every difference must be billed, waived or decided
// on by a named operator. The exit status is 1 if a difference remains unresolved, or if Stripe's invoices do
// not add up to our charges.
package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/proc"
)

func main() {
	proc.Main("invoice", func(t testing.TB) { require.NoError(t, newDrill(t, os.Stdout).run()) })
}
