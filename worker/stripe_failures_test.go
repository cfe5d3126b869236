package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// inAllWays lists a meter for each reporting method that has a total at Stripe.
var inAllWays = []string{"record", "delta", "window", "last"}

// useAll ingests an event of each meter in inAllWays.
func (s *stripeSystem) useAll(value string) {
	s.Helper()
	for _, meter := range inAllWays {
		s.useOf(meter, value)
	}
}

// requireBilled requires that Stripe would bill the quantity for each meter in inAllWays.
func requireBilled(t testing.TB, fake *stripetest.Fake, want string) {
	t.Helper()
	for _, item := range inAllWays {
		require.Equal(t, want, fake.Quantity("si_"+item+"_1").String(), item)
	}
}

// TestStripeTotalEqualsUsageAfterEachFailure applies each kind of failure to the calls of a sync. After each sync,
// Stripe's total must equal the usage, rounded to whole units.
func TestStripeTotalEqualsUsageAfterEachFailure(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters(inAllWays...)
	s.work()
	var want metering.Decimal
	for _, b := range []stripetest.Behaviour{
		{Status: 503, Times: 3},
		{Status: 500, Done: true, Times: 2},
		{Status: 429, RetryAfter: 1, Times: 2},
		{Status: 409, Times: 2},
		{Mode: stripetest.LockTimeout, Times: 2},
		{DropAnswer: true, Times: 2},
		{DropAnswer: true, Times: 4, Path: "/v1/billing/meter_events"},
		{Mode: stripetest.Hang, Times: 1, Path: "/v1/billing/meter_events"},
		{Mode: stripetest.Hang, Done: true, Times: 1, Path: "/v1/subscription_items"},
		{Status: 500, Mode: stripetest.Saved, Times: 1, Path: "/v1/subscription_items"},
		{Status: 500, Mode: stripetest.Saved, Done: true, Times: 1, Path: "/v1/subscription_items"},
		{Status: 500, Mode: stripetest.Saved, Done: true, Times: 3, Path: "/v1/billing/meter_events"},
		{Mode: stripetest.Stale, Times: 100},
	} {
		s.useAll("1.3")
		want = want.Add(metering.MustDecimal("1.3"))
		s.fake.Behave(b)
		s.synced()
		s.fake.Behave(stripetest.Behaviour{})
		t.Logf("%+v", b)
		requireBilled(t, s.fake, billing.Units(want, 0).String())
	}
	for _, l := range s.counted(s.request()).Lines {
		require.Equal(t, "counted", l.State, l.MeterSlug)
	}
}

// TestMeterEventsRejectedAfterAcceptanceWaitForInvoice makes the fake reject meter events after it has accepted them.
// Stripe validates meter events only after its response, and counts them with a delay.
func TestMeterEventsRejectedAfterAcceptanceWaitForInvoice(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("delta", "window")
	s.work()
	due := func() []metering.CustomerID {
		page, err := s.store.Ledger.OutOfSync(t.Context(), s.tenant, 0, 10, time.Now())
		require.NoError(t, err)
		return page.Customers
	}
	s.useOf("delta", "5")
	s.useOf("window", "5")
	s.fake.Behave(stripetest.Behaviour{Mode: stripetest.RejectLater, Times: 2, Path: "/v1/billing/meter_events"})
	s.synced()
	s.fake.Behave(stripetest.Behaviour{})
	sync := s.synced()
	require.Equal(t, []string{"delta meter_delta 5/5 accepted", "window meter_window 5/5 accepted"}, linesOf(sync))
	require.Equal(t, "Stripe has counted 0 of 5 so far", sync.Lines[0].Response)
	require.Empty(t, due())
	_, err := s.connect().Exec(t.Context(), `
		with reports as (
		  update billing_reports set decided_at = decided_at - interval '1 day' where tenant_id = $1 and state = 'accepted')
		update customers set look_again_at = look_again_at - interval '1 day' where tenant_id = $1`, s.tenant)
	require.NoError(t, err)
	require.Len(t, due(), 1)
	require.Equal(t, []string{"delta meter_delta 5/5 accepted", "window meter_window 5/5 accepted"}, linesOf(s.synced()))
	require.Equal(t, "0", s.quantity("delta"))
	require.Equal(t, "0", s.quantity("window"))
}

