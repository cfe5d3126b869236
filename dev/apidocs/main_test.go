package main

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// committed returns the OpenAPI document and the pages in the repository.
func committed(t *testing.T) (openAPI, map[string]string) {
	t.Helper()
	encoded, err := os.ReadFile("../../api/openapi.json")
	require.NoError(t, err)
	document, texts, err := readInput(encoded, "../../docs/api")
	require.NoError(t, err)
	return document, texts
}

func TestAPIPagesAreCurrent(t *testing.T) {
	t.Parallel()
	document, texts := committed(t)
	pages, err := generate(document, texts)
	require.NoError(t, err)
	for name, text := range pages {
		require.Equal(t, text, texts[name], "%s is not current: run make generate", name)
	}
}

// TestEachOperationAndMessageIsOnOnePage checks the error after each change of a page that puts a part on no page, on
// two pages or in the wrong form.
func TestEachOperationAndMessageIsOnOnePage(t *testing.T) {
	t.Parallel()
	document, committed := committed(t)
	for name, c := range map[string]struct{ page, old, new, message string }{
		"operation on no page":   {"usage.md", "operations /v1/usage ", "operations /v1/usage/daily ", "GET /v1/usage is on no page"},
		"path on two pages":      {"usage.md", "operations /v1/usage ", "operations /v1/usage /v1/events ", "/v1/events is on events.md and on usage.md"},
		"path without operation": {"usage.md", "operations /v1/usage ", "operations /v1/usage /v1/gone ", "usage.md: no operation has the path /v1/gone"},
		"message on no page":     {"provider.md", "usage.statement ping", "ping", "the message usage.statement is on the pages []"},
		"message on two pages":   {"webhooks.md", "generated: messages ", "generated: messages ping ", "the message ping is on the pages [provider.md webhooks.md]"},
		"unknown message":        {"webhooks.md", "generated: messages ", "generated: messages gone ", "webhooks.md: there is no message gone"},
		"page without a link":    {"README.md", "](usage.md)", "]()", "README.md does not link to usage.md"},
		"objects without marker": {"usage.md", "generated: objects", "objects", "usage.md needs the marker <!-- generated: objects -->"},
		"unknown marker":         {"errors.md", "generated: errors", "generated: faults", `nothing is generated for the marker "faults"`},
		"marker without end":     {"errors.md", "generated: objects -->\n", "generated: objects -->\n<!-- generated: errors -->\n", "lacks its <!-- end -->"},
		"equal headings":         {"usage.md", "## Operations", "# Usage", `usage.md has two headings "Usage"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			texts := maps.Clone(committed)
			require.Contains(t, texts[c.page], c.old)
			texts[c.page] = strings.Replace(texts[c.page], c.old, c.new, 1)
			_, err := generate(document, texts)
			require.ErrorContains(t, err, c.message)
		})
	}
}

func TestLongTextsAreWrapped(t *testing.T) {
	t.Parallel()
	long := strings.TrimSpace(strings.Repeat("word ", 40))
	lines := strings.Split(wrapped("- "+long), "\n")
	for _, line := range lines {
		require.LessOrEqual(t, len(line), width)
	}
	require.True(t, strings.HasPrefix(lines[1], "  word"))
	require.Equal(t, strings.Repeat("w", width)+" -\n", wrapped(strings.Repeat("w", width)+" -"), "a line that begins with - is a list")
	require.Equal(t, "one\n\ntwo\n", wrapped("one\n\ntwo"))
}

func TestListInTableCellHasOneLinePerItem(t *testing.T) {
	t.Parallel()
	require.Equal(t, "The state:<br>• `a`: one \\| two.<br>• `b`: three.<br>Default: `a`.", cell("The state:\n\n- `a`: one | two.\n- `b`: three.\nDefault: `a`."))
	require.Equal(t, "One. Two.", cell("One.\n\nTwo."))
}
