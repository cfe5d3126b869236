package activities_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// newUnheard returns a subscriber at a provider that delivers no events.
func newUnheard(t *testing.T) *subscriber {
	t.Helper()
	store := dbtest.Open(t)
	writer := store.NewWriter(dbtest.WriterOptions)
	t.Cleanup(writer.Close)
	s, stop := newSubscriber(t, store, writer, dbtest.Conn(t))
	t.Cleanup(stop)
	s.exec(`update billing_connections set created_at = $2 where tenant_id = $1`, s.tenant, s.fake.Now())
	return s
}

// exec executes a statement in the database.
func (s *subscriber) exec(sql string, args ...any) {
	s.Helper()
	_, err := s.conn.Exec(s.Context(), sql, args...)
	require.NoError(s, err)
}

// uses ingests usage of the meter delta at the current time, and reports it.
func (s *subscriber) uses(value string) {
	s.Helper()
	_, err := s.writer.Ingest(s.Context(), s.tenant, []metering.Event{dbtest.Event(s, "delta", "acme", s.fake.Now(), value, "", "")})
	require.NoError(s, err)
	s.quiesce(nil)
}

// happens sends a request to the fake that does not come from Odometer.
func (s *subscriber) happens(method, path, form string) {
	s.Helper()
	request := httptest.NewRequestWithContext(s.Context(), method, path, strings.NewReader(form))
	request.Header.Set("Authorization", "Bearer "+stripeKey)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	s.fake.ServeHTTP(answer, request)
	require.Equal(s, http.StatusOK, answer.Code, answer.Body.String())
}

// listEvents runs the activity ListEvents.
func (s *subscriber) listEvents() (page activities.ListEventsResult) {
	s.Helper()
	value, err := s.ExecuteActivity(s.do.ListEvents, activities.TenantInput{TenantID: s.tenant})
	require.NoError(s, err)
	require.NoError(s, value.Get(&page))
	return page
}

// calls returns the number of GET requests to the fake with the given path prefix.
func (s *subscriber) calls(path string) (n int) {
	for _, r := range s.fake.State().Requests {
		if strings.HasPrefix(r.Path, path) && r.Method == http.MethodGet {
			n++
		}
	}
	return n
}

func TestListEventsFindsUndeliveredProviderEventsInPages(t *testing.T) {
	t.Parallel()
	s := newUnheard(t)
	require.NoError(t, s.fake.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: stripeKey}, Customers: []stripetest.Customer{{ID: "cus_stranger"}},
		Subscriptions: []stripetest.Subscription{{
			ID: "sub_stranger", Customer: "cus_stranger", Start: s.first.Start.Unix(), End: s.first.End.Unix(), Items: []stripetest.Item{{ID: "si_stranger", Price: "price_delta"}},
		}},
	}))
	require.Equal(t, activities.ListEventsResult{}, s.listEvents())
	for range 60 {
		s.happens(http.MethodPost, "/v1/subscriptions/sub_1", "pause_collection[behavior]=keep_as_draft")
		s.happens(http.MethodPost, "/v1/subscriptions/sub_stranger", "pause_collection[behavior]=keep_as_draft")
	}
	s.happens(http.MethodPost, "/v1/subscriptions/sub_1", "pause_collection=")
	all := s.fake.Happened("acct_1", "customer.subscription.updated")
	require.Len(t, all, 121)
	delivered := metering.ProviderEvent{EventID: all[120], Kind: "customer.subscription.updated", ObjectID: "sub_1", Customer: "cus_1", MadeAt: s.fake.Now()}
	active, err := s.store.Providers.Active(t.Context(), s.tenant)
	require.NoError(t, err)
	delivered.Connection = active.ID
	known, _, err := s.store.ProviderEvents.Store(t.Context(), s.tenant, delivered, s.fake.Now())
	require.NoError(t, err)

	s.fake.Advance(time.Minute)
	var missed []activities.MissedEvent
	for page := range 3 {
		found := s.listEvents()
		require.Equal(t, page < 2, found.More)
		missed = append(missed, found.Missed...)
	}
	require.Len(t, missed, 60, "but for the one that came")
	require.NotContains(t, missed, activities.MissedEvent{RowID: known.Row, CustomerID: s.customer})
	before := s.calls("/v1/events")
	require.Equal(t, activities.ListEventsResult{More: true}, s.listEvents(), "clocks differ: what was made of late is listed again")
	require.Equal(t, before+1, s.calls("/v1/events"))
	for range 2 {
		for s.listEvents().More {
		}
		s.fake.Advance(2 * time.Hour)
	}
	before = s.calls("/v1/events")
	require.Equal(t, activities.ListEventsResult{}, s.listEvents())
	require.Equal(t, before+1, s.calls("/v1/events"), "one page where nothing was missed")
	again, _, err := s.store.ProviderEvents.Store(t.Context(), s.tenant, metering.ProviderEvent{
		Connection: active.ID, EventID: all[118], Kind: "customer.subscription.updated", ObjectID: "sub_1", Customer: "cus_1", MadeAt: s.fake.Now(),
	}, s.fake.Now())
	require.NoError(t, err)
	require.Contains(t, missed, activities.MissedEvent{RowID: again.Row, CustomerID: s.customer}, "it came after all, and is the same row")
}

