package main

import (
	"context"
	"fmt"
	"io"

	"github.com/odometer-metering/odometer/workflows"
)

// rotateSecrets has every secret sealed under the first of the encryption
// keys, and waits until a worker has done so.
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
