// Command limits demonstrates a hard quota. An alert warns at 80 % of the quota. The server stops the customer
// at 100 %, and serves the customer again in the next hour. It uses a real database, an API and a worker
// process, a webhook and the server of client/examples. The exit status is 1 if a step has a different result.
package main

import (
	"os"
	"testing"

	"github.com/odometer-metering/odometer/dev/proc"
)

func main() {
	proc.Main("limits", func(t testing.TB) { newDrill(t, os.Stdout).run() })
}
