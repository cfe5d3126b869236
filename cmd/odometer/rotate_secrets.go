package main

import (
	"context"
	"fmt"
	"io"

	"github.com/odometer-metering/odometer/workflows"
)

// rotateSecrets starts a workflow that encrypts every stored secret with the first encryption key, and
// waits for its end.
func rotateSecrets(ctx context.Context, env *environment, out io.Writer) error {
	keyring := env.keyring()
	temporal, _ := env.temporal(env.logger(), nil)
	if err := env.err(); err != nil {
		return err
	}
	defer temporal.Close()
	done, err := workflows.RunRotateSecrets(ctx, temporal, keyring.First())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "Secrets sealed again      %d\nSecrets that did not open %d\n", done.Sealed, done.Unopened)
	return err
}
