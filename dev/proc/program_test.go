package proc

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFailedCommandRunsItsCleanups(t *testing.T) {
	t.Parallel()
	var order []string
	folder := ""
	err := Run(t.Context(), func(p testing.TB) {
		folder = p.TempDir()
		require.NoError(p, os.WriteFile(filepath.Join(folder, "file"), nil, 0o600))
		p.Cleanup(func() { order = append(order, "first") })
		p.Cleanup(func() {
			order = append(order, "second")
			require.True(p, p.Failed())
			require.ErrorContains(p, p.Context().Err(), "canceled")
			p.Fatal("so does a cleanup, and the others follow")
		})
		require.Equal(p, 1, 2, "it fails")
		order = append(order, "never")
	})
	require.ErrorContains(t, err, "it fails")
	require.ErrorContains(t, err, "so does a cleanup")
	require.Equal(t, []string{"second", "first"}, order)
	require.NoDirExists(t, folder)
	require.NoError(t, Run(t.Context(), func(testing.TB) {}))
}
