package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEachSettingIsDocumentedWithItsReaders compares docs/operating/configuration.md with the
// settings that each command reads until it reports the missing ones.
func TestEachSettingIsDocumentedWithItsReaders(t *testing.T) {
	t.Parallel()
	readers, required := make(map[string][]string), make(map[string]string)
	for command, flags := range map[string][]string{
		"api": nil, "worker": nil, "migrate": nil, "restored": nil, "rotate-secrets": nil,
		"temporal prepare": nil, "audit verify": nil, "tenant create": {"--name", "Acme"},
	} {
		read := make(map[string]bool)
		err := run(t.Context(), append(strings.Fields(command), flags...), func(name string) string {
			read[name] = true
			if name == "LOG_LEVEL" {
				return "none" // so that each command ends before it connects
			}
			return ""
		}, strings.NewReader(""), io.Discard)
		for name := range read {
			readers[name] = append(readers[name], command)
			required[name] = "no"
		}
		for _, name := range regexp.MustCompile(`(?m)^  (\S+) is required`).FindAllStringSubmatch(err.Error(), -1) {
			required[name[1]] = "yes"
		}
	}
	var want, got []string
	for name := range maps.Keys(readers) {
		slices.Sort(readers[name])
		want = append(want, fmt.Sprintf("%s %s %s", name, required[name], strings.Join(readers[name], ", ")))
	}
	text, err := os.ReadFile("../../docs/operating/configuration.md")
	require.NoError(t, err)
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| [^|]* \\| (yes|no) \\| ([^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
		commands := strings.Split(strings.ReplaceAll(row[3], "`", ""), ", ")
		slices.Sort(commands)
		got = append(got, fmt.Sprintf("%s %s %s", row[1], row[2], strings.Join(commands, ", ")))
	}
	require.ElementsMatch(t, want, got)
}
