package workflows_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"

	"github.com/odometer-metering/odometer/workflows"
)

// TestEveryRecordedHistoryReplays replays the recorded histories. They represent the runs that are open when a new
// version is deployed: the new version must continue each of them. Recorded histories do not change. This command
// records missing ones:
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
