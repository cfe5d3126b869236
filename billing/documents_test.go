package billing

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireTable requires that a page has the table below the heading, after any prose. With -update, it writes the table.
func requireTable(t *testing.T, file, heading, table string) {
	t.Helper()
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	before, section, found := strings.Cut(string(page), heading+"\n")
	require.True(t, found, heading)
	section, after, more := strings.Cut(section, "\n## ")
	prose, _, _ := strings.Cut(section, "\n| ")
	want := before + heading + "\n" + prose + "\n" + table
	if more {
		want += "\n## " + after
	}
	if flag.Lookup("update").Value.String() == "true" {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(page), "go generate ./billing writes the table")
}
