package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// Fault 5: what is not seen counted for a day waits until it is seen or said to be dropped, so that Stripe bills 5.
func TestWhatStripeShowsADayLateIsReportedAgainAndBilledTwice(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	writer := db.NewWriter(store, db.WriterOptions{})
	t.Cleanup(writer.Close)
	s, stop := newSubscriber(t, store, writer, conn)
	defer stop()
	_, err := writer.Ingest(t.Context(), s.tenant, []metering.Event{dbtest.Event(t, "delta", "acme", metering.Instant(s.fake.Now().Add(-time.Minute)), "5", "", "")})
	require.NoError(t, err)
	s.fake.Behave(stripetest.Behaviour{Mode: stripetest.Stale, Times: 1000})
	require.Equal(t, 1, s.report())

	_, err = conn.Exec(t.Context(), `update billing_entries set settled_at = settled_at - interval '1 day' where tenant_id = $1 and status = 'acknowledged'`, s.tenant)
	require.NoError(t, err)
	require.Equal(t, 1, s.report())
	require.Equal(t, "10", s.fake.Quantity("si_delta").String())
}

// report is one pass that meets no trouble. It returns how many entries went out.
func (s *subscriber) report() (sent int) {
	s.must(s.do.ReadItems, activities.ReadItemsInput{TenantID: s.tenant, CustomerID: s.customer})
	for _, entry := range s.prepared(true) {
		answer, ok := s.sent(entry)
		require.True(s, ok)
		s.must(s.do.SettleEntry, answer)
		sent++
	}
	return sent
}
