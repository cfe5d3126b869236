package odometer_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Alert rules and the dashboard read metrics that the code has.
func TestMonitoringReadsMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	var declared strings.Builder
	for _, folder := range []string{"api", "activities", "worker"} {
		text, err := os.ReadFile(filepath.Join(folder, "metrics.go"))
		require.NoError(t, err)
		declared.Write(text)
	}
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile(filepath.Join("docs", "monitoring", file))
		require.NoError(t, err)
		names := regexp.MustCompile(`\bodometer_[a-z_]+`).FindAllString(string(text), -1)
		require.Greater(t, len(names), 10)
		for _, name := range names {
			series := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
			require.Contains(t, declared.String(), `"`+series+`"`, file)
		}
	}
}
