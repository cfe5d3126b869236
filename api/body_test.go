package api_test

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// stall begins a request and leaves its connection open until the test ends.
func (b *bundle) stall(t testing.TB, body, path string, headers ...string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10)) // the client buffers little of the response
	// The server can refuse the body and end the connection before it has read the whole body.
	_, _ = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: odometer\r\n%s\r\n\r\n%s", path, strings.Join(headers, "\r\n"), body)
	return conn
}

const toBatch = "POST /v1/events/batch"

// forged returns the headers of a forged signature with the tenant's id.
func (b *bundle) forged() []string {
	return []string{
		"Authorization: HMAC v1:" + strings.Repeat("A", 43) + "=", "X-Timestamp: " + strconv.FormatInt(b.now().Unix(), 10),
		"X-Request-Id: x", "X-Tenant-Id: " + b.tenant.ID.String(),
	}
}

// stranger returns the X-Forwarded-For header of one of many unknown clients.
func stranger(n int) string { return forwardedFor(fmt.Sprintf("100.64.%d.%d", n/256, n%256)) }

// chunk returns one chunk of a body without a declared length.
func chunk(size int) string { return fmt.Sprintf("%x\r\n%s\r\n", size, strings.Repeat(" ", size)) }

func TestStalledBodiesDoNotBlockOtherRequests(t *testing.T) {
	t.Parallel()
	ours := setup(t).strict(t, 1_000_000)
	theirs := ours.of(t, dbtest.Tenant(t, ours.store))
	s, large := ours.newSigner(t, metering.ScopeIngestOnly), strings.Repeat(" ", 4<<20)
	elsewhere := append(ours.forged(), forwardedFor("198.51.100.7"))
	attacks := map[string]func(t *testing.T){
		"bogus signatures": func(t *testing.T) {
			for range 2 {
				ours.stall(t, "", toBatch, append(ours.forged(), "Content-Length: 8388608")...)
			}
		},
		"bogus signatures that have come but for a byte": func(t *testing.T) {
			for range 4 {
				ours.stall(t, large, toBatch, append(elsewhere, "Content-Length: 4194305")...)
			}
		},
		"bogus signatures elsewhere": func(t *testing.T) {
			for range 16 {
				ours.stall(t, large[:1<<20-1], "POST /v1/customers", append(elsewhere, "Content-Length: 1048576")...)
			}
		},
		"chunks of another tenant": func(t *testing.T) {
			for range 4 {
				ours.stall(t, chunk(3<<20), toBatch, "Authorization: Bearer "+theirs.key, "Transfer-Encoding: chunked")
			}
		},
		"declared by another tenant": func(t *testing.T) {
			for range 100 {
				ours.stall(t, "{", toBatch, "Authorization: Bearer "+theirs.key, "Content-Length: 8388608")
			}
		},
		"sign-ins": func(t *testing.T) {
			for range 100 {
				ours.stall(t, `{"email":"`+large[:1<<10], "POST /v1/auth/login", "Content-Type: application/json", "Content-Length: 8000")
			}
		},
	}
	for _, addresses := range []int{1, 14, 200, 1000} {
		attacks[fmt.Sprintf("signed bodies that dribble from %d addresses", addresses)] = func(t *testing.T) {
			body := large[:min(4<<20, 16<<20/addresses)]
			for n := range addresses {
				ours.stall(t, body, toBatch, append(ours.forged(), stranger(n), "Content-Length: 8000000")...)
			}
		}
		attacks[fmt.Sprintf("sign-ins and provider events that dribble from %d addresses", addresses)] = func(t *testing.T) {
			for n := range addresses {
				for range max(1, 200/addresses) {
					ours.stall(t, `{"email":"`+large[:6<<10], "POST /v1/auth/login", stranger(n), "Content-Type: application/json", "Content-Length: 8000")
					ours.stall(t, large[:16<<10], "POST /v1/provider-webhooks/stripe/ten_1", stranger(n), "Content-Type: application/json", "Content-Length: 1000000")
				}
			}
		}
	}
	attacks["cookies beside a tenant's signatures"] = func(t *testing.T) {
		for n := range 14 {
			cookie := fmt.Sprintf("Cookie: a=%d", n)
			require.Equal(t, 200, ours.send(t, "POST", "/v1/events", hello, append(s.sign(hello), cookie, stranger(n))...).status)
			ours.stall(t, large[:3<<20], toBatch, append(ours.forged(), cookie, stranger(n), "Content-Length: 8000000")...)
		}
	}
	attacks["all at once"] = func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(attacks)) {
			if name != "all at once" {
				attacks[name](t)
			}
		}
	}
	finds := func(t *testing.T, status int, path, body string, headers func() []string) {
		dbtest.Eventually(t, func() error { // after a flood, memory becomes free soon, not immediately
			if a := ours.send(t, "POST", path, body, headers()...); a.status != status {
				return fmt.Errorf("%d %s", a.status, a.body)
			}
			return nil
		})
	}
	signed := func(t *testing.T, path, body string) {
		finds(t, 200, path, body, func() []string { return s.sign(body) })
	}
	noCredential := func() []string { return []string{"Authorization: "} }
	goOn := func(t *testing.T) {
		ours.ingest(t, "/v1/events", hello)
		signed(t, "/v1/events", hello)
		batch := `{"events":[` + hello + `]}` + large
		require.Equal(t, 200, ours.send(t, "POST", "/v1/events/batch", batch).status)
		signed(t, "/v1/events/batch", batch)
		require.Less(t, ours.send(t, "PUT", "/v1/customers/acme/upsert", `{}`).status, 300)
		finds(t, 401, "/v1/auth/login", fmt.Sprintf(`{"email":%q,"password":"x"}`, strings.ToLower(rand.Text())+"@example.com"), noCredential)
		finds(t, 400, "/v1/provider-webhooks/stripe/"+ours.tenant.ID.String(), `{}`, noCredential)
	}
	goOn(t)
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			attack(t)
			goOn(t)
		})
	}
}

