package main

import (
	"errors"
	"flag"
	"io"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/registry"
)

// printDocument prints the OpenAPI document in the form that the flags select.
func printDocument(out io.Writer, args []string) error {
	flags := flag.NewFlagSet("openapi", flag.ContinueOnError)
	downgrade := flags.Bool("3.0", false, "print the document in OpenAPI 3.0.3 instead of 3.1")
	quoted := flags.Bool("strings", false, "print the document for clients that send the header Odometer-Numbers: string")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *downgrade && *quoted {
		return errors.New("-strings and -3.0 cannot be combined; omit one of them")
	}
	kinds := registry.New(providers.Guard{}, "")
	if *quoted {
		document, err := api.StringsDocument(kinds)
		if err != nil {
			return err
		}
		_, err = out.Write(document)
		return err
	}
	v31, v30, err := api.Documents(kinds)
	if err != nil {
		return err
	}
	if *downgrade {
		v31 = v30
	}
	_, err = out.Write(v31)
	return err
}
