package api_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/routers"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	temporal "go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/registry"
)

var guard = providers.Guard{AllowLoopback: true}

// known is the registry of the providers that the service includes.
var known = registry.New(guard, "")

// bundle is a server and a tenant for one test.
type bundle struct {
	store    *db.DB
	writer   *usage.Writer
	counter  *usage.EventCounter
	sampler  *usage.UncountedSampler
	keys     api.Keys
	tenant   metering.Tenant
	key      string // an admin key
	url      string
	client   *client.ClientWithResponses
	temporal *fakeTemporal
	clock    *testClock
	ahead    atomic.Int64 // nanoseconds that this server's clock is ahead of clock
	deps     api.Deps
	contract func() (routers.Router, error) // router of the document against which responses are validated
}

// fakeTemporal is a Temporal client that sends the ids of started workflows to the channel started. The fields
// down, hangs and deaf make calls fail or hang. A method that the API does not call panics.
type fakeTemporal struct {
	temporal.Client
	down    atomic.Bool
	hangs   atomic.Bool
	deaf    atomic.Bool // queries get no response
	started chan string

	priority atomic.Int64 // of the last run that was started

	schedules fakeSchedules
	runs      fakeRuns
}

// errDown is the error of the fake while Temporal is down.
var errDown = errors.New("connection refused")

func (f *fakeTemporal) ExecuteWorkflow(ctx context.Context, options temporal.StartWorkflowOptions, _ any, _ ...any) (temporal.WorkflowRun, error) {
	if f.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f.priority.Store(int64(options.Priority.PriorityKey))
	return nil, f.start(options.ID)
}

func (f *fakeTemporal) SignalWithStartWorkflow(_ context.Context, id, _ string, _ any, options temporal.StartWorkflowOptions, _ any, _ ...any) (temporal.WorkflowRun, error) {
	f.priority.Store(int64(options.Priority.PriorityKey))
	return nil, f.start(id)
}

func (f *fakeTemporal) CheckHealth(context.Context, *temporal.CheckHealthRequest) (*temporal.CheckHealthResponse, error) {
	if f.down.Load() {
		return nil, errDown
	}
	return new(temporal.CheckHealthResponse), nil
}

// start opens a run with the id, and sends the id to the channel started.
func (f *fakeTemporal) start(id string) error {
	if f.down.Load() {
		return errDown
	}
	f.runs.begin(id)
	f.started <- id
	return nil
}

// setup starts a server on an empty test database, and creates a tenant with an admin key. The time zone is optional.
func setup(t testing.TB, zone ...string) *bundle {
	t.Helper()
	return setupAt(t, dbtest.Open(t), zone...)
}

// setupAt does the same on the database of a given store.
func setupAt(t testing.TB, store *db.DB, zone ...string) *bundle {
	t.Helper()
	b := &bundle{store: store, tenant: dbtest.Tenant(t, store, zone...), clock: newTestClock(), temporal: &fakeTemporal{started: make(chan string, 1000)}, contract: contract}
	b.temporal.schedules.fake, b.temporal.schedules.all = b.temporal, map[string]*temporal.ScheduleDescription{}
	b.temporal.runs.paused, b.temporal.runs.ended = map[string]bool{}, map[string]any{}
	secret := make([]byte, 32)
	rand.Read(secret)
	var err error
	b.keys, err = api.NewKeys("svc", secret)
	require.NoError(t, err)
	b.key = b.newKey(t, metering.ScopeAdmin)
	b.sampler = store.NewUncountedSampler(func(err error) { t.Log("sample uncounted events:", err) })
	t.Cleanup(b.sampler.Close)
	options := dbtest.WriterOptions
	options.Uncounted = b.sampler
	b.writer = store.NewWriter(options)
	t.Cleanup(b.writer.Close)
	b.counter = store.NewEventCounter(func(err error) { t.Log("count events:", err) })
	t.Cleanup(b.counter.Close)
	ring, err := seal.ParseKeyring("test:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	require.NoError(t, err)
	b.deps = api.Deps{
		Store: store, Writer: b.writer, EventCounter: b.counter, Temporal: b.temporal, Guard: guard, Providers: known, Keyring: ring,
		Keys: b.keys, Secret: secret, ErrorDocsBase: "https://errors.example.com", Now: b.now, SyncWait: time.Second,
		FailuresPerMinute: 1_000_000,
		Log:               slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: prometheus.NewRegistry(),
	}
	b.serve(t)
	b.client, err = client.NewClientWithResponses(b.url, client.WithRequestEditorFn(b.authorized))
	require.NoError(t, err)
	return b
}

// serve starts the server with the dependencies of the bundle, and stops it when the test ends.
func (b *bundle) serve(t testing.TB) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Listener = api.Listener(server.Listener)
	b.url = "http://" + server.Listener.Addr().String()
	b.deps.BaseURL = cmp.Or(b.deps.BaseURL, b.url)
	handler, err := api.New(b.deps)
	require.NoError(t, err)
	server.Config.Handler = handler
	server.Start()
	t.Cleanup(func() {
		server.Close()
		server.Config.Handler = nil // the testing package retains this function until all tests of the package have ended
	})
}

