package api

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/metering"
)

// Limits of the memory for all request bodies in the process, in bytes. Each purpose has its own limit, so
// that one purpose cannot use up the memory of another.
const (
	// One tenant alone gets half of tenantsBytes, which fits a signed body of any allowed size.
	tenantsBytes       = 2 * (2*maxEventsBody + maxBatch*bytesPerEvent)
	signedBytes        = maxSignedBytes + maxSignedBytes/2 // signed bodies before their signature is verified
	providerEventBytes = 4 << 20
)

// Limits for one address prefix, in bytes.
const (
	maxSignedBytes        = maxEventsBody + leastReserved // fits a body of any allowed size
	maxProviderEventBytes = maxProviderEvent + leastReserved
)

// smallBody is the size in bytes up to which a body reserves no memory of its address prefix. The number of
// connections bounds the memory for such bodies. Requests without a credential, such as sign-ins, accept only
// bodies up to this size, except for provider events.
const smallBody = 8 << 10

// Memory that a body reserves, in bytes. A body reserves memory for the bytes that have arrived and for the buffers of
// its reader.
const (
	leastReserved = 16 << 10 // minimum for an authenticated body, until the response
	bytesPerEvent = 512      // for each event in addition to its bytes, until it is stored
	bytesPerValue = 512      // for each JSON name and value that huma decodes, with the errors that it finds there
	mostAhead     = 64 << 10
)

// maxValues is the maximum number of JSON names and values in a body that huma decodes. Decoded, a value takes up to
// 100 times its bytes.
const maxValues = 20_000

// Limits in bytes for the rest of a body that is unread when the response is sent.
const (
	readByServer = 256 << 10 // net/http reads up to this size itself
	mostDrained  = 8 * maxEventsBody
)

// The deadline of a body is bodyTime after its start, plus one second for each slowestBytes that have arrived. bodyTime
// is a variable because tests use a longer time, so that they do not fail on a busy machine.
const slowestBytes = 16 << 10

var bodyTime = 10 * time.Second

// bodies limits the memory for request bodies. The body of an authenticated sender reserves memory of the sender's
// tenant. Before authentication, a body reserves memory of the sender's address prefix, the only property that a
// sender cannot choose.
type bodies struct {
	tenants        *fair.Shares[string]
	signed         *prefixBudget
	providerEvents *prefixBudget
	time           time.Duration
	refused        *refusedBodies
}

func newBodies(deps Deps, refused *refusedBodies) bodies {
	b := bodies{
		tenants: fair.NewShares[string](tenantsBytes), time: bodyTime, refused: refused,
		signed:         newPrefixBudget("signed", signedBytes, maxSignedBytes),
		providerEvents: newPrefixBudget("provider_events", providerEventBytes, maxProviderEventBytes),
	}
	if deps.BodyBytes > 0 {
		b.tenants = fair.NewShares[string](deps.BodyBytes)
	}
	if deps.BodyTime > 0 {
		b.time = deps.BodyTime
	}
	return b
}

// bodyBudget is a limited amount of memory for bodies.
type bodyBudget interface {
	name() string
	// fits reports whether reading a body of n bytes may begin. For a prefixBudget, n must be within the limit of a
	// prefix. For a tenantShare, which never waits, n bytes of the tenant's share must be free.
	fits(n int64) bool
	// tryTake reserves n more bytes for a body. It returns false if too little memory is free.
	tryTake(b *body, n int64) bool
	// take is like tryTake, but can wait until memory is free.
	take(b *body, n int64) bool
	// arrived is called after the last byte of a body has been read.
	arrived(b *body)
	// give releases the bytes that are reserved for a body.
	give(b *body)
}

// tenantShare is a tenant's share of the memory for authenticated senders.
type tenantShare struct {
	shares *fair.Shares[string]
	tenant string
}

