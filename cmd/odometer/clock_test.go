package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClockAheadFileDoesNotMoveClockOfNormalBinary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ahead")
	require.NoError(t, os.WriteFile(path, []byte("1000h"), 0o600))
	t.Setenv("CLOCK_AHEAD_FILE", path)
	began := time.Now()
	require.WithinRange(t, now(), began, time.Now())
}
