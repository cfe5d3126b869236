package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// attacker is a kind of attack. It is repeated until the attackers are stopped.
type attacker struct {
	name  string
	times int                                        // attackers in parallel
	again func(ctx context.Context, g target, n int) // makes one attempt; n is the number of the attacker
}

// madeAlone are the names of attacks that do not run together with the other attacks. If all attacks ran
// together, an API process would need up to 177 MiB, because the limits of bodies, answers and password hashes
// are independent of each other.
var madeAlone = []string{newcomers, hourlyUsage, unratedTotals, unknownSignIns}

const (
	newcomers      = "batches of new customers and groups of twenty meters"
	hourlyUsage    = "hourly usage of 10,000 groups"
	unratedTotals  = "totals of unrated usage of two tenants"
	unknownSignIns = "sign-ins of nobody at 48 addresses"
)

const (
	atFullSpeed = 20 * time.Millisecond // the pause between the attempts of an attacker
	hold        = 5 * time.Second       // time for which a connection is kept open
)

// attacks are requests that once impaired other tenants. Each runs alone, and all except madeAlone run
// together.
var attacks = []attacker{
	// From one address, without a credential.
	{"a stranger's batches that stop before they begin", 8, func(ctx context.Context, g target, n int) {
		g.stall(ctx, strangerAddress, "POST /v1/events/batch", forged(g.OurID)+"Content-Length: 8388608\r\n", "")
	}},
	{"a stranger's bodies that stop before their end", 16, func(ctx context.Context, g target, n int) {
		g.stall(ctx, strangerAddress, "POST /v1/customers", forged(g.OurID)+"Content-Length: 1048576\r\n", strings.Repeat(" ", 1<<20-1))
	}},
	{"a stranger's headers without an end", 4, func(ctx context.Context, g target, _ int) {
		g.stall(ctx, strangerAddress, "GET /openapi.json", "", "")
	}},
	{"a stranger's guesses of a password", 4, func(ctx context.Context, g target, _ int) {
		body := fmt.Sprintf(`{"email":%q,"password":"not the password","tenant_id":%q}`, g.Email, g.OurID)
		g.try(ctx, tenant{Address: strangerAddress}, "POST", "/v1/auth/login", body)
	}},
	{"a stranger's guesses of a key", 4, func(ctx context.Context, g target, _ int) {
		g.try(ctx, tenant{Address: strangerAddress, Key: "svc_adm_" + strings.Repeat("x", 32)}, "GET", "/v1/customers", "")
	}},
	// From many addresses, without a credential.
	{"signed bodies of many addresses that dribble", 40, dribbleSigned},
	{"headers of many connections without an end", 8, sendUnfinishedHeaders},
	{"idle connections", 8, keepConnectionsIdle},
	{"guesses of a password from many addresses", 20, guessSignIns},
	{unknownSignIns, 48, func(ctx context.Context, g target, n int) {
		body := fmt.Sprintf(`{"email":"%d@example.com","password":"guess"}`, rand.Int())
		g.try(ctx, tenant{Address: fmt.Sprintf("100.65.0.%d", n)}, "POST", "/v1/auth/login", body)
	}},
	{"forged provider events", 8, forgeProviderEvents},
	// From another tenant.
	{"batches in chunks that stop", 4, func(ctx context.Context, g target, _ int) {
		chunk := fmt.Sprintf("%x\r\n%s\r\n", 3<<20, strings.Repeat(" ", 3<<20))
		g.stall(ctx, theirAddress, "POST /v1/events/batch", "Authorization: Bearer "+g.Ingest+"\r\nTransfer-Encoding: chunked\r\n", chunk)
	}},
	{"definitions of a meter", 40, func(ctx context.Context, g target, n int) {
		g.try(ctx, g.Theirs, "PATCH", "/v1/meters/calls", fmt.Sprintf(`{"group_by":["p%d"]}`, n%7))
	}},
	{"batches of 1,000 events", 8, func(ctx context.Context, g target, _ int) {
		g.try(ctx, g.Theirs, "POST", "/v1/events/batch", batchOf(func(int) string { return event }))
	}},
	{newcomers, 24, sendNewcomers},
	{hourlyUsage, 4, func(ctx context.Context, g target, _ int) {
		g.try(ctx, g.Theirs, "GET", "/v1/usage?customer=acme&meter=grouped&granularity=hour&page_size=10000", "")
	}},
	{unratedTotals, 4, func(ctx context.Context, g target, n int) {
		g.try(ctx, []tenant{g.Theirs, g.Third}[n%2], "GET", "/v1/billing/unrated/totals", "")
	}},
	{"summaries of usage", 4, func(ctx context.Context, g target, _ int) {
		g.try(ctx, g.Theirs, "GET", "/v1/usage/summary?customer=acme", "")
	}},
	{"revenue of all customers", 8, func(ctx context.Context, g target, _ int) {
		g.try(ctx, g.Theirs, "GET", "/v1/billing/revenue", "")
	}},
	{"previews of a price for all customers", 8, func(ctx context.Context, g target, _ int) {
		g.try(ctx, g.Theirs, "POST", "/v1/meters/calls/pricing/preview", `{"overage_rate":2}`)
	}},
	{"exports that nobody reads", 14, func(ctx context.Context, g target, _ int) {
		g.stall(ctx, theirAddress, "GET /v1/usage/export?customer=acme", "Authorization: Bearer "+g.Theirs.Key+"\r\n", "")
	}},
	{"lists that nobody reads", 10, func(ctx context.Context, g target, _ int) {
		g.stall(ctx, theirAddress, "GET /v1/customers?page_size=1000", "Authorization: Bearer "+g.Theirs.Key+"\r\n", "")
	}},
	{"invitations", 4, func(ctx context.Context, g target, n int) {
		g.try(ctx, g.Theirs, "POST", "/v1/tenant/members", fmt.Sprintf(`{"email":"%d-%d@example.com","role":"viewer"}`, n, time.Now().UnixNano()))
	}},
	{"redeliveries of a webhook", 4, func(ctx context.Context, g target, _ int) {
		_, text, err := g.send(ctx, g.Theirs, "GET", "/v1/webhooks/"+g.Hook+"/deliveries?page_size=1", "")
		var list struct {
			Data []createdResource `json:"data"`
		}
		if err != nil || json.Unmarshal(text, &list) != nil || len(list.Data) == 0 {
			g.try(ctx, g.Theirs, "POST", "/v1/webhooks/"+g.Hook+"/test", "")
			return
		}
		g.try(ctx, g.Theirs, "POST", "/v1/webhooks/"+g.Hook+"/deliveries/"+list.Data[0].ID+"/redeliver", "")
	}},
	{"backfills of meters", 4, func(ctx context.Context, g target, n int) {
		slug := fmt.Sprintf("attack-%d-%d", n, time.Now().UnixNano())
		g.try(ctx, g.Theirs, "POST", "/v1/meters", fmt.Sprintf(`{"slug":%q,"event_type":"call","aggregation":"count","group_by":["p"]}`, slug))
		g.try(ctx, g.Theirs, "POST", "/v1/meters/"+slug+"/archive", "")
	}},
	{"guesses of a password beside a tenant", 4, func(ctx context.Context, g target, _ int) { // passwords are hashed in turns by address
		g.try(ctx, g.Theirs, "POST", "/v1/auth/login", fmt.Sprintf(`{"email":%q,"password":"not the password"}`, g.Email))
	}},
	{"tests of a webhook", 4, func(ctx context.Context, g target, _ int) {
		g.try(ctx, g.Theirs, "POST", "/v1/webhooks/"+g.Hook+"/test", "")
	}},
	{"lists of large items that nobody reads", 16, requestUnreadList},
	{"reads of groups with long keys", 2, readGroups},
	{"new groups of twenty meters", 1, makeGroups},
	{"backfills by a property of 16 KB", 1, regroup},
}

