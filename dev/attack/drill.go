package main

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/bench/figure"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/dev/receiver"
)

// Client addresses that the drill sends in X-Forwarded-For, as a load balancer does. They are documentation
// addresses (RFC 5737).
const (
	ourAddress   = "203.0.113.1"
	theirAddress = "198.51.100.1"

	strangerAddress = "198.51.100.2"
)

const (
	password = "correct horse battery staple"
	event    = `{"event_type":"call","customer_id":"acme"}`

	hookSecret = "whsec_YXR0YWNrYXR0YWNrYXR0YWNrYXR0YWNr" // secret of the receiver of our statements
)

// tenant is a tenant of the drill.
type tenant struct {
	ID      string `json:"id"`
	Key     string `json:"key"`
	Address string `json:"address"`
}

// target is an API, with the credentials and identifiers that the attackers have.
type target struct {
	URL     string `json:"url"`
	Address string `json:"address"` // HOST:PORT of the URL
	OurID   string `json:"our_id"`
	Email   string `json:"email"` // of a member of the well-behaved tenant
	Theirs  tenant `json:"theirs"`
	Third   tenant `json:"third"`  // a second tenant of the attackers
	Ingest  string `json:"ingest"` // a key of Theirs with the scope ingest_only
	Hook    string `json:"hook"`   // a webhook of Theirs
}

// drill is an API with a well-behaved tenant and the attackers' tenants.
type drill struct {
	testing.TB
	target

	api    *proc.Process
	worker *proc.Process
	ours   tenant
	secret string // HMAC secret of the well-behaved tenant
}

// newDrill starts an API and a worker, and creates the well-behaved tenant and two tenants of the attackers with much
// data.
func newDrill(t testing.TB) *drill {
	t.Helper()
	system := proc.Fresh(t, proc.Config{Env: []string{"TRUSTED_PROXIES=127.0.0.1/32", "LOG_LEVEL=error"}})
	d := &drill{TB: t, target: target{Email: "ada@example.com"}}
	d.ours.ID, d.ours.Key = system.Tenant(t)
	d.Theirs.ID, d.Theirs.Key = system.LimitedTenant(t, 1000)
	d.Third.ID, d.Third.Key = system.LimitedTenant(t, 1000)
	d.ours.Address, d.Theirs.Address, d.Third.Address = ourAddress, theirAddress, theirAddress
	d.worker, d.api = system.Worker(t), system.API(t)
	d.URL, d.Address, d.OurID = d.api.URL, d.api.Address, d.ours.ID
	for _, who := range []tenant{d.ours, d.Theirs, d.Third} {
		d.must(who, "POST", "/v1/meters", `{"slug":"calls","event_type":"call","aggregation":"count"}`)
		d.must(who, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":1}`)
		d.must(who, "POST", "/v1/events", event)
	}
	d.must(d.Theirs, "POST", "/v1/meters", `{"slug":"grouped","event_type":"grouped","aggregation":"count","group_by":["p"]}`)
	for n := range 30 { // 10,000 groups, each in three hours
		at := time.Now().Add(-time.Duration(n/10) * time.Hour).Format(time.RFC3339)
		d.must(d.Theirs, "POST", "/v1/events/batch", batchOf(func(i int) string {
			return fmt.Sprintf(`{"event_type":"grouped","customer_id":"acme","timestamp":%q,"properties":{"p":"%d-%d"}}`, at, n%10, i)
		}))
	}
	for n := range 20 {
		d.must(d.Theirs, "POST", "/v1/meters", fmt.Sprintf(`{"slug":"wide%d","event_type":"wide","aggregation":"count","group_by":["a","b","c","d","p%d"]}`, n, n))
	}
	d.secret = d.must(d.ours, "POST", "/v1/hmac-secrets", `{"name":"signs","scope":"read_write"}`).Secret
	invited := d.must(d.ours, "POST", "/v1/tenant/members", fmt.Sprintf(`{"email":%q,"role":"viewer"}`, d.Email))
	d.must(d.ours, "POST", "/v1/invitations/accept", fmt.Sprintf(`{"token":%q,"password":%q}`, invited.Token, password))
	d.Ingest = d.must(d.Theirs, "POST", "/v1/api-keys", `{"name":"ingest","scope":"ingest_only"}`).Key
	d.Hook = d.must(d.Theirs, "POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/","event_types":["sync.succeeded"]}`).ID
	for n := range 19 {
		d.must(d.Theirs, "POST", "/v1/webhooks", fmt.Sprintf(`{"url":"http://127.0.0.1:9/%d","event_types":["member.invited"]}`, n))
	}
	hook := proc.Serve(t, receiver.New(hookSecret))
	d.must(d.ours, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q,"secret":%q}`, hook, hookSecret))
	d.fill(system.Conn(t))
	return d
}

// fill adds large events and many customers to the tenants Theirs and Third. Some of the customers have large
// metadata.
func (d *drill) fill(conn *pgx.Conn) {
	for _, statement := range []string{`
		insert into events (tenant_id, customer_id, ts, id, event_type, value, properties, ingested_at, epoch)
		select e.tenant_id, e.customer_id, e.ts - n * interval '1 millisecond', gen_random_uuid(), e.event_type, n,
		  jsonb_build_object('p', repeat('x', 16000)), e.ingested_at, e.epoch
		from events e, generate_series(1, 3000) n
		where e.event_type = 'call'
		  and 'ten_' || e.tenant_id = any($1)`, `
		insert into customers (tenant_id, external_id, metadata, created_at)
		select t.id, n, jsonb_build_object('p', repeat('x', case when n <= 1000 then 16000 else 0 end)), now()
		from tenants t, generate_series(1, 20000) n
		where 'ten_' || t.id = any($1)`} {
		_, err := conn.Exec(d.Context(), statement, []string{d.Theirs.ID, d.Third.ID})
		require.NoError(d, err)
	}
}

