package api

import (
	"context"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/metering"
)

// maxRequests is the maximum number of authenticated requests in progress. Each request takes some ten
// kilobytes. One tenant gets at most half of them.
const maxRequests = 512

// Limits of the memory for responses to tenants. A response stays in memory until its client has read it.
const (
	answersBytes = 16 << 20 // of all responses together
	pageCopies   = 3        // copies of a page's rows: as read, as items and as JSON
	answerCopies = 2        // copies of a response that is not a page
	smallAnswer  = 64 << 10 // responses up to this size are not counted, because maxRequests bounds them
)

// Limits of heavy operations. One tenant gets at most half of each.
const (
	maxHeavy   = 4 // in progress, each with a database connection
	maxReading = 2 // reading at once; the rest of the capacity serves other requests
)

// heavyTurns limits the heavy requests in progress, and the heavy requests and time series that read at the same time.
// A long read occupies a processor, of the database or of this process. At most half of the processors execute long
// reads, so that the long reads of several tenants leave processors to short requests.
type heavyTurns struct {
	begun   *fair.Shares[metering.TenantID] // heavy requests in progress, up to maxHeavy
	reading *fair.Shares[metering.TenantID] // up to maxReading, each for one batch of customers
	series  *fair.Shares[metering.TenantID] // up to the number of processors, each for one short time series
	long    *fair.Shares[metering.TenantID] // up to half of the processors, each for a long time series, or for one batch after a request's first
}

func newHeavyTurns(processors int) heavyTurns {
	return heavyTurns{
		fair.NewShares[metering.TenantID](maxHeavy), fair.NewShares[metering.TenantID](maxReading),
		fair.NewShares[metering.TenantID](int64(max(2, processors))), fair.NewShares[metering.TenantID](int64(max(1, processors/2))),
	}
}

// heavy marks an operation that reads all customers of a tenant. Its requests wait for their turn.
func heavy(op huma.Operation) huma.Operation {
	op.Metadata["heavy"] = true
	op.Extensions["x-heavy"] = true
	return op
}

var (
	errHeavy    = metering.Errorf(metering.CodeOverloaded, "other requests that read all customers are in progress; try again")
	errSeries   = metering.Errorf(metering.CodeOverloaded, "other requests that read time series are in progress; try again")
	errUnderWay = metering.Errorf(metering.CodeOverloaded, "too many requests of the tenant are in progress; try again")
	errUnread   = metering.Errorf(metering.CodeOverloaded, "too many response bytes of the tenant are waiting to be read; read those first, then try again")
)

// begin counts a request in its tenant's share of the requests in progress. It returns an error if the share
// is used up. A heavy request also waits until it may read.
func (s *server) begin(ctx huma.Context) error {
	x, tenant := exchangeOf(ctx.Context()), principalOf(ctx.Context()).Tenant.ID
	if !s.requests.Take(tenant, 1) {
		return errUnderWay
	}
	x.atEnd(func() { s.requests.Give(tenant, 1) })
	x.atEnd(func() { s.answers.Give(tenant, x.held) })
	x.hold = func(bytes int64) bool {
		if !s.answers.Take(tenant, bytes) {
			return false
		}
		x.held += bytes
		return true
	}
	x.reads = ctx.Method() == http.MethodGet || ctx.Operation().Metadata["reads"] == true
	if ctx.Operation().Metadata["heavy"] != true {
		return nil
	}
	return x.beginHeavy(ctx.Context(), s.heavy, tenant)
}

// beginHeavy waits until a heavy request may read. The request gives up this right when its response is
// ready. Before each further batch of customers, it lets other tenants read.
func (x *exchange) beginHeavy(ctx context.Context, turns heavyTurns, tenant metering.TenantID) error {
	waiting, cancel := context.WithTimeout(ctx, heavyWait)
	defer cancel()
	if err := turns.begun.Wait(waiting, tenant); err != nil {
		return errHeavy.Because(err)
	}
	if err := turns.reading.Wait(waiting, tenant); err != nil {
		turns.begun.Give(tenant, 1)
		return errHeavy.Because(err)
	}
	turn := &heavyTurn{heavyTurns: turns, tenant: tenant, reads: true}
	x.endTurn, x.yield = sync.OnceFunc(turn.end), turn.nextBatch
	x.atEnd(x.endTurn)
	return nil
}

// heavyTurn contains the shares that a heavy request holds.
type heavyTurn struct {
	heavyTurns

	tenant  metering.TenantID
	reads   bool // holds one of reading
	inBatch bool // holds one of long
}

// nextBatch lets other tenants read, and then waits until the request may read its next batch.
func (t *heavyTurn) nextBatch(ctx context.Context) error {
	if !t.reads {
		return context.Cause(ctx) // the turn ended when ctx was canceled
	}
	t.endBatch()
	if err := t.reading.Yield(ctx, t.tenant); err != nil {
		t.reads = false
		return err
	}
	err := t.long.Wait(ctx, t.tenant)
	t.inBatch = err == nil
	return err
}

func (t *heavyTurn) endBatch() {
	if t.inBatch {
		t.long.Give(t.tenant, 1)
		t.inBatch = false
	}
}

func (t *heavyTurn) end() {
	t.endBatch()
	if t.reads {
		t.reading.Give(t.tenant, 1)
	}
	t.begun.Give(t.tenant, 1)
}

// beginSeries waits until a request may read a time series. Its turn ends when its response is ready. A short time
// series never waits for a long one.
func (x *exchange) beginSeries(ctx context.Context, turns heavyTurns, tenant metering.TenantID, isLong bool) error {
	shares := turns.series
	if isLong {
		shares = turns.long
	}
	if err := shares.WaitFor(ctx, tenant, heavyWait); err != nil {
		return errSeries.Because(err)
	}
	x.endTurn = sync.OnceFunc(func() { shares.Give(tenant, 1) })
	x.atEnd(x.endTurn)
	return nil
}

// answerMade lets the next heavy request start before this response is sent, because clients can read slowly.
func (x *exchange) answerMade() {
	if x.endTurn != nil {
		x.endTurn()
	}
}

// yieldTurn lets other tenants read before a heavy request continues to read. All other requests continue
// immediately.
func (x *exchange) yieldTurn(ctx context.Context) error {
	if x.yield == nil {
		return nil
	}
	return x.yield(ctx)
}

// holdPage reserves memory for the next row of a page. It returns false if no memory is left. The page then
// ends before this row, unless the row is the first of the page.
func (x *exchange) holdPage(bytes int64) bool {
	return x.hold == nil || x.hold(pageCopies*bytes)
}

// admits reports whether a response of this size may be held in memory until the client has read it. The rows
// of a page are already counted. The response to a write that has taken effect is always admitted.
func (x *exchange) admits(bytes int) bool {
	takesEffect := !x.reads && x.writer.status < http.StatusBadRequest
	if bytes <= smallAnswer || x.hold == nil || x.held > 0 || takesEffect {
		return true
	}
	return x.hold(answerCopies * int64(bytes))
}