// TestReportWithUnknownOutcomeIsNotSentAgainAfterADay loses a response. The next attempt follows only after Stripe
// has forgotten the report's identifier. A report that Stripe has not counted may then have arrived nevertheless.
func TestReportWithUnknownOutcomeIsNotSentAgainAfterADay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		taken    bool
		foreign  bool // another system reports to the same meter
		quantity string
		line     string
	}{
		"taken":     {true, false, "5", "delta meter_delta 5/5 counted"},
		"not taken": {false, false, "0", "delta meter_delta 5/5 in_doubt"},
		"unclear":   {true, true, "12", "delta meter_delta 5/5 in_doubt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStripe(t)
			s.meters("delta")
			s.useOf("delta", "5")
			stop := s.work()
			s.fake.Behave(stripetest.Behaviour{Mode: stripetest.Hang, Done: c.taken, Times: 1000, Path: "/v1/billing/meter_events"})
			id := s.request()
			dbtest.Eventually(t, func() error {
				if len(s.writes()) == 0 {
					return fmt.Errorf("nothing was sent yet")
				}
				return nil
			})
			stop()
			s.fake.Behave(stripetest.Behaviour{})
			if c.foreign {
				require.NoError(t, s.report("7"))
			}
			s.fake.Advance(25 * time.Hour)
			_, err := s.connect().Exec(t.Context(), `
				update billing_reports set first_sent_at = first_sent_at - interval '25 hours', lease_until = null where tenant_id = $1`, s.tenant)
			require.NoError(t, err)
			s.work()
			require.Equal(t, []string{c.line}, linesOf(s.counted(id)))
			require.Equal(t, c.quantity, s.quantity("delta"))
		})
	}
}

// report reports usage of another system to the fake's meter.
func (s *stripeSystem) report(value string) error {
	form := url.Values{"event_name": {"delta"}, "payload[stripe_customer_id]": {"cus_canary"}, "payload[value]": {value}}
	request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.stripeBase+"/v1/billing/meter_events", bytes.NewBufferString(form.Encode()))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+stripeKey)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// detour is a handler that does not forward the first POST request to each path. letGo sends these requests long after
// their callers have given up.
type detour struct {
	http.Handler
	mu   sync.Mutex
	held map[string]*http.Request
	base string
}

// newDetour returns a detour to the server at the URL.
func newDetour(to string) *detour {
	target, _ := url.Parse(to)
	return &detour{Handler: httputil.NewSingleHostReverseProxy(target), held: map[string]*http.Request{}, base: to}
}

func (d *detour) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	d.mu.Lock()
	_, known := d.held[r.URL.Path]
	hold := r.Method == http.MethodPost && !known
	if hold {
		late, _ := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, d.base+r.URL.Path, bytes.NewReader(body))
		late.Header = r.Header.Clone()
		d.held[r.URL.Path] = late
	}
	d.mu.Unlock()
	if hold {
		<-r.Context().Done()
		return
	}
	d.Handler.ServeHTTP(w, r)
}

// letGo sends the held requests, and returns their number.
func (d *detour) letGo(t *testing.T) (calls int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, late := range d.held {
		response, err := http.DefaultClient.Do(late)
		require.NoError(t, err)
		response.Body.Close()
		calls++
	}
	return calls
}

func TestStripeCallArrivingAfterLaterCallsChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	slow := newDetour(s.stripeBase)
	server := httptest.NewServer(slow)
	t.Cleanup(server.Close)
	s.stripeBase = server.URL
	s.meters("record", "delta")
	s.work()
	for _, value := range []string{"5", "2"} {
		s.useOf("record", value)
		s.useOf("delta", value)
		s.synced()
	}
	require.Equal(t, 2, slow.letGo(t))
	require.Equal(t, "7", s.quantity("record"))
	require.Equal(t, "7", s.quantity("delta"))
	s.useOf("record", "1")
	s.useOf("delta", "1")
	s.synced()
	require.Equal(t, "8", s.quantity("record"))
	require.Equal(t, "8", s.quantity("delta"))
}

func TestConcurrentSyncsAndAutoSyncReportUsageToStripeOnce(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters(inAllWays...)
	s.work()
	s.work()
	var all sync.WaitGroup
	s.schedule()
	for range 8 {
		s.useAll("0.7")
		id := s.request()
		all.Go(func() { s.await(id) })
		run := s.trigger()
		all.Go(func() { assert.NoError(t, s.awaitClosed(run)) })
	}
	all.Wait()
	s.synced()
	requireBilled(t, s.fake, "6") // 5.6
}