// TestInterruptedProviderEventListContinuesAtPosition checks that an interrupted read of the provider's list of events
// continues at its position. The next read lists the events that happened in the meantime.
func TestInterruptedProviderEventListContinuesAtPosition(t *testing.T) {
	t.Parallel()
	s := newUnheard(t)
	changes := func(n int) {
		for range n {
			s.happens(http.MethodPost, "/v1/subscriptions/sub_1", "pause_collection[behavior]=keep_as_draft")
		}
	}
	changes(70)
	require.Len(t, s.listEvents().Missed, 50)
	s.fake.Advance(3 * time.Hour)
	changes(5)
	require.Len(t, s.listEvents().Missed, 20)
	require.Len(t, s.listEvents().Missed, 5)
	for s.listEvents().More {
	}

	s.fake.Advance(3 * time.Hour)
	changes(70)
	s.listEvents()
	s.fake.Advance(31 * 24 * time.Hour) // the provider no longer lists the event at which the walk stopped
	require.Equal(t, activities.ListEventsResult{}, s.listEvents())
}

// TestInvoicesBecomeDueForListingAfterGapInProviderEvents checks that the connection's invoices become due for listing
// if the provider no longer lists events that may have been missed.
func TestInvoicesBecomeDueForListingAfterGapInProviderEvents(t *testing.T) {
	t.Parallel()
	s := newUnheard(t)
	s.uses("5")
	s.listEvents()
	due := func() (n int) {
		require.NoError(t, s.conn.QueryRow(t.Context(), `select count(*) from billing_destinations where tenant_id = $1 and invoices_due_at is null`, s.tenant).Scan(&n))
		return n
	}
	s.exec(`update billing_destinations set invoices_due_at = $2 where tenant_id = $1`, s.tenant, s.fake.Now())
	s.fake.Advance(30*24*time.Hour - time.Minute)
	require.NotEmpty(t, s.listEvents().Missed)
	require.Zero(t, due(), "nothing was missed")
	s.fake.Advance(31 * 24 * time.Hour)
	s.fake.Behave(stripetest.Behaviour{Status: 503, Times: 1, Path: "/v1/events"})
	_, err := s.ExecuteActivity(s.do.ListEvents, activities.TenantInput{TenantID: s.tenant})
	require.ErrorContains(t, err, "Stripe answered 503")
	require.Equal(t, 1, due())
	s.exec(`update billing_destinations set invoices_due_at = $2 where tenant_id = $1`, s.tenant, s.fake.Now())
	s.fake.Advance(time.Minute)
	s.listEvents()
	require.Zero(t, due(), "it was said once")
}