func TestSlowRequestBodyTimesOut(t *testing.T) {
	t.Parallel()
	b := setup(t).replicaWithin(t, 200*time.Millisecond)
	heads := [][]string{
		{toBatch, "Authorization: Bearer " + b.key, "Content-Length: 100"},
		append([]string{toBatch, "Content-Length: 100"}, b.forged()...),
		{"POST /v1/customers", "Authorization: Bearer " + b.key, "Content-Length: 100"},
		{"POST /v1/auth/login", "Content-Length: 100"},
		{"GET /v1/customers", "Content-Length: 100"},
		{"POST /nowhere", "Content-Length: 100"},
	}
	conns := make([]net.Conn, len(heads))
	for i, head := range heads {
		conns[i] = b.stall(t, "{", head[0], head[1:]...)
	}
	for i, conn := range conns {
		head := heads[i]
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(dbtest.Deadline)))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, head[0])
		require.GreaterOrEqual(t, response.StatusCode, 400, head[0])
		response.Body.Close()
	}
}

// replicaWithin starts a replica that waits this long for the body of a request.
func (b *bundle) replicaWithin(t testing.TB, bodyTime time.Duration) *bundle {
	return b.replica(t, func(d *api.Deps) { d.BodyTime = bodyTime })
}

// of returns a bundle of another tenant at the same server, with an admin key.
func (b *bundle) of(t testing.TB, tenant metering.Tenant) *bundle {
	t.Helper()
	other := &bundle{store: b.store, writer: b.writer, keys: b.keys, tenant: tenant, url: b.url, temporal: b.temporal, clock: b.clock, deps: b.deps, contract: b.contract}
	other.key = other.newKey(t, metering.ScopeAdmin)
	return other
}