// replica starts another server on the same database, for the same tenant. change modifies its dependencies.
func (b *bundle) replica(t testing.TB, change func(*api.Deps)) *bundle {
	t.Helper()
	r := &bundle{store: b.store, writer: b.writer, keys: b.keys, tenant: b.tenant, key: b.key, temporal: b.temporal, clock: b.clock, deps: b.deps, contract: b.contract}
	r.deps.Metrics = prometheus.NewRegistry()
	r.deps.Now, r.deps.BaseURL = r.now, ""
	change(&r.deps)
	r.serve(t)
	return r
}

// testClock starts at the current time, and each read advances it by a microsecond. The results of a test
// therefore do not depend on the speed of the machine.
type testClock struct {
	began time.Time
	reads atomic.Int64
}

// newTestClock returns a clock that starts at the current time.
func newTestClock() *testClock {
	return &testClock{began: clock.Now().UTC().Truncate(time.Microsecond)}
}

func (c *testClock) now() time.Time {
	return c.began.Add(time.Duration(c.reads.Add(1)) * time.Microsecond)
}

// now returns the time of this server.
func (b *bundle) now() time.Time { return b.clock.now().Add(time.Duration(b.ahead.Load())) }

// authorized adds the admin key to a request of the client.
func (b *bundle) authorized(_ context.Context, r *http.Request) error {
	r.Header.Set("Authorization", "Bearer "+b.key)
	return nil
}

// newKey stores a new API key with this scope, and returns its text.
func (b *bundle) newKey(t testing.TB, scope metering.Scope) string {
	t.Helper()
	key, record := b.keys.Make(scope)
	record.Name = string(scope)
	_, err := b.store.Credentials.Create(t.Context(), b.tenant.ID, metering.Operator, metering.APIKeyCredential, record, b.now())
	require.NoError(t, err)
	return key
}

// answer is a response with its body read.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request with the bundle's key and validates the response against the OpenAPI document. Each header
// has the form "Name: value"; "Name: " removes the header.
func (b *bundle) send(t testing.TB, method, path, body string, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+b.key)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); value == "" {
			r.Header.Del(name)
		}
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	a := answer{response.StatusCode, response.Header, string(text)}
	a.documented(t, b.contract, r)
	return a
}

// next returns the path of the next page from the Link header of an exported file, or "" if the header names none.
func (a answer) next() string {
	path, _ := strings.CutSuffix(strings.TrimPrefix(a.header.Get("Link"), "<"), `>; rel="next"`)
	return path
}

// problem checks that the response is a complete problem with this status and code, and returns the problem.
func (a answer) problem(t testing.TB, status int, code string) api.Problem {
	t.Helper()
	require.Equal(t, status, a.status, a.body)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"), a.body)
	var p api.Problem
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	require.Equal(t, "https://errors.example.com/"+code, p.Type)
	require.Equal(t, status, p.Status)
	require.Equal(t, code, string(p.Code))
	require.NotEmpty(t, p.Title)
	require.NotEmpty(t, p.Detail)
	require.NotNil(t, p.Errors)
	require.Equal(t, a.header.Get("X-Request-Id"), p.RequestID)
	return p
}