// batchOf returns a batch of 1,000 events.
func batchOf(event func(i int) string) string {
	events := make([]string, 1000)
	for i := range events {
		events[i] = event(i)
	}
	return `{"events":[` + strings.Join(events, ",") + `]}`
}

// sendNewcomers sends a batch of events, each with a new customer and a new group of twenty meters.
func sendNewcomers(ctx context.Context, g target, _ int) {
	long := strings.Repeat("x", 300)
	g.try(ctx, g.Theirs, "POST", "/v1/events/batch", batchOf(func(int) string {
		n := rand.Int()
		return fmt.Sprintf(`{"event_type":"wide","customer_id":"c-%d","properties":{"a":"%d-%s","b":%q,"c":%q}}`, n, n, long, long, long)
	}))
}

// requestUnreadList requests a list of large items and does not read the answer.
func requestUnreadList(ctx context.Context, g target, n int) {
	lists := []string{"/v1/customers?page_size=200", "/v1/events?page_size=200", "/v1/audit-log?page_size=1000"}
	g.stall(ctx, theirAddress, "GET "+lists[n%len(lists)], "Authorization: Bearer "+g.Theirs.Key+"\r\n", "")
}

// readGroups reads many groups with long keys.
func readGroups(ctx context.Context, g target, n int) {
	g.try(ctx, g.Theirs, "GET", fmt.Sprintf("/v1/usage?customer=acme&meter=wide%d&page_size=10000", n), "")
}

