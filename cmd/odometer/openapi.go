package main

import (
	"flag"
	"io"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/registry"
)

func printDocument(out io.Writer, args []string) error {
	flags := flag.NewFlagSet("openapi", flag.ContinueOnError)
	downgrade := flags.Bool("3.0", false, "print the document in OpenAPI 3.0.3 instead of 3.1")
	if err := flags.Parse(args); err != nil {
		return err
	}
	v31, v30, err := api.Documents(registry.New(providers.Guard{}, ""))
	if err != nil {
		return err
	}
	if *downgrade {
		v31 = v30
	}
	_, err = out.Write(v31)
	return err
}
