package metering_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestAScheduleIsAWordOrACronExpression(t *testing.T) {
	t.Parallel()
	for _, good := range []metering.Schedule{"hourly", "daily", "* * * * *", "*/15 8-18 * * 1-5", "0,30 0 1 1 0", "5-10/2 * 31 12 6"} {
		require.NoError(t, good.Validate("body.schedule"), good)
	}
	for _, bad := range []metering.Schedule{"", "weekly", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *",
		"* * * * 7", "*/0 * * * *", "5-4 * * * *", "a * * * *", "-1 * * * *", "1, * * * *", "@every 1s", "CRON_TZ=UTC 0 * * * *"} {
		require.Error(t, bad.Validate("body.schedule"), bad)
	}
}
