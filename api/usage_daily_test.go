package api_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

// TestDailyUsageIncludesAllCustomers sends events of two customers at both ends of two days in the tenant's time zone.
// One of two meters counts no event.
func TestDailyUsageIncludesAllCustomers(t *testing.T) {
	t.Parallel()
	b := setup(t, "Asia/Kathmandu") // UTC+05:45
	b.meter(t, "calls", "call")
	b.meter(t, "unused", "other")
	zone, err := metering.LoadLocation("Asia/Kathmandu")
	require.NoError(t, err)
	today := metering.WindowOf(b.now(), metering.Day, zone)
	yesterday := metering.WindowOf(today.Start.Add(-time.Second), metering.Day, zone)
	for value, event := range map[string]struct {
		customer string
		at       time.Time
	}{
		"1.25": {"a", yesterday.Start.Add(-time.Second)},
		"2.25": {"a", yesterday.Start},
		"4.25": {"b", today.Start.Add(-time.Second)},
		"8.25": {"b", today.Start},
	} {
		b.ingest(t, "/v1/events", fmt.Sprintf(`{"event_type":"call","customer_id":%q,"timestamp":%q,"value":%s}`, event.customer, event.at.Format(time.RFC3339), value))
	}

	two := b.daily(t, 2)
	require.Equal(t, []time.Time{yesterday.Start, today.End}, []time.Time{two.Period.Start, two.Period.End})
	require.Len(t, two.Meters, 2)
	require.Equal(t, "14.75", two.Meters[0].Total.String())
	require.Equal(t, client.DayUsage{Start: yesterday.Start, End: yesterday.End, Usage: two.Meters[0].Days[0].Usage}, two.Meters[0].Days[0])
	require.Equal(t, "6.5", two.Meters[0].Days[0].Usage.String())
	require.Equal(t, "8.25", two.Meters[0].Days[1].Usage.String())
	require.Equal(t, "0", two.Meters[1].Total.String())
	require.Empty(t, two.Meters[1].Days)
	require.Equal(t, "16", b.daily(t, 3).Meters[0].Total.String())
	for _, days := range []int{0, 93} {
		b.send(t, "GET", fmt.Sprintf("/v1/usage/daily?days=%d", days), "").problem(t, 422, "invalid")
	}
}

// daily returns the daily usage of this number of days, up to today.
func (b *bundle) daily(t testing.TB, days int) (daily client.DailyUsage) {
	t.Helper()
	a := b.send(t, "GET", fmt.Sprintf("/v1/usage/daily?days=%d", days), "")
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &daily))
	return daily
}
