package main

import (
	"fmt"
	"io"
	"runtime/debug"
)

// printVersion says what the binary was built from: the module's version, or
// "(devel)", and the commit where the build knew it.
func printVersion(out io.Writer) error {
	info, known := debug.ReadBuildInfo()
	if !known {
		return fmt.Errorf("this binary was built without modules: nothing says its version")
	}
	text := "odometer " + info.Main.Version
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			text += ", commit " + setting.Value
		}
	}
	_, err := fmt.Fprintln(out, text+", "+info.GoVersion)
	return err
}
