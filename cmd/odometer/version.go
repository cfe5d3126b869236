package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"slices"
)

// printVersion prints the version of the module, or "(devel)", and the Go version. It also prints the commit
// if the build recorded the commit.
func printVersion(out io.Writer) error {
	info, known := debug.ReadBuildInfo()
	if !known {
		return fmt.Errorf("this binary contains no version: it was built without Go modules")
	}
	commit := ""
	if i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs.revision" }); i >= 0 {
		commit = ", commit " + info.Settings[i].Value
	}
	_, err := fmt.Fprintf(out, "odometer %s%s, %s\n", info.Main.Version, commit, info.GoVersion)
	return err
}
