package api_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	codeSpan = regexp.MustCompile("`[^`]*`")
	// unmarked matches a name with an underscore, a request or a text in single quotes.
	unmarked = regexp.MustCompile(`[a-z0-9]_[a-z0-9]|\b(?:GET|POST|PUT|PATCH|DELETE) /|\B'[^\s']`)
	// lowerStart matches a sentence or a list item that begins with a lower-case word: a value or a field that is
	// not marked as code.
	lowerStart = regexp.MustCompile(`(?:^|[.?!]\s+|\n- )[a-z]`)
)

// TestDescriptionsMarkFieldNamesAsCode checks that descriptions mark names of fields and values as code, because such
// names can read as English words.
func TestDescriptionsMarkFieldNamesAsCode(t *testing.T) {
	t.Parallel()
	v31, _, err := documents()
	require.NoError(t, err)
	var document any
	require.NoError(t, json.Unmarshal(v31, &document))
	found := descriptionsIn(document)
	require.NotEmpty(t, found)
	for _, description := range found {
		text := codeSpan.ReplaceAllString(description, "X")
		require.NotRegexp(t, unmarked, text, description)
		require.NotRegexp(t, lowerStart, text, "write the name in single quotes, or begin with a capital: %s", description)
	}
}

// descriptionsIn returns the descriptions of a part of the document. A field can be named
// "description" too.
func descriptionsIn(part any) (found []string) {
	switch part := part.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(part)) {
			if text, ok := part[key].(string); ok && key == "description" {
				found = append(found, text)
			}
			if key != "example" && key != "examples" {
				found = append(found, descriptionsIn(part[key])...)
			}
		}
	case []any:
		for _, item := range part {
			found = append(found, descriptionsIn(item)...)
		}
	}
	return found
}
