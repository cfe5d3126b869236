package db_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// hooked is a tenant with a webhook, and a clock.
type hooked struct {
	*testing.T
	store    *db.DB
	address  string // of the database
	tenant   metering.TenantID
	customer metering.Customer
	hook     metering.Endpoint
	hooks    int
	keys     int
	now      time.Time
}

func newHooked(t *testing.T, kinds ...metering.MessageKind) *hooked {
	t.Helper()
	store, address := dbtest.Fresh(t) // Wanted returns endpoints of all tenants
	h := &hooked{T: t, store: store, address: address, tenant: dbtest.Tenant(t, store).ID, now: november}
	h.customer = dbtest.Customer(t, store, h.tenant, "acme")
	_, err := store.Providers.Save(t.Context(), h.tenant, metering.Operator, metering.Provider{
		Kind: metering.Webhook, Statements: true, Address: "https://example.com/usage", SealedSecret: []byte("sealed"), LastFour: "abcd", ValidatedAt: h.now,
	})
	require.NoError(t, err)
	h.hook = h.add(kinds...)
	return h
}

func (h *hooked) add(kinds ...metering.MessageKind) metering.Endpoint {
	h.Helper()
	h.hooks++
	e, err := h.store.Webhooks.Create(h.Context(), h.tenant, metering.Operator, metering.Endpoint{
		URL: fmt.Sprintf("https://example.com/hook%d", h.hooks), EventTypes: kinds, Sealed: []byte("sealed"), LastFour: "abcd",
	}, h.now)
	require.NoError(h, err)
	return e
}

// runSync runs a sync of the customer. The sync fails with the given error, or succeeds if the error is empty.
func (h *hooked) runSync(failure string) {
	h.Helper()
	_, err := h.store.Syncs.Request(h.Context(), h.tenant, metering.Operator, h.customer.ID, metering.Manual, h.now)
	require.NoError(h, err)
	begun, err := h.store.Syncs.Begin(h.Context(), h.tenant, h.customer.ID, h.now)
	require.NoError(h, err)
	for range 2 { // at the second call, the sync is already finished
		_, err = h.store.Syncs.Finish(h.Context(), h.tenant, h.customer.ID, begun.PassID, ledger.Answer{Error: failure}, h.now)
		require.NoError(h, err)
	}
}

func (h *hooked) claim() *access.ClaimedDelivery {
	h.Helper()
	c, err := h.store.Deliveries.Claim(h.Context(), h.tenant, h.hook.ID, h.now, 30*time.Second)
	require.NoError(h, err)
	return c
}

// attempt claims a due delivery and settles it with the response.
func (h *hooked) attempt(status int, retryAfter time.Duration) {
	h.Helper()
	c := h.claim()
	require.NotNil(h, c)
	h.settle(*c, status, retryAfter)
}

func (h *hooked) settle(c access.ClaimedDelivery, status int, retryAfter time.Duration) {
	h.Helper()
	attempt := metering.Attempt{At: h.now, Took: time.Second, Status: status}
	if status != 200 {
		attempt.Problem = fmt.Sprintf("the webhook answered %d", status)
	}
	require.NoError(h, h.store.Deliveries.Settle(h.Context(), c, attempt, retryAfter, h.now))
}

func (h *hooked) deliveries() []metering.Delivery {
	h.Helper()
	list, err := dbtest.Items(h.store.Deliveries.List(h.Context(), h.tenant, h.hook.ID, "", uuid.Nil, 100))
	require.NoError(h, err)
	return list
}

func (h *hooked) waiting() access.Waiting {
	h.Helper()
	w, err := h.store.Deliveries.Waiting(h.Context(), h.tenant, h.hook.ID, h.now)
	require.NoError(h, err)
	return w
}

// wanted reports whether Wanted returns the webhook, which means that the caller must start a delivery run.
func (h *hooked) wanted() bool {
	h.Helper()
	list, err := h.store.Deliveries.Wanted(h.Context(), h.now)
	require.NoError(h, err)
	for _, w := range list {
		if w.Endpoint == h.hook.ID {
			require.Equal(h, h.tenant, w.Tenant)
			return true
		}
	}
	return false
}

func (h *hooked) read() metering.Endpoint {
	h.Helper()
	e, err := h.store.Webhooks.Get(h.Context(), h.tenant, h.hook.ID)
	require.NoError(h, err)
	return e
}

