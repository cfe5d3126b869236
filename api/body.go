package api

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/metering"
)

// Limits of the memory for all request bodies in the process, in bytes. Each purpose has its own limit, so
// that one purpose cannot use up the memory of another.
const (
	tenantsBytes       = 2 * (2*maxEventsBody + maxBatch*eventCharge) // one tenant alone can send a signed body of any allowed size
	signedBytes        = maxSignedBytes + maxSignedBytes/2            // signed bodies that are not verified yet
	providerEventBytes = 4 << 20
)

// Limits for one address prefix, in bytes.
const (
	maxSignedBytes        = maxEventsBody + leastCharge // fits a body of any allowed size
	maxProviderEventBytes = maxProviderEvent + leastCharge
)

// smallBody is the size up to which bodies are not counted for an address prefix, because the number of
// connections bounds them. Requests without a credential, such as sign-ins, accept only bodies of this size.
// Provider events are the exception.
const smallBody = 8 << 10

// A body is charged for the bytes that have arrived and for the reader's buffers.
const (
	leastCharge = 16 << 10 // minimum for a tenant's request, until its response
	eventCharge = 512      // for each event in addition to its bytes, until it is stored
	mostAhead   = 64 << 10
)

// Bounds of the unread rest of a body after the response.
const (
	readByServer = 256 << 10 // net/http reads up to this size itself
	mostDrained  = 8 * maxEventsBody
)

// Deadline of a body: bodyTime, and one more second for each slowestBytes that have arrived.
const (
	bodyTime     = 10 * time.Second
	slowestBytes = 16 << 10
)

// bodies counts the bytes of request bodies. The body of an authenticated sender is charged to its tenant.
// Before authentication it is charged to the address prefix, the only property that a sender cannot choose.
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

// bodyBudget is a memory limit to which bodies are charged.
type bodyBudget interface {
	name() string
	// fits reports whether a body of n bytes can start.
	fits(n int64) bool
	// tryTake reserves n more bytes for a body, or reports false if there is no room.
	tryTake(b *body, n int64) bool
	// take is tryTake, except that it can wait for room.
	take(b *body, n int64) bool
	// arrived is called after the last byte of a body.
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
func (t tenantShare) give(b *body)                  { t.shares.Give(t.tenant, b.paid) }

// body is a request body that is charged as it arrives. A declared length alone is not charged.
type body struct {
	io.ReadCloser
	connection *http.ResponseController
	declared   int64 // Content-Length; -1: unknown
	budget     bodyBudget
	prefix     string // of the sender's address
	least      int64  // minimum charge; 0: charged to an address prefix
	decoded    int64  // charge of the decoded events
	copies     int64  // number of copies in memory of each byte
	read       int64
	paid       int64
	complete   bool
	waited     time.Duration // time spent waiting for room
	began      time.Time
	time       time.Duration
	refused    *refusedBodies

	mu    sync.Mutex // guards the connection's deadline
	ended bool       // ended to make room for another body
}

// receive wraps the request's body. The body is charged to the sender's address prefix.
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
	received.keepPace() // also for an unread body, because the server waits for its end
	r.Body = received
	return received
}

var (
	errFull  = metering.Errorf(metering.CodeOverloaded, "too many request bodies are waiting to be stored; try again")
	errEnded = metering.Errorf(metering.CodeOverloaded, "the body arrived too slowly while memory was short; try again")
)

// Read reads the bytes that have arrived, and reserves memory for them before it returns them.
func (b *body) Read(p []byte) (int, error) {
	if b.paid == 0 && !b.budget.fits(b.copies*max(min(b.declared, maxEventsBody), b.least)) { // a larger body is refused for its size
		return 0, b.refuse("full", errFull)
	}
	if err := b.pay(); err != nil {
		return 0, err
	}
	n, err := b.arrive(p[:min(len(p), mostAhead)])
	if full := b.pay(); full != nil {
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

// arrive reads from the connection and extends the deadline for the bytes that have arrived.
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

// keepPace sets the deadline for the bytes that have arrived so far.
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

// end makes the goroutine that reads the body fail with a timeout.
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

// Close does nothing: drain reads the rest, and the server closes its own body.
func (b *body) Close() error { return nil }

// drain discards up to mostDrained bytes of a body after an early response. Otherwise a client that sends its
// whole body before it reads would get a connection error. A client that waits for 100 Continue is skipped.
func (b *body) drain(r *http.Request) {
	waits := b.read == 0 && strings.EqualFold(r.Header.Get("Expect"), "100-continue")
	rest := b.declared - b.read
	if r.Body != b || b.complete || waits || b.declared >= 0 && rest < readByServer {
		return
	}
	_ = b.connection.Flush()
	_, _ = io.CopyN(io.Discard, arriving{b}, mostDrained) // beyond mostDrained, the connection is closed
}

// arriving reads a body without storing it, so without a charge.
type arriving struct{ body *body }

func (a arriving) Read(p []byte) (int, error) { return a.body.arrive(p) }

// pay reserves memory for the bytes that have arrived. It reserves as much again ahead, so that not every
// packet needs a reservation.
func (b *body) pay() error {
	due := max(b.copies*b.read, b.least) + b.decoded
	isSmall := b.least == 0 && b.read <= smallBody
	if isSmall || due <= b.paid {
		return nil
	}
	ahead := due + min(due, mostAhead)
	if b.declared >= 0 {
		ahead = min(ahead, max(b.copies*b.declared+b.decoded, due))
	}
	if b.budget.tryTake(b, ahead-b.paid) {
		b.paid = ahead
		return nil
	}
	if b.budget.take(b, due-b.paid) {
		b.paid = due
		return nil
	}
	if b.hasEnded() {
		return b.refuse("ended", errEnded)
	}
	return b.refuse("full", errFull)
}

// payByTenant moves the charge of a body to the tenant of its authenticated sender. The bytes that were read
// ahead count twice, because they stay in memory together with their decoded values.
func (b *body) payByTenant(bodies bodies, tenant metering.TenantID) error {
	b.giveBack()
	b.budget, b.least, b.copies = tenantShare{bodies.tenants, tenant.String()}, leastCharge, 1
	if b.read == 0 {
		return nil
	}
	b.copies = 2
	return b.pay()
}

// payForEvents reserves memory for the number of events that are decoded from the body.
func (b *body) payForEvents(events int) error {
	b.decoded = int64(events) * eventCharge
	return b.pay()
}

// giveBack releases the reserved memory. It is called when no part of the body is in memory.
func (b *body) giveBack() {
	if b.paid > 0 {
		b.budget.give(b)
		b.paid = 0
	}
}

func tooLarge(most int64) error {
	return metering.Errorf(metering.CodeTooLarge, "the body must have at most %d bytes", most)
}

func timedOut(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// bodyProblem returns an error for a body that is too large, too slow or beyond a memory limit, or nil.
func bodyProblem(err error, most int64) error {
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return tooLarge(most)
	}
	if timedOut(err) {
		return metering.Errorf(codeTimeout, "the body must arrive at %d bytes per second or more", slowestBytes)
	}
	for _, busy := range []error{errFull, errEnded, errBusy} {
		if errors.Is(err, busy) {
			return busy
		}
	}
	return nil
}
