package main

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKnownFaultsCanBePutBack checks that each text that a known fault replaces still occurs exactly once.
func TestKnownFaultsCanBePutBack(t *testing.T) {
	t.Parallel()
	all, err := readFaults(regexp.MustCompile("."))
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, f := range all {
		files, err := f.files("../../billing")
		require.NoError(t, err)
		require.NotEmpty(t, files, f.Name)
	}
	one, err := readFaults(regexp.MustCompile("^4:"))
	require.NoError(t, err)
	require.Len(t, one, 1)
	_, err = knownFault{Name: "gone", Edits: []edit{{File: "facts.go", Was: "nobody has written this"}}}.files("../../billing")
	require.ErrorContains(t, err, "stands 0 times")
}