func (t tenantShare) name() string                  { return "tenants" }
func (t tenantShare) fits(n int64) bool             { return t.shares.Fits(t.tenant, n) }
func (t tenantShare) tryTake(_ *body, n int64) bool { return t.shares.Take(t.tenant, n) }
func (t tenantShare) take(b *body, n int64) bool    { return t.tryTake(b, n) }
func (t tenantShare) arrived(*body)                 {}
func (t tenantShare) give(b *body)                  { t.shares.Give(t.tenant, b.reserved) }

// body is a request body that reserves memory as its bytes arrive. Its Content-Length alone reserves no memory.
type body struct {
	io.ReadCloser
	connection *http.ResponseController
	declared   int64 // Content-Length; -1: unknown
	budget     bodyBudget
	prefix     string        // of the sender's address
	most       int64         // maximum size in bytes; 0: no operation reads the body
	least      int64         // minimum of reserved; 0: the budget is that of an address prefix
	decoded    int64         // memory for the decoded events
	copies     int64         // number of copies in memory of each byte
	values     *valueCounter // of a body that huma decodes
	read       int64
	reserved   int64
	complete   bool
	waited     time.Duration // time spent waiting for memory
	began      time.Time
	time       time.Duration
	refused    *refusedBodies

	mu    sync.Mutex // guards the connection's deadline
	ended bool       // end was called, to free memory for another body
}

// receive wraps the request's body. The body reserves memory of the sender's address prefix.
func (b bodies) receive(r *http.Request, w http.ResponseWriter, prefix string) *body {
	received := &body{
		ReadCloser: r.Body, connection: http.NewResponseController(w), declared: r.ContentLength,
		budget: b.signed, prefix: prefix, copies: 1, began: time.Now(), time: b.time, refused: b.refused,
	}
	if strings.HasPrefix(r.URL.Path, providerEventsPrefix) {
		received.budget = b.providerEvents
	}
	if r.Body == nil || r.Body == http.NoBody {
		return received
	}
	received.keepPace() // also for a body that no handler reads, because net/http waits for its end
	r.Body = received
	return received
}

// accept sets the limits of the operation that reads the body.
func (b *body) accept(op *huma.Operation) {
	b.most = largestBody(op)
	if decodesInHuma(op) {
		b.values = new(valueCounter)
	}
}

var (
	errFull  = metering.Errorf(metering.CodeOverloaded, "too many request bodies are waiting to be stored; try again")
	errEnded = metering.Errorf(metering.CodeOverloaded, "the body arrived too slowly while memory was short; try again")
)

// Read returns bytes that have arrived, after it has reserved memory for these bytes.
func (b *body) Read(p []byte) (int, error) {
	if b.declared > b.most {
		return 0, tooLarge(b.most)
	}
	if b.reserved == 0 && !b.budget.fits(max(b.declared, b.least)) {
		return 0, b.refuse("full", errFull)
	}
	if err := b.reserve(); err != nil {
		return 0, err
	}
	n, err := b.arrive(p[:min(len(p), mostAhead)])
	if b.read > b.most {
		return 0, tooLarge(b.most)
	}
	if b.values.add(p[:n]) > maxValues {
		return 0, errValues
	}
	if full := b.reserve(); full != nil {
		return 0, full
	}
	if errors.Is(err, io.EOF) {
		b.complete = true
		b.budget.arrived(b)
	}
	switch {
	case b.hasEnded():
		return 0, b.refuse("ended", errEnded)
	case timedOut(err):
		return n, b.refuse("slow", err)
	}
	return n, err
}

// refuse counts a refused body and returns err.
func (b *body) refuse(reason string, err error) error {
	b.refused.count(b.budget.name(), reason)
	return err
}

// arrive reads from the connection. Each byte that arrives extends the deadline of the body.
func (b *body) arrive(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		b.setDeadline(time.Time{}) // later bytes belong to other requests
	case n > 0:
		b.keepPace()
	}
	return n, err
}

// keepPace sets the read deadline that results from the number of bytes that have arrived.
func (b *body) keepPace() {
	b.setDeadline(b.began.Add(b.time + time.Duration(b.read)*time.Second/slowestBytes))
}

func (b *body) setDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		_ = b.connection.SetReadDeadline(t) // tests have no connection
	}
}