// makeGroups sends events with new groups of twenty meters, some with keys beyond the limit.
func makeGroups(ctx context.Context, g target, n int) {
	now := time.Now().UnixNano()
	var events []string
	for i := range 100 {
		events = append(events, fmt.Sprintf(`{"event_type":"wide","customer_id":"acme","properties":{"a":"%d-%d-%d-%s","b":1,"c":2,"d":3}}`, n, now, i, strings.Repeat("x", 12*i)))
	}
	g.try(ctx, g.Theirs, "POST", "/v1/events/batch", `{"events":[`+strings.Join(events, ",")+`]}`)
}

// regroup changes a meter so that its events are counted again by a property of 16 KB.
func regroup(ctx context.Context, g target, n int) {
	g.try(ctx, g.Theirs, "PATCH", "/v1/meters/calls", fmt.Sprintf(`{"group_by":["p","q%d"]}`, n))
}

const (
	manyAddresses   = 1000
	manyPrefixes    = 200 // addresses that connect directly, without a proxy
	manyConnections = 250 // of one attacker at once
)

// oneOfMany returns a random one of manyAddresses.
func oneOfMany() string {
	n := rand.IntN(manyAddresses)
	return fmt.Sprintf("100.64.%d.%d", n/256, n%256)
}

// dribbleSigned sends one megabyte of a batch with a forged signature and a unique cookie, and then stops.
func dribbleSigned(ctx context.Context, g target, _ int) {
	headers := forged(g.OurID) + fmt.Sprintf("Cookie: a=%d\r\nContent-Length: 8388608\r\n", rand.Int())
	g.stall(ctx, oneOfMany(), "POST /v1/events/batch", headers, strings.Repeat(" ", 1<<20))
}

// sendUnfinishedHeaders opens connections and sends 60 KB of an unfinished header on each.
func sendUnfinishedHeaders(ctx context.Context, g target, _ int) {
	g.openMany(ctx, "GET /healthz HTTP/1.1\r\nHost: odometer\r\nX-Padding: "+strings.Repeat("x", 60<<10))
}

// keepConnectionsIdle sends one request on each of many connections, and keeps them open.
func keepConnectionsIdle(ctx context.Context, g target, _ int) {
	g.openMany(ctx, "GET /healthz HTTP/1.1\r\nHost: odometer\r\n\r\n")
}

// guessSignIns guesses the password of a member of the well-behaved tenant.
func guessSignIns(ctx context.Context, g target, _ int) {
	body := fmt.Sprintf(`{"email":%q,"password":"guess %d"}`, g.Email, rand.Int())
	g.try(ctx, tenant{Address: oneOfMany()}, "POST", "/v1/auth/login", body)
}

// forgeProviderEvents sends an event without Stripe's signature.
func forgeProviderEvents(ctx context.Context, g target, _ int) {
	g.try(ctx, tenant{Address: oneOfMany()}, "POST", "/v1/provider-webhooks/stripe/"+g.OurID, `{"id":"evt_1","type":"invoice.created"}`)
}

// openMany opens connections from an address that is not a proxy, sends the text on each, and closes them
// after hold.
func (g target) openMany(ctx context.Context, text string) {
	stranger := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 0, byte(1+rand.IntN(manyPrefixes)))}}
	for range manyConnections {
		conn, err := stranger.DialContext(ctx, "tcp", g.Address)
		if err != nil {
			break
		}
		defer conn.Close()
		_ = conn.SetWriteDeadline(time.Now().Add(hold))
		_, _ = io.WriteString(conn, text) // an error means that the API has closed the connection
	}
	wait(ctx, hold)
}

// wait waits for the pause. It returns false if ctx ends first.
func wait(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// forged returns the headers of a forged signature.
func forged(tenant string) string {
	return fmt.Sprintf("Authorization: HMAC v1:%s=\r\nX-Timestamp: %d\r\nX-Request-Id: forged\r\nX-Tenant-Id: %s\r\n",
		strings.Repeat("A", 43), time.Now().Unix(), tenant)
}

// stall sends the beginning of a request, reads no answer, and closes the connection after hold.
func (g target) stall(ctx context.Context, address, path, headers, body string) {
	conn, err := net.Dial("tcp", g.Address)
	if err != nil {
		return
	}
	defer conn.Close()
	if limited, is := conn.(*net.TCPConn); is {
		_ = limited.SetReadBuffer(4 << 10)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(hold))
	_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: odometer\r\nX-Forwarded-For: %s\r\n%s\r\n%s", path, address, headers, body)
	if err == nil {
		wait(ctx, hold)
	}
}

// brokenAnswers is the number of answers with status 500.
var brokenAnswers atomic.Int64

// try sends a request, ignores errors, and counts an answer with status 500.
func (g target) try(ctx context.Context, who tenant, method, path, body string) {
	status, _, err := g.send(ctx, who, method, path, body)
	if err == nil && status == http.StatusInternalServerError {
		fmt.Fprintf(os.Stderr, "%s %s: %d\n", method, path, status)
		brokenAnswers.Add(1)
	}
}
