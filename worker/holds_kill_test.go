package worker_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// deadly is a handler in front of the fake Stripe, at which the test kills workers. A worker dies before its call
// reaches the fake, or between the fake's acceptance of the call and the answer.
type deadly struct {
	http.Handler
	dying chan string
	dead  chan struct{}

	mu     sync.Mutex
	points []point
}

// point is a call at which the test kills a worker, once. If after is set, the fake accepts the call before the worker
// dies.
type point struct {
	method, path string
	after        bool
}

func (d *deadly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, dies := d.next(r)
	if !dies {
		d.Handler.ServeHTTP(w, r)
		return
	}
	if p.after {
		d.Handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	d.dying <- fmt.Sprintf("%s %s, after it was taken: %v", r.Method, r.URL.Path, p.after)
	<-d.dead
	panic(http.ErrAbortHandler)
}

// next removes and returns the first point that the call matches. dies is false if there is none.
func (d *deadly) next(r *http.Request) (p point, dies bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, p := range d.points {
		if p.method != r.Method || !strings.Contains(r.URL.Path, p.path) {
			continue
		}
		d.points = slices.Delete(d.points, i, i+1)
		return p, true
	}
	return p, false
}

// kill sets the points at which workers die.
func (d *deadly) kill(points ...point) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.points = points
}

// TestDrillHeldInvoicesAreReleasedOnceDespiteWorkerKills kills the worker at each step of holding, comparing and
// releasing the invoices of three customers. Meanwhile, steps of the other invoices are in progress. Each invoice
// is finalized once, with all usage.
func TestDrillHeldInvoicesAreReleasedOnceDespiteWorkerKills(t *testing.T) {
	t.Parallel()
	customers := []string{"first", "second", "third"}
	fake := seededStripe(t, time.Now)
	door := &deadly{Handler: fake, dying: make(chan string), dead: make(chan struct{})}
	server := httptest.NewServer(door)
	t.Cleanup(server.Close)
	_, database := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: database, TemporalAddress: temporalAddress(t), Env: []string{"STRIPE_API_BASE=" + server.URL}})
	tenant, key := system.Tenant(t)
	api := caller{system.API(t).URL, key}
	worker := system.Worker(t)

	end := time.Now().Add(4 * time.Minute).Truncate(time.Second)
	in := &stripetest.Seed{Account: stripetest.Account{ID: "acct_canary", Key: stripeKey}}
	for _, name := range customers {
		in.Customers = append(in.Customers, stripetest.Customer{ID: "cus_" + name})
		in.Subscriptions = append(in.Subscriptions, stripetest.Subscription{
			ID: "sub_" + name, Customer: "cus_" + name, Start: end.AddDate(0, -1, 0).Unix(), End: end.Unix(),
			Items: []stripetest.Item{{ID: "si_" + name, Price: "price_delta"}},
		})
	}
	require.NoError(t, fake.Seed(in))
	api.must(t, 201, http.MethodPost, "/v1/meters", map[string]any{"slug": "delta", "event_type": "delta", "name": "Delta", "aggregation": "sum"})
	api.must(t, 200, http.MethodPatch, "/v1/tenant", map[string]any{"invoice_hold": map[string]any{"enabled": true, "deadline_hours": 48}})
	_, err := connect(t, database).Exec(t.Context(), `update tenants set grace = interval '2 minutes'`) // long enough for the usage of the last second
	require.NoError(t, err)
	api.must(t, 200, http.MethodPut, "/v1/billing/provider", map[string]any{"type": "stripe", "secret_key": stripeKey, "webhook_secret": webhookSecret})
	use := func(name string, value int, at time.Time) {
		api.ingest(t, map[string]any{"event_type": "delta", "customer_id": name, "value": value, "timestamp": at.UTC()})
	}
	for _, name := range customers {
		api.must(t, 201, http.MethodPost, "/v1/customers", map[string]any{"external_id": name, "billing_provider_id": "cus_" + name})
		use(name, 100, time.Now())
		dbtest.Eventually(t, func() error { return api.sync(t, name) })
	}
	dbtest.Eventually(t, func() error {
		if !time.Now().After(end.Add(time.Second)) {
			return errors.New("the period runs")
		}
		return nil
	})
	const get, post, invoices, finalize = http.MethodGet, http.MethodPost, "/v1/invoices/", "/finalize"
	points := []point{
		{post, finalize, false}, {post, finalize, true}, {post, finalize, true}, {post, invoices, false}, {post, invoices, true},
		{post, meterEvents, true}, {get, "/event_summaries", false}, {get, invoices, false}, {get, invoices, true}, {get, invoices, true}, {get, invoices, false},
	}
	door.kill(points...)
	for _, name := range customers {
		use(name, 20, end.Add(-time.Second))
	}
	for _, in := range fake.State().Accounts[0].Invoices {
		dbtest.Eventually(t, func() error { // Stripe repeats an event that was not answered with 2xx
			status, err := fake.Deliver(t.Context(), stripetest.Webhook{
				Type: "invoice.created", Object: in.ID, URL: api.url + "/v1/provider-webhooks/stripe/" + tenant, Secret: webhookSecret,
			})
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("answered %d", status)
			}
			return err
		})
	}
	for range points {
		select {
		case at := <-door.dying:
			t.Log(at)
			worker.Kill(t)
			door.dead <- struct{}{}
			worker.Start(t)
		case <-time.After(dbtest.Deadline):
			t.Fatalf("these steps were not reached: %+v", door.points)
		}
	}
	dbtest.Eventually(t, func() error { return released(t, api, len(customers)) })

	state := fake.State()
	finalized := map[string]int{}
	for _, r := range state.Requests {
		if strings.HasSuffix(r.Path, finalize) && r.Status == http.StatusOK && !r.Replayed {
			finalized[r.Path]++
		}
	}
	require.Len(t, finalized, len(customers))
	for _, in := range state.Accounts[0].Invoices {
		require.Equal(t, "open", in.Status)
		require.Equal(t, "120", in.Lines[0].Quantity.String())
		require.Equal(t, "0", in.Lines[0].Late.String())
		require.Equal(t, "36", in.Total.String(), "120 at 0.3 cents")
		require.Equal(t, 1, finalized[invoices+in.ID+finalize])
	}
}

// released returns an error if not all of the invoices are released.
func released(t *testing.T, api caller, want int) error {
	t.Helper()
	status, answer, err := api.call(t.Context(), http.MethodGet, "/v1/billing/holds", nil)
	if err != nil {
		return err
	}
	if status != http.StatusOK || strings.Count(string(answer), `"state":"released"`) != want {
		return fmt.Errorf("%d: %s", status, answer)
	}
	return nil
}
