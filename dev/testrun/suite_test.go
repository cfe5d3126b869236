package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPackageRunsIfItHasSelectedTest(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a_test.go")
	require.NoError(t, os.WriteFile(file, []byte("func TestMain(m *testing.M) {\nfunc TestDrillOne(t *testing.T) {\nfunc helpTestTwo(t *testing.T) {\n"), 0o600))
	for selected, want := range map[selection]bool{
		{}:                                  true,
		{skip: "^TestDrill"}:                false,
		{run: "^Test(Drill|Property)"}:      true,
		{run: "^TestDrillOne$/^Case$"}:      true,
		{run: "TestTwo"}:                    false,
		{run: "TestDrill", skip: "TestTwo"}: true,
	} {
		got, err := selected.inFiles([]string{file})
		require.NoError(t, err)
		require.Equal(t, want, got, "%+v", selected)
	}
	got, err := selection{}.inFiles(nil)
	require.NoError(t, err)
	require.False(t, got, "a package without tests")
	_, err = selection{run: "("}.inFiles([]string{file})
	require.ErrorContains(t, err, "-run: ")
	_, err = selection{skip: "("}.inFiles([]string{file})
	require.ErrorContains(t, err, "-skip: ")
}