// requireMemory prints the peak memory of the processes, and fails if it exceeds the maximum.
func (d *drill) requireMemory() {
	_, api := d.api.Memory(d)
	_, worker := d.worker.Memory(d)
	fmt.Printf("RSS at most: api %d MiB, worker %d MiB\n", api>>20, worker>>20)
	if api > proc.MostOfAPI || worker > proc.MostOfWorker {
		d.Errorf("api may need %d MiB and worker %d MiB", proc.MostOfAPI>>20, proc.MostOfWorker>>20)
	}
}

// createdResource contains the fields of a created resource.
type createdResource struct {
	ID     string `json:"id"`
	Key    string `json:"key"`
	Secret string `json:"secret"`
	Token  string `json:"token"`
}

// must sends a request of the tenant, and fails if the answer is not a success.
func (d *drill) must(who tenant, method, path, body string) (answer createdResource) {
	d.Helper()
	status, text, err := d.send(d.Context(), who, method, path, body)
	require.NoError(d, err)
	require.Less(d, status, 300, "%s %s: %s", method, path, text)
	require.NoError(d, json.Unmarshal(text, &answer))
	return answer
}

// send sends a request. headers are alternating names and values.
func (g target) send(ctx context.Context, who tenant, method, path, body string, headers ...string) (status int, text []byte, err error) {
	return proc.Call(ctx, method, g.URL+path, who.Key, body, append(headers, "X-Forwarded-For", who.Address)...)
}

// seen contains the measurements of the well-behaved tenant.
type seen struct {
	mu     sync.Mutex
	took   []time.Duration
	synced []time.Duration // durations of syncs
	heavy  []time.Duration // durations of heavy requests
	slow   []string        // correct answers that took more than longest
	failed []string
}

// p99 returns the p99 of the requests except syncs and heavy ones.
func (s *seen) p99() time.Duration { return figure.P99(s.took) }

// String returns the figures of a row of the output.
func (s *seen) String() string {
	return fmt.Sprintf("p99 %s, sync p50 %s, heavy p50 %s, %d failed", shown(s.p99()), shown(figure.Median(s.synced)), shown(figure.Median(s.heavy)), len(s.failed))
}

// Rates and paths of the well-behaved tenant's requests.
const (
	pace       = time.Second / 12
	signInPace = 120 // every n-th request is a sign-in
	syncPace   = 12  // every n-th request is a sync
	longest    = time.Second

	syncPath  = "/v1/billing/sync"                 // measured separately, because its duration depends on the provider
	heavyPath = "/v1/meters/calls/pricing/preview" // measured separately, because it reads all customers, one request at a time
	heavyPace = 60                                 // every n-th request is heavy
	newPrice  = `{"overage_rate":2}`
)

// watch sends twelve requests of the well-behaved tenant per second, without waiting for earlier answers.
func (d *drill) watch(lasts time.Duration) *seen {
	s := new(seen)
	var requests sync.WaitGroup
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := range int(lasts / pace) {
		select {
		case <-tick.C:
		case <-d.Context().Done():
			d.Fatal(d.Context().Err())
		}
		requests.Go(func() { d.behave(s, n) })
	}
	requests.Wait()
	return s
}

// behave sends the n-th request, and records its duration and whether it failed.
func (d *drill) behave(s *seen, n int) {
	who, method, path, body, headers := d.ours, "POST", "/v1/events", event, []string(nil)
	want := http.StatusOK
	switch {
	case n%signInPace == signInPace/2:
		who.Key, path = "", "/v1/auth/login"
		body = fmt.Sprintf(`{"email":%q,"password":%q,"tenant_id":%q}`, d.Email, password, d.ours.ID)
	case n%heavyPace == heavyPace/3:
		path, body = heavyPath, newPrice
	case n%4 == 1:
		headers = d.signed(body)
	case n%4 == 2:
		method, path, body = "GET", "/v1/usage/total?customer=acme", ""
	case n%4 == 3:
		path, body = "/v1/events/batch", `{"events":[`+event+`,`+event+`]}`
	case n%syncPace == 0:
		path, body = syncPath, `{"customer_external_id":"acme"}`
	}
	began := time.Now()
	status, text, err := d.send(d.Context(), who, method, path, body, headers...)
	took := time.Since(began)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch path {
	case syncPath:
		s.synced = append(s.synced, took)
	case heavyPath:
		s.heavy = append(s.heavy, took)
	default:
		s.took = append(s.took, took)
	}
	switch {
	case err != nil || status != want:
		s.failed = append(s.failed, fmt.Sprintf("%s %s: status %d after %s: %s %v", method, path, status, took, text, err))
	case took > longest && path != syncPath && path != heavyPath:
		s.slow = append(s.slow, fmt.Sprintf("%s %s took %s", method, path, took))
	}
}

// signed returns the headers of a request that is signed with the HMAC secret of the well-behaved tenant.
func (d *drill) signed(body string) []string {
	timestamp, id := strconv.FormatInt(time.Now().Unix(), 10), rand.Text()
	mac := hmac.New(sha256.New, []byte(d.secret))
	mac.Write([]byte(timestamp + ":" + id + ":" + body))
	return []string{
		"Authorization", "HMAC v1:" + base64.StdEncoding.EncodeToString(mac.Sum(nil)),
		"X-Timestamp", timestamp, "X-Request-Id", id, "X-Tenant-Id", d.ours.ID,
	}
}
