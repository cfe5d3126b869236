package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDrillCustomerIsStoppedAtLimit(t *testing.T) {
	t.Parallel()
	var printed bytes.Buffer
	newDrill(t, io.MultiWriter(&printed, t.Output())).run()
	require.Contains(t, printed.String(), "warned at 80 %, stopped at 100 %, and served again in the next hour: OK")
	require.Regexp(t, `call 8 +8 +2 +served\n.*alert.triggered +8 +2 +warned: 80 % is used`, printed.String())
	require.Regexp(t, `call 11 +10 +0 +429, Retry-After: \d+`, printed.String())
}
