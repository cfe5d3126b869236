package metering_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestAScheduleIsAWordOrACronExpression(t *testing.T) {
	t.Parallel()
	for _, good := range []metering.Schedule{"hourly", "daily", "* * * * *", "*/15 8-18 * * 1-5", "0,30 0 1 1 0", "5-10/2 * 31 12 6",
		"5/15 * * * *", " 0 0  * * * "} {
		require.NoError(t, good.Validate("body.schedule"), good)
	}
	for _, bad := range []metering.Schedule{"", "weekly", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *",
		"* * * * 7", "*/0 * * * *", "5-4 * * * *", "a * * * *", "-1 * * * *", "1, * * * *", "@every 1s", "CRON_TZ=UTC 0 * * * *",
		",1 * * * *", "1,,2 * * * *", ", * * * *", "TZ=UTC", "@daily", "* * * * MON", "* * ? * *", "*-5 * * * *", "+5 * * * *", "1-2-3 * * * *",
		"*/5/5 * * * *", "*/ * * * *", "*/4294967297 * * * *", "99999999999999999999 * * * *", "0 0 * * *\x00", "0 0 * * * # at night"} {
		require.Error(t, bad.Validate("body.schedule"), bad)
	}
}
