package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/worker"
)

// prepareTemporal registers the search attributes in the namespace TEMPORAL_NAMESPACE and lengthens its
// retention. The worker does not change the retention.
func prepareTemporal(ctx context.Context, env *environment, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("temporal prepare", flag.ContinueOnError)
	text := flags.String("retention", metering.FormatDays(worker.NamespaceRetention),
		"minimum time for which the namespace keeps finished runs; a longer retention stays unchanged")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return flag.ErrHelp
	}
	retention, err := metering.ParseDays(*text)
	if err != nil {
		return metering.Invalid("retention", "%v", err)
	}
	if retention < 24*time.Hour {
		return metering.Invalid("retention", "must be 1d or longer")
	}
	temporal, namespace := env.temporal(env.logger(), nil)
	if err := env.err(); err != nil {
		return err
	}
	defer temporal.Close()
	namespace = cmp.Or(namespace, client.DefaultNamespace)
	before, after, err := worker.PrepareNamespace(ctx, temporal, namespace, retention)
	var missing *serviceerror.NamespaceNotFound
	if errors.As(err, &missing) {
		return fmt.Errorf("namespace %s does not exist: create it with temporal operator namespace create -n %s --retention %s, or correct TEMPORAL_NAMESPACE",
			namespace, namespace, metering.FormatDays(retention))
	}
	if err != nil {
		return err
	}
	change := metering.FormatDays(before) + ", unchanged"
	if after != before {
		change = metering.FormatDays(after) + ", raised from " + metering.FormatDays(before)
	}
	_, err = fmt.Fprintf(out, "Namespace         %s\nSearch attributes registered\nRetention         %s\n", namespace, change)
	return err
}