func TestEndpointGetsMessagesOfItsEventTypesOnce(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	failures := h.add(metering.MessageSyncFailed)
	h.runSync("")
	h.runSync("the key was refused")

	c := h.claim()
	require.Equal(t, metering.MessageSyncSucceeded, c.Kind)
	require.Equal(t, 1, c.Attempt)
	require.Equal(t, h.now, c.At.UTC())
	var data map[string]string
	require.NoError(t, json.Unmarshal(c.Data, &data))
	require.NotEmpty(t, data["sync_id"])
	delete(data, "sync_id")
	require.Equal(t, map[string]string{"tenant_id": h.tenant.String(), "customer_id": h.customer.ID.String(), "customer_external_id": "acme"}, data)
	require.Nil(t, h.claim(), "the only message is leased")

	h.hook = failures
	c = h.claim()
	require.Equal(t, metering.MessageSyncFailed, c.Kind)
	require.NoError(t, json.Unmarshal(c.Data, &data))
	require.Equal(t, "the key was refused", data["error"])
	require.Nil(t, h.claim())
}

func TestMessageWithoutListeningEndpointIsNotStored(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessagePeriodClosed)
	h.runSync("")
	disabled := false
	_, err := h.store.Webhooks.Update(t.Context(), h.tenant, metering.Operator, h.hook.ID,
		access.EndpointChange{EventTypes: []metering.MessageKind{metering.MessageSyncSucceeded}, Enabled: &disabled}, h.now)
	require.NoError(t, err)
	h.runSync("")
	var messages int
	conn, err := pgx.Connect(t.Context(), h.address)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from outbox where tenant_id = $1`, h.tenant).Scan(&messages))
	require.Zero(t, messages)
}

func TestDeliveryWithExpiredLeaseIsClaimedAgainUnchanged(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	h.runSync("")
	first := h.claim()
	h.now = h.now.Add(31 * time.Second)
	second := h.claim()
	require.Equal(t, 2, second.Attempt)
	require.Equal(t, first.Message, second.Message)

	h.settle(*first, 503, 0)
	require.Equal(t, metering.DeliveryPending, h.deliveries()[0].Status, "a late failure does not affect the running attempt")
	h.settle(*first, 200, 0)
	require.Equal(t, metering.DeliveryDelivered, h.deliveries()[0].Status, "a late success counts")
	h.settle(*second, 503, 0)
	require.Equal(t, metering.DeliveryDelivered, h.deliveries()[0].Status)
}

func TestMessageFailsAfterTenAttempts(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	h.runSync("")
	for attempt := 1; attempt <= 10; attempt++ {
		h.attempt(503, 0)
		d := h.deliveries()[0]
		require.Equal(t, attempt, d.Attempts)
		if wait, again := metering.RetryAfter(attempt); again {
			require.Equal(t, h.now.Add(wait), d.DueAt.UTC())
			h.now = d.DueAt.Add(time.Hour).UTC()
		}
	}
	d, attempts, err := h.store.Deliveries.Get(t.Context(), h.tenant, h.hook.ID, h.deliveries()[0].ID)
	require.NoError(t, err)
	require.Equal(t, metering.DeliveryFailed, d.Status)
	require.Nil(t, d.DueAt)
	require.Len(t, attempts, 10)
	require.Equal(t, metering.Attempt{At: november, Took: time.Second, Status: 503, Problem: "the webhook answered 503"},
		metering.Attempt{At: attempts[0].At.UTC(), Took: attempts[0].Took, Status: attempts[0].Status, Problem: attempts[0].Problem})
	require.Nil(t, h.waiting().Next)

	require.NoError(t, h.store.Deliveries.Redeliver(t.Context(), h.tenant, metering.Operator, h.hook.ID, d.ID, h.now))
	h.now = h.now.Add(5 * time.Minute)
	h.attempt(200, 0)
	require.Equal(t, metering.DeliveryDelivered, h.deliveries()[0].Status)
}

func TestFailingEndpointBacksOffUntilDeliverySucceeds(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	for range 3 {
		h.runSync("")
	}
	one, two := h.claim(), h.claim()
	h.settle(*one, 503, 0)
	h.settle(*two, 503, 0)
	require.Nil(t, h.claim(), "the endpoint backs off")
	require.False(t, h.wanted())
	w := h.waiting()
	require.Equal(t, 3, w.Messages)
	require.Equal(t, h.now.Add(5*time.Second), w.Next.UTC(), "two concurrent failures count as one")
	require.Equal(t, h.now, h.read().FailingSince.UTC())

	h.now = h.now.Add(5 * time.Second)
	h.attempt(429, 10*time.Minute)
	require.Equal(t, h.now.Add(10*time.Minute), h.waiting().Next.UTC(), "the receiver requested the delay")
	h.now = h.now.Add(10 * time.Minute)
	h.attempt(200, 0)
	require.Nil(t, h.read().FailingSince)
	require.NotNil(t, h.claim(), "the next message is due immediately")
}

func TestNewURLGetsUndeliveredMessagesImmediately(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	h.runSync("")
	h.attempt(503, time.Hour)
	require.Nil(t, h.claim())
	url := "https://example.com/other"
	_, err := h.store.Webhooks.Update(t.Context(), h.tenant, metering.Operator, h.hook.ID, access.EndpointChange{URL: &url}, h.now)
	require.NoError(t, err)
	require.True(t, h.wanted())
	require.Equal(t, url, h.claim().Endpoint.URL)
}

func TestAnEndpointThatIsGoneOrFailsForDaysIsDisabled(t *testing.T) {
	t.Parallel()
	for because, fail := range map[metering.DisabledBecause]func(h *hooked){
		metering.DisabledGone: func(h *hooked) { h.attempt(410, 0) },
		metering.DisabledFailing: func(h *hooked) {
			for range 5 {
				h.attempt(503, 0)
				require.Nil(h, h.read().DisabledAt)
				h.now = h.now.Add(metering.FailingAtMost/5 + time.Second)
			}
			h.attempt(503, 0)
		},
	} {
		h := newHooked(t, metering.MessageSyncSucceeded)
		h.runSync("")
		h.runSync("")
		fail(h)
		require.Equal(t, because, h.read().DisabledBecause)
		require.Equal(t, because, h.waiting().Disabled)
		for _, d := range h.deliveries() {
			require.Equal(t, metering.DeliveryFailed, d.Status)
			err := h.store.Deliveries.Redeliver(t.Context(), h.tenant, metering.Operator, h.hook.ID, d.ID, h.now)
			require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
		}
		h.runSync("")
		require.Len(t, h.deliveries(), 2, "no message is stored for a disabled endpoint")

		enabled := true
		e, err := h.store.Webhooks.Update(t.Context(), h.tenant, metering.Operator, h.hook.ID, access.EndpointChange{Enabled: &enabled}, h.now)
		require.NoError(t, err)
		require.Nil(t, e.DisabledAt)
		require.Nil(t, e.FailingSince)
		h.runSync("")
		h.attempt(200, 0)
	}
}

func TestConcurrentWorkersBeginOneRunForDueDeliveries(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	require.False(t, h.wanted())
	h.runSync("")
	var begun sync.Map
	var workers sync.WaitGroup
	for i := range 8 {
		workers.Go(func() {
			list, err := h.store.Deliveries.Wanted(t.Context(), h.now)
			for _, w := range list {
				if w.Endpoint == h.hook.ID {
					begun.Store(i, true)
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	workers.Wait()
	runs := 0
	begun.Range(func(any, any) bool { runs++; return true })
	require.Equal(t, 1, runs)
	h.now = h.now.Add(59 * time.Second)
	require.False(t, h.wanted(), "a worker is starting the run")
	h.now = h.now.Add(time.Second)
	require.True(t, h.wanted(), "the run did not start")

	h.attempt(200, 0)
	require.Equal(t, access.Waiting{}, h.waiting())
	h.runSync("")
	require.True(t, h.wanted(), "the run has ended")
}

// TestEveryMessageIsDeliveredDuringConcurrentChanges claims and settles deliveries in several lanes while messages
// arrive, the endpoint is updated, and messages are redelivered.
func TestEveryMessageIsDeliveredDuringConcurrentChanges(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	const messages = 60
	var all sync.WaitGroup
	done := make(chan struct{})
	for lane := range 6 {
		all.Go(func() {
			for {
				h := *h
				h.now = clock.Now().Add(time.Hour) // every backoff has ended by then
				c, err := h.store.Deliveries.Claim(t.Context(), h.tenant, h.hook.ID, h.now, 0)
				waits := metering.CodeOf(err) == metering.CodeRateLimited
				switch {
				case err != nil && !waits:
					t.Error(err)
					return
				case c == nil:
					select {
					case <-done:
						return
					default:
						continue
					}
				}
				attempt := metering.Attempt{At: h.now, Status: 200}
				if lane == 0 && c.Attempt == 1 {
					attempt = metering.Attempt{At: h.now.Add(-2 * time.Hour), Status: 503, Problem: "the webhook answered 503"}
				}
				if err := h.store.Deliveries.Settle(t.Context(), *c, attempt, 0, h.now.Add(-3*time.Hour)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	enabled, url := true, "https://example.com/other"
	for i := range messages {
		h.runSync("")
		if i%10 == 0 {
			_, err := h.store.Webhooks.Update(t.Context(), h.tenant, metering.Operator, h.hook.ID, access.EndpointChange{Enabled: &enabled, URL: &url}, h.now)
			require.NoError(t, err)
			_ = h.waiting()
			for _, d := range h.deliveries() {
				require.NoError(t, h.store.Deliveries.Redeliver(t.Context(), h.tenant, metering.Operator, h.hook.ID, d.ID, h.now))
			}
		}
	}
	dbtest.Eventually(t, func() error {
		for _, d := range h.deliveries() {
			if d.Status != metering.DeliveryDelivered {
				return errors.New(string(d.Status))
			}
		}
		return nil
	})
	close(done)
	all.Wait()
	require.Len(t, h.deliveries(), messages)
}

func TestTenantHasOneWebhookPerURL(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	same := metering.Endpoint{URL: h.hook.URL, EventTypes: []metering.MessageKind{metering.MessagePeriodClosed}, Sealed: []byte("s")}
	_, err := h.store.Webhooks.Create(t.Context(), h.tenant, metering.Operator, same, h.now)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	other := h.add(metering.MessagePeriodClosed)
	for url, want := range map[string]metering.Code{h.hook.URL: metering.CodeConflict, other.URL: ""} {
		_, err := h.store.Webhooks.Update(t.Context(), h.tenant, metering.Operator, other.ID, access.EndpointChange{URL: &url}, h.now)
		require.Equal(t, want, metering.CodeOf(err))
	}
	_, err = h.store.Webhooks.Create(t.Context(), dbtest.Tenant(t, h.store).ID, metering.Operator, same, h.now)
	require.NoError(t, err, "two tenants may have the same URL")
	require.NoError(t, h.store.Webhooks.Delete(t.Context(), h.tenant, metering.Operator, h.hook.ID))
	_, err = h.store.Webhooks.Create(t.Context(), h.tenant, metering.Operator, same, h.now)
	require.NoError(t, err)
}

func TestWebhooksOfTenantAreLimitedAndCanBeDeleted(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	for range metering.MaxEndpoints - 1 {
		h.add(metering.MessagePeriodClosed)
	}
	_, err := h.store.Webhooks.Create(t.Context(), h.tenant, metering.Operator, metering.Endpoint{EventTypes: []metering.MessageKind{metering.MessageDiscrepancyDetected}, Sealed: []byte("s")}, h.now)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	h.runSync("")
	require.NoError(t, h.store.Webhooks.Delete(t.Context(), h.tenant, metering.Operator, h.hook.ID))
	c := h.claim()
	require.Nil(t, c)
	_, err = h.store.Webhooks.Get(t.Context(), h.tenant, h.hook.ID)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	list, err := h.store.Webhooks.List(t.Context(), h.tenant)
	require.NoError(t, err)
	require.Len(t, list, metering.MaxEndpoints-1)
}

func TestSuccessfulAttemptCountsAfterEndpointIsDisabled(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	h.runSync("")
	c := h.claim()
	disabled := false
	_, err := h.store.Webhooks.Update(t.Context(), h.tenant, metering.Operator, h.hook.ID, access.EndpointChange{Enabled: &disabled}, h.now)
	require.NoError(t, err)
	require.Equal(t, metering.DeliveryFailed, h.deliveries()[0].Status)
	h.settle(*c, 200, 0)
	require.Equal(t, metering.DeliveryDelivered, h.deliveries()[0].Status)
}

func TestSettleIgnoresAttemptOfDeletedEndpoint(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	h.runSync("")
	c := h.claim()
	require.NoError(t, h.store.Webhooks.Delete(t.Context(), h.tenant, metering.Operator, h.hook.ID))
	h.settle(*c, 200, 0)
}

func TestOldMessagesAreDeleted(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	h.runSync("")
	h.now = h.now.Add(time.Hour)
	h.runSync("")
	for _, want := range []int{1, 0} {
		forgotten, err := h.store.Deliveries.Sweep(t.Context(), november.Add(time.Minute), 10)
		require.NoError(t, err)
		require.Equal(t, want, forgotten)
	}
	require.Len(t, h.deliveries(), 1)
}