// end sets a read deadline in the past, so that reading the body fails with a timeout.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	_ = b.connection.SetReadDeadline(time.Unix(0, 1))
}

func (b *body) hasEnded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// Close does nothing: drain reads the rest of the body, and net/http closes the original body.
func (b *body) Close() error { return nil }

// drain discards up to mostDrained bytes of a body after an early response. Otherwise a client that sends its
// whole body before it reads would get a connection error. For a client that waits for 100 Continue, drain
// does nothing.
func (b *body) drain(r *http.Request) {
	waits := b.read == 0 && strings.EqualFold(r.Header.Get("Expect"), "100-continue")
	rest := b.declared - b.read
	if r.Body != b || b.complete || waits || b.declared >= 0 && rest < readByServer {
		return
	}
	_ = b.connection.Flush()
	_, _ = io.CopyN(io.Discard, arriving{b}, mostDrained) // beyond mostDrained, the connection is closed
}

// arriving reads a body to discard the bytes. It therefore reserves no memory.
type arriving struct{ body *body }

func (a arriving) Read(p []byte) (int, error) { return a.body.arrive(p) }

// reserve reserves memory for the bytes that have arrived. If enough memory is free, it also reserves up to the
// same amount for later bytes, so that not every packet needs a reservation.
func (b *body) reserve() error {
	due := max(b.copies*b.read+b.parsed(), b.least)
	isSmall := b.least == 0 && b.read <= smallBody
	if isSmall || due <= b.reserved {
		return nil
	}
	ahead := due + min(due, mostAhead)
	if b.declared >= 0 {
		ahead = min(ahead, max(b.copies*b.declared+b.parsed(), due))
	}
	if b.budget.tryTake(b, ahead-b.reserved) {
		b.reserved = ahead
		return nil
	}
	if b.budget.take(b, due-b.reserved) {
		b.reserved = due
		return nil
	}
	if b.hasEnded() {
		return b.refuse("ended", errEnded)
	}
	return b.refuse("full", errFull)
}

// parsed returns the memory for the decoded events and values. A body is decoded only after its sender is
// authenticated, or if it is small.
func (b *body) parsed() int64 {
	if b.least == 0 {
		return 0
	}
	return b.decoded + b.values.total()*bytesPerValue
}

// moveToTenant releases the memory of a body, and reserves memory of the tenant of its authenticated sender instead. If
// the body was read before authentication, each byte counts twice, because it stays in memory together with the
// decoded values.
func (b *body) moveToTenant(bodies bodies, tenant metering.TenantID) error {
	b.giveBack()
	b.budget, b.least, b.copies = tenantShare{bodies.tenants, tenant.String()}, leastReserved, 1
	if b.read == 0 {
		return nil
	}
	b.copies = 2
	return b.reserve()
}

// reserveForEvents reserves memory for the given number of decoded events, in addition to the memory for the bytes of
// the body.
func (b *body) reserveForEvents(events int) error {
	b.decoded = int64(events) * bytesPerEvent
	return b.reserve()
}

// giveBack releases the reserved memory. It is called at the end of the request, and by moveToTenant before the
// body reserves memory of another budget.
func (b *body) giveBack() {
	if b.reserved > 0 {
		b.budget.give(b)
		b.reserved = 0
	}
}

var errValues = metering.Errorf(metering.CodeTooLarge, "the body must have at most %d JSON names and values; send fewer items in one request", maxValues)

func tooLarge(most int64) error {
	return metering.Errorf(metering.CodeTooLarge, "the body must have at most %d bytes", most)
}

// timedOut reports whether a read failed because its deadline has passed.
func timedOut(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// bodyProblem returns the error to report if a body is too large, too slow or beyond a memory limit. Otherwise
// it returns nil.
func bodyProblem(err error) error {
	if timedOut(err) {
		return metering.Errorf(codeTimeout, "the body must arrive at %d bytes per second or more", slowestBytes)
	}
	if refusal, refused := errors.AsType[*metering.Error](err); refused {
		return refusal
	}
	return nil
}