// TestDrillAWorkerKilledAnywhereNeitherLosesNorDoublesUsage kills the worker at each place where it can wait: for
// a lock in the database, or for Stripe.
func TestDrillAWorkerKilledAnywhereNeitherLosesNorDoublesUsage(t *testing.T) {
	t.Parallel()
	fake := seededStripe(t, time.Now)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	_, database := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: database, TemporalAddress: temporalAddress(t), Env: []string{"STRIPE_API_BASE=" + server.URL}})
	_, key := system.Tenant(t)
	api := caller{system.API(t).URL, key}
	api.must(t, 200, http.MethodPut, "/v1/billing/provider", map[string]any{"type": "stripe", "secret_key": stripeKey, "webhook_secret": webhookSecret})
	for _, slug := range inAllWays {
		api.must(t, 201, http.MethodPost, "/v1/meters", map[string]any{"slug": slug, "event_type": slug, "name": slug, "aggregation": "sum"})
	}
	api.must(t, 201, http.MethodPost, "/v1/customers", map[string]any{"external_id": "acme", "billing_provider_id": "cus_canary"})
	worker := system.Worker(t)
	api.must(t, 200, http.MethodPut, "/v1/billing/auto-sync", map[string]any{"enabled": true, "schedule": "hourly"})
	var want metering.Decimal
	use := func() {
		for _, slug := range inAllWays {
			api.ingest(t, map[string]any{"event_type": slug, "customer_id": "acme", "value": 1.6})
		}
		want = want.Add(metering.MustDecimal("1.6"))
	}
	use()
	dbtest.Eventually(t, func() error { return api.sync(t, "acme") })

	locked := func(statement string) func(t *testing.T) func() {
		return func(t *testing.T) func() {
			conn, err := pgx.Connect(t.Context(), database)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), statement)
			require.NoError(t, err)
			return func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }
		}
	}
	// marking blocks each update that gives a report the state, with a trigger of the test.
	marking := func(state billing.State) func(t *testing.T) func() {
		return func(t *testing.T) func() {
			conn := connect(t, database)
			ctx := context.WithoutCancel(t.Context())
			_, err := conn.Exec(ctx, fmt.Sprintf(`
				select pg_advisory_lock(7, 7);
				create function wait_for_test() returns trigger language plpgsql as
				$$ begin perform pg_advisory_xact_lock(7, 7); return new; end $$;
				create trigger wait_for_test before update on billing_reports for each row
				when (new.state = '%s') execute function wait_for_test()`, state))
			require.NoError(t, err)
			return func() {
				_, err := conn.Exec(ctx, `select pg_advisory_unlock(7, 7); drop function wait_for_test cascade`)
				require.NoError(t, err)
			}
		}
	}
	failing := func(b stripetest.Behaviour) func(t *testing.T) func() {
		return func(*testing.T) func() {
			b.Times = 1
			fake.Behave(b)
			return func() { fake.Behave(stripetest.Behaviour{}) }
		}
	}
	for _, place := range []struct {
		name string
		stop func(t *testing.T) func()
	}{
		{"BeforeItTakesTheRequests", locked(`lock table billing_syncs in exclusive mode`)},
		{"WhileItReadsTheItems", failing(stripetest.Behaviour{Mode: stripetest.Hang, Path: "/v1/subscriptions"})},
		{"BeforeItKeepsTheItems", locked(`lock table billing_links in exclusive mode`)},
		{"BeforeItWritesTheReports", locked(`select from customers for update`)},
		{"BeforeItMarksAReportAsBeingSent", marking(billing.Sending)},
		{"BeforeARecordIsTaken", failing(stripetest.Behaviour{Mode: stripetest.Hang, Path: "/v1/subscription_items"})},
		{"AfterARecordIsTaken", failing(stripetest.Behaviour{Mode: stripetest.Hang, Done: true, Path: "/v1/subscription_items"})},
		{"BeforeAnEventIsTaken", failing(stripetest.Behaviour{Mode: stripetest.Hang, Path: "/v1/billing/meter_events"})},
		{"AfterAnEventIsTaken", failing(stripetest.Behaviour{Mode: stripetest.Hang, Done: true, Path: "/v1/billing/meter_events"})},
		{"BeforeItRecordsThatAReportIsAccepted", marking(billing.Accepted)},
		{"BeforeItAnswers", locked(`lock table billing_sync_reports in exclusive mode`)},
	} {
		t.Run(place.name, func(t *testing.T) {
			use()
			goOn := place.stop(t)
			_, _, err := api.call(t.Context(), http.MethodPost, "/v1/billing/auto-sync/trigger", nil) // either run may come first
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // by then the worker waits
			_, _, _ = api.call(ctx, http.MethodPost, "/v1/billing/sync", map[string]any{"customer_external_id": "acme"})
			cancel()
			worker.Restart(t)
			goOn()
			dbtest.Eventually(t, func() error { return api.sync(t, "acme") })
			requireBilled(t, fake, billing.Units(want, 0).String())
		})
	}
}
