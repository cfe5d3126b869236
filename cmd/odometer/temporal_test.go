package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/proc"
)

func TestTemporalPrepareLengthensTheRetention(t *testing.T) {
	address := os.Getenv("TEST_TEMPORAL_ADDRESS")
	require.NotEmpty(t, address, "run make test, or dev/up test go test ./...")
	namespace := proc.Namespace(t, address)
	t.Setenv("TEMPORAL_ADDRESS", address)
	t.Setenv("TEMPORAL_NAMESPACE", namespace)
	for _, c := range []struct {
		args      []string
		retention string
	}{
		{nil, "90d, raised from 1d"},
		{nil, "90d, unchanged"},
		{[]string{"--retention", "365d"}, "365d, raised from 90d"},
		{nil, "365d, unchanged"},
	} {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), append([]string{"temporal", "prepare"}, c.args...), nothing, nil, &out))
		require.Equal(t, "Namespace         "+namespace+"\nSearch attributes registered\nRetention         "+c.retention+"\n", out.String())
	}
	t.Setenv("TEMPORAL_NAMESPACE", "missing")
	err := run(t.Context(), []string{"temporal", "prepare"}, nothing, nil, io.Discard)
	require.ErrorContains(t, err, "namespace missing does not exist: create it with temporal operator namespace create -n missing --retention 90d")
}

func TestTemporalPrepareRefusesARetentionThatItCannotSet(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"", "90", "-1d", "12h", "forever"} {
		err := run(t.Context(), []string{"temporal", "prepare", "--retention", wrong}, nothing, nil, io.Discard)
		require.ErrorContains(t, err, "retention must be ", "%q", wrong)
	}
	require.ErrorIs(t, run(t.Context(), []string{"temporal", "prepare", "extra"}, nothing, nil, io.Discard), flag.ErrHelp)
}
