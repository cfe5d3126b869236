package api

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// Bytes of the bodies in the process at once, by purpose, so that one purpose
// cannot use up the memory of another. Tenants have their own.
const (
	tenantsBytes       = 2 * (2*maxEventsBody + maxBatch*eventCharge) // one tenant alone may hold a signed body of any size
	signedBytes        = 2 * maxSignedBytes                           // of signed bodies that are not verified yet
	providerEventBytes = 4 << 20
)

// Bytes that an address prefix may have of each.
const (
	maxSignedBytes        = maxEventsBody + leastCharge // so that a body of any size fits
	maxProviderEventBytes = maxProviderEvent + leastCharge
)

// smallBody is the size up to which a body costs no address prefix anything: there are no
// more of them than connections, which have a bound. Sign-ins and other requests without a
// credential, except provider events, have no larger ones.
const smallBody = 8 << 10

// A body costs the bytes that have arrived, and the reader's buffers ahead of them.
const (
	leastCharge = 16 << 10 // of a tenant, while the request is answered
	eventCharge = 512      // of each event beside its bytes, until it is stored
	mostAhead   = 64 << 10
)

// Bounds of the rest of a body that is answered before its end.
const (
	readByServer = 256 << 10 // net/http reads so much itself
	mostDrained  = 8 * maxEventsBody
)

// A body has bodyTime to arrive, and a second more for each slowestBytes that have.
const (
	bodyTime     = 10 * time.Second
	slowestBytes = 16 << 10
)

// bodies are the bytes of request bodies. The body of a verified sender is paid
// for by its tenant. Before that it is paid for by the address prefix that it
// comes from: the only thing about it that its sender does not choose.
type bodies struct {
	tenants        *db.Shares[string]
	signed         *prefixBudget
	providerEvents *prefixBudget
	time           time.Duration
	refused        *refusedBodies
}

func newBodies(deps Deps, refused *refusedBodies) bodies {
	b := bodies{
		tenants: db.NewShares[string](tenantsBytes), time: bodyTime, refused: refused,
		signed:         newPrefixBudget("signed", signedBytes, maxSignedBytes),
		providerEvents: newPrefixBudget("provider_events", providerEventBytes, maxProviderEventBytes),
	}
	if deps.BodyBytes > 0 {
		b.tenants = db.NewShares[string](deps.BodyBytes)
	}
	if deps.BodyTime > 0 {
		b.time = deps.BodyTime
	}
	return b
}

// bodyBudget pays for bodies.
type bodyBudget interface {
	name() string
	// fits reports whether a body of n bytes can begin.
	fits(n int64) bool
	// tryTake pays for n more bytes of a body, or reports that there is no room.
	tryTake(b *body, n int64) bool
	// take is tryTake that may wait for room.
	take(b *body, n int64) bool
	// arrived is called at the end of a body.
	arrived(b *body)
	// give returns what was paid for a body.
	give(b *body)
}

// tenantShare is a tenant's share of the bytes of verified senders.
type tenantShare struct {
	shares *db.Shares[string]
	tenant string
}

func (t tenantShare) name() string                  { return "tenants" }
func (t tenantShare) fits(n int64) bool             { return t.shares.Fits(t.tenant, n) }
func (t tenantShare) tryTake(_ *body, n int64) bool { return t.shares.Take(t.tenant, n) }
func (t tenantShare) take(b *body, n int64) bool    { return t.tryTake(b, n) }
func (t tenantShare) arrived(*body)                 {}
func (t tenantShare) give(b *body)                  { t.shares.Give(t.tenant, b.paid) }

// body is a request's body that is paid for as it arrives: a length that is
// only declared costs nothing.
type body struct {
	io.ReadCloser
	connection *http.ResponseController
	declared   int64 // -1: not
	budget     bodyBudget
	prefix     string // of the sender's address
	least      int64  // that it costs; 0: it is of an address prefix
	decoded    int64  // charge of the events that were read from it
	copies     int64  // that are held of each byte
	read       int64
	paid       int64
	complete   bool
	waited     time.Duration // for room
	began      time.Time
	time       time.Duration
	refused    *refusedBodies

	mu    sync.Mutex // of the connection's deadline
	ended bool       // to make room for another body
}

// receive lets the sender's address prefix pay for the request's body.
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
	received.keepPace() // also of a body that is never read: the server waits for its end
	r.Body = received
	return received
}

var (
	errFull  = metering.Errorf(metering.CodeOverloaded, "too many request bodies are waiting to be stored; try again")
	errEnded = metering.Errorf(metering.CodeOverloaded, "the body arrived too slowly while memory was short; try again")
)

// Read reads the bytes that have arrived, and pays for them before it returns them.
func (b *body) Read(p []byte) (int, error) {
	if b.paid == 0 && !b.budget.fits(b.copies*max(min(b.declared, maxEventsBody), b.least)) { // a larger one is refused for its size
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

// refuse counts a body that is not read to its end.
func (b *body) refuse(reason string, err error) error {
	b.refused.count(b.budget.name(), reason)
	return err
}

// arrive reads from the connection, and gives the body more time for the bytes that came.
func (b *body) arrive(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		b.setDeadline(time.Time{}) // the bytes after it are not the body's
	case n > 0:
		b.keepPace()
	}
	return n, err
}

// keepPace sets the deadline that the body's bytes have earned.
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

// end makes the body's reader stop, while the body is being read.
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

// Close leaves the rest of the body to drain. The server closes its body itself.
func (b *body) Close() error { return nil }

// drain discards the rest of a body that was answered early, up to mostDrained bytes.
// Otherwise a client that sends the whole body before it reads would see a broken
// connection. It skips a client that still waits for 100 Continue.
func (b *body) drain(r *http.Request) {
	waits := b.read == 0 && strings.EqualFold(r.Header.Get("Expect"), "100-continue")
	rest := b.declared - b.read
	if r.Body != b || b.complete || waits || b.declared >= 0 && rest < readByServer {
		return
	}
	_ = b.connection.Flush()
	_, _ = io.CopyN(io.Discard, arriving{b}, mostDrained) // then the connection is closed
}

// arriving reads a body that is not kept, and so not paid for.
type arriving struct{ body *body }

func (a arriving) Read(p []byte) (int, error) { return a.body.arrive(p) }

// pay pays in steps as large as what has come, so that budgets are not asked
// for each packet.
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

// payByTenant lets the tenant of a verified sender pay, also for the bytes that have arrived.
// Bytes that were read ahead stay in memory beside the values that are decoded from them.
func (b *body) payByTenant(bodies bodies, tenant metering.TenantID) error {
	b.giveBack()
	b.budget, b.least, b.copies = tenantShare{bodies.tenants, tenant.String()}, leastCharge, 1
	if b.read == 0 {
		return nil
	}
	b.copies = 2
	return b.pay()
}

// payForEvents pays for so many events that are read from the body.
func (b *body) payForEvents(events int) error {
	b.decoded = int64(events) * eventCharge
	return b.pay()
}

// giveBack is called when nothing of the body is in memory any longer.
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

// bodyProblem says whether a body was too large, too slow, or too much beside others.
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
