package metering_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestAScheduleIsAWordADurationOrACronExpression(t *testing.T) {
	t.Parallel()
	for _, good := range []metering.Schedule{"hourly", "daily", "* * * * *", "*/15 8-18 * * 1-5", "0,30 0 1 1 0", "5-10/2 * 31 12 6",
		"5/15 * * * *", " 0 0  * * * ", "5m", "15m", "90m", "1h30m", "1.5h", "300s", "24h", "1440m"} {
		require.NoError(t, good.Validate("body.schedule"), good)
	}
	for _, bad := range []metering.Schedule{"", "weekly", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *",
		"* * * * 7", "*/0 * * * *", "5-4 * * * *", "a * * * *", "-1 * * * *", "1, * * * *", "@every 1s", "CRON_TZ=UTC 0 * * * *",
		",1 * * * *", "1,,2 * * * *", ", * * * *", "TZ=UTC", "@daily", "* * * * MON", "* * ? * *", "*-5 * * * *", "+5 * * * *", "1-2-3 * * * *",
		"*/5/5 * * * *", "*/ * * * *", "*/4294967297 * * * *", "99999999999999999999 * * * *", "0 0 * * *\x00", "0 0 * * * # at night",
		"4m", "4m59s", "5m1s", "15m0.5s", "24h1m", "1441m", "-15m", "0", "0m", "1m", "15", "15 m", "15min", "1d", " 15m", "15m ", "15m\x00",
		"9999999999h", "every 15m", metering.Schedule("5." + strings.Repeat("0", 300) + "m")} {
		require.Error(t, bad.Validate("body.schedule"), bad)
	}
}

func TestScheduleThatNeverRunsIsRefused(t *testing.T) {
	t.Parallel()
	for _, never := range []metering.Schedule{"0 0 31 2 *", "0 0 30 2 *", "* * 31 4,6,9,11 *"} {
		require.EqualError(t, never.Validate("body.schedule"), "body.schedule must match a date that exists; none of the chosen months has the chosen day", never)
	}
	for _, rarely := range []metering.Schedule{"0 0 29 2 *", "0 0 31 1-2 *", "0 0 31 2 1"} {
		require.NoError(t, rarely.Validate("body.schedule"), rarely)
	}
}

func TestScheduleErrorNamesAllowedForms(t *testing.T) {
	t.Parallel()
	require.EqualError(t, metering.Schedule("1m").Validate("body.schedule"), "body.schedule must be hourly, daily, "+
		"a duration of whole minutes from 5m to 24h, such as 15m, or a cron expression of five fields of numbers, such as */15 8-18 * * 1-5")
}

func TestScheduleJitterIsAtMostTenthOfInterval(t *testing.T) {
	t.Parallel()
	for schedule, want := range map[metering.Schedule]time.Duration{
		"5m": 30 * time.Second, "15m": 90 * time.Second, "60m": 6 * time.Minute, "24h": time.Hour,
		metering.Hourly: 6 * time.Minute, metering.Daily: time.Hour, "*/15 * * * *": time.Minute,
	} {
		require.Equal(t, want, schedule.Jitter(), schedule)
	}
}
