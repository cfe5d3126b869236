package api

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// Bounds of the bodies in the process at once.
const (
	tenantsBytes   = 32 << 20
	strangersBytes = 2*maxEventsBody + 2<<20 // so that one body of any size fits in a share
	bodyTime       = 30 * time.Second        // for a body to arrive
)

// What a body costs: what has come, and the reader's buffers ahead of it.
const (
	leastCharge = 16 << 10 // even of a tiny one while it is answered
	mostAhead   = 64 << 10
)

// Bounds of the rest of a body that is answered before its end.
const (
	readByServer = 256 << 10 // net/http reads so much itself
	mostDrained  = 8 * maxEventsBody
)

// bodies are the bytes of request bodies. Those of strangers, whose credential
// is not verified yet, are shared by address, and none of them are the tenants'.
type bodies struct {
	tenants   *db.Shares[string]
	strangers *db.Shares[string]
	time      time.Duration
}

func newBodies(deps Deps) bodies {
	b := bodies{tenants: db.NewShares[string](tenantsBytes), strangers: db.NewShares[string](strangersBytes), time: bodyTime}
	if deps.BodyBytes > 0 {
		b.tenants = db.NewShares[string](deps.BodyBytes)
	}
	if deps.BodyTime > 0 {
		b.time = deps.BodyTime
	}
	return b
}

// body is one that is paid for as it arrives: what is only declared takes
// nothing from anybody. It ends with an error where the share of whoever pays does, or
// its time.
type body struct {
	io.ReadCloser
	connection *http.ResponseController
	declared   int64 // -1: not
	shares     *db.Shares[string]
	key        string
	copies     int64 // that are held of each byte
	read       int64
	paid       int64
	ended      bool
}

// receive has the request's body paid for by the address it comes from.
func (b bodies) receive(r *http.Request, w http.ResponseWriter, address string) *body {
	received := &body{
		ReadCloser: r.Body, connection: http.NewResponseController(w), declared: r.ContentLength,
		shares: b.strangers, key: address, copies: 1,
	}
	if r.Body == nil || r.Body == http.NoBody {
		return received
	}
	// Also of one that nobody reads: the server waits for its end.
	_ = received.connection.SetReadDeadline(time.Now().Add(b.time)) // tests have no connection
	r.Body = received
	return received
}

var errFull = metering.Errorf(metering.CodeOverloaded, "too many bytes are waiting to be stored; try again")

// Read reads what has arrived, and pays for it before anybody sees it.
func (b *body) Read(p []byte) (int, error) {
	if b.paid == 0 && !b.shares.Fits(b.key, b.copies*max(b.declared, leastCharge)) {
		return 0, errFull
	}
	if err := b.pay(); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), mostAhead)])
	b.read += int64(n)
	if full := b.pay(); full != nil {
		return 0, full
	}
	if errors.Is(err, io.EOF) {
		b.ended = true
		_ = b.connection.SetReadDeadline(time.Time{}) // what comes after it is not the body's
	}
	return n, err
}

// Close leaves the rest of the body to drain. The server closes its body itself.
func (b *body) Close() error { return nil }

// drain discards the rest of a body that was answered early, up to mostDrained bytes.
// Otherwise a client that sends the whole body before it reads would see a broken
// connection. It skips a client that still waits for 100 Continue.
func (b *body) drain(r *http.Request) {
	waits := b.read == 0 && strings.EqualFold(r.Header.Get("Expect"), "100-continue")
	rest := b.declared - b.read
	if r.Body != b || b.ended || waits || b.declared >= 0 && rest < readByServer {
		return
	}
	_ = b.connection.Flush()
	_, _ = io.CopyN(io.Discard, b.ReadCloser, mostDrained) // then the connection is closed
}

// pay pays in steps as large as what has come, so that shares are not asked
// for each packet.
func (b *body) pay() error {
	due := max(b.copies*b.read, leastCharge)
	if due <= b.paid {
		return nil
	}
	ahead := due + min(due, mostAhead)
	if b.declared >= 0 {
		ahead = min(ahead, max(b.copies*b.declared, due))
	}
	for _, sum := range []int64{ahead, due} {
		if b.shares.Take(b.key, sum-b.paid) {
			b.paid = sum
			return nil
		}
	}
	return errFull
}

// payBy has another pay from now on, for what has come already too.
func (b *body) payBy(shares *db.Shares[string], key string, copies int64) error {
	b.giveBack()
	b.shares, b.key, b.copies = shares, key, copies
	if b.read == 0 {
		return nil
	}
	return b.pay()
}

// payByTenant has the tenant pay. What was read ahead stays in memory beside
// what is decoded from it.
func (b *body) payByTenant(bodies bodies, tenant metering.TenantID) error {
	copies := int64(1)
	if b.read > 0 {
		copies = 2
	}
	return b.payBy(bodies.tenants, tenant.String(), copies)
}

// giveBack is when nothing of the body is in memory any longer.
func (b *body) giveBack() {
	if b.paid > 0 {
		b.shares.Give(b.key, b.paid)
		b.paid = 0
	}
}

func tooLarge(most int64) error {
	return metering.Errorf(metering.CodeTooLarge, "the body must have at most %d bytes", most)
}

// bodyProblem says whether a body was too large, too slow, or too much beside others.
func bodyProblem(err error, most int64) error {
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return tooLarge(most)
	}
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		return metering.Errorf(codeTimeout, "the body did not arrive in time")
	}
	for _, busy := range []error{errFull, errBusy} {
		if errors.Is(err, busy) {
			return busy
		}
	}
	return nil
}
