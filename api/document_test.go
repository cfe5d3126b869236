package api_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
)

func TestTheCommittedDocumentsAreCurrent(t *testing.T) {
	t.Parallel()
	v31, v30, err := api.Documents()
	require.NoError(t, err)
	for name, current := range map[string][]byte{"openapi.json": v31, "openapi-3.0.json": v30} {
		committed, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(current), string(committed), "%s is stale: run make generate", name)
	}
}