// TestClientThatSendsWholeBodyFirstGetsResponse checks that a client gets the response although it sends its
// whole body before it reads. Python's http.client does so. If the server responded before the end of the body and
// read no further, such a client would get a broken pipe.
func TestClientThatSendsWholeBodyFirstGetsResponse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	bearer := "Authorization: Bearer " + b.key
	large := strings.Repeat(" ", 24<<20)
	for name, c := range map[string]struct {
		head   []string
		chunks bool
		status int
	}{
		"a batch":              {[]string{toBatch, bearer}, false, 413},
		"a batch in chunks":    {[]string{toBatch, bearer}, true, 413},
		"an event":             {[]string{"POST /v1/events", bearer}, false, 413},
		"a customer":           {[]string{"POST /v1/customers", bearer, "Content-Type: application/json"}, false, 413},
		"a customer in chunks": {[]string{"POST /v1/customers", bearer, "Content-Type: application/json"}, true, 413},
		"a sign-in":            {[]string{"POST /v1/auth/login", "Content-Type: application/json"}, false, 413},
		"a provider event":     {[]string{"POST /v1/provider-webhooks/stripe/ten_1", "Content-Type: application/json"}, false, 413},
		"no credential":        {[]string{toBatch, "Authorization: Bearer x"}, false, 401},
		"a signature":          {append([]string{toBatch}, b.forged()...), false, 413},
		"no such path":         {[]string{"POST /nowhere", bearer}, false, 404},
		"another encoding":     {[]string{toBatch, bearer, "Content-Encoding: gzip"}, false, 415},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			length, body := "Content-Length: "+strconv.Itoa(len(large)), large
			if c.chunks {
				length, body = "Transfer-Encoding: chunked", strings.Repeat(chunk(1<<20), 24)+"0\r\n\r\n"
			}
			conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.SetDeadline(time.Now().Add(dbtest.Deadline)))
			_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: odometer\r\n%s\r\n%s\r\n\r\n", c.head[0], strings.Join(c.head[1:], "\r\n"), length)
			require.NoError(t, err)
			_, err = io.WriteString(conn, body)
			require.NoError(t, err, "the connection broke")
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, c.status, response.StatusCode, string(text))
		})
	}
}

// TestLargeBodyIsRefusedBefore100Continue checks that the server refuses a large body without waiting for it. curl
// sends a large body only after a 100 Continue.
func TestLargeBodyIsRefusedBefore100Continue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn := b.stall(t, "", toBatch, "Authorization: Bearer "+b.key, "Content-Length: 9000000", "Expect: 100-continue")
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(dbtest.Deadline)))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	_, err = io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, 413, response.StatusCode)
}

// TestTooLargeBodyReturns413EvenWithoutFreeMemory checks that a body above the maximum of its operation gets 413
// although too little memory is free for it. After a 503, the client would repeat the request in vain.
func TestTooLargeBodyReturns413EvenWithoutFreeMemory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refused := b.replica(t, func(d *api.Deps) { d.BodyBytes = 1 << 20 })
	for path, most := range map[string]int{"/v1/customers": 1 << 20, "/v1/events/batch": 8 << 20} {
		conn := refused.stall(t, "{", "POST "+path, "Authorization: Bearer "+b.key, fmt.Sprintf("Content-Length: %d", most+1))
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(dbtest.Deadline)))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, path)
		require.Equal(t, 413, response.StatusCode, path)
		require.NoError(t, conn.Close()) // the server waits for the rest of the body
		response.Body.Close()
	}
	require.NotContains(t, refused.send(t, "GET", "/readyz", "").body, "exhausted")
}

func TestBodyWithContentEncodingIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	for _, encoding := range []string{"gzip", "GZIP", "br", "deflate", "identity, gzip", "x"} {
		for path, body := range map[string]string{"/v1/events": hello, "/v1/events/batch": `{"events":[` + hello + `]}`, "/v1/customers": `{"external_id":"other"}`} {
			p := b.send(t, "POST", path, body, "Content-Encoding: "+encoding).problem(t, 415, "unsupported_media_type")
			require.Equal(t, "Content-Encoding must be absent or identity: send the body as plain JSON", p.Detail)
		}
	}
	b.send(t, "GET", "/v1/customers/other", "").problem(t, 404, "not_found")
	require.Equal(t, 200, b.send(t, "POST", "/v1/events", hello, "Content-Encoding: Identity").status)
	require.Equal(t, `{"total":2}`, b.total(t, "acme"))
}
