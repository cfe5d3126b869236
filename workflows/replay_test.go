package workflows_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"

	"github.com/odometer-metering/odometer/workflows"
)

// The recorded histories stand for the runs that are open when a new version
// is deployed: it must take each of them over. What is recorded stays; this
// records what is not there:
//
//go:generate go test ../worker -run TestHistories -record

func TestEveryRecordedHistoryReplays(t *testing.T) {
	files, err := filepath.Glob("testdata/histories/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			replayer := worker.NewWorkflowReplayer()
			for _, workflow := range workflows.All() {
				replayer.RegisterWorkflow(workflow)
			}
			require.NoError(t, replayer.ReplayWorkflowHistoryFromJSONFile(quiet, file))
		})
	}
}
