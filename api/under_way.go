package api

import (
	"context"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// maxRequests is how many of tenants' requests are under way at once, some ten
// kilobytes each. One tenant alone has half of them.
const maxRequests = 512

// Bounds of tenants' answers, which are in memory until the clients have taken them.
const (
	answersBytes = 32 << 20 // at once
	pageCopies   = 3        // of a page's rows: as they are read, as items and as JSON
	answerCopies = 2        // of an answer that is no page
	smallAnswer  = 64 << 10 // holds nothing: maxRequests bounds them
)

// Bounds of heavy operations. One tenant alone has half of each.
const (
	maxHeavy   = 4 // in progress, each on a connection
	maxReading = 2 // of them that read; the database and this process answer others meanwhile
)

// heavyTurns are the turns of heavy operations.
type heavyTurns struct {
	begun   *db.Shares[metering.TenantID] // maxHeavy
	reading *db.Shares[metering.TenantID] // maxReading, each for one batch of customers
}

func newHeavyTurns() heavyTurns {
	return heavyTurns{db.NewShares[metering.TenantID](maxHeavy), db.NewShares[metering.TenantID](maxReading)}
}

// heavy marks an operation that reads all customers of the tenant. It waits for its turn.
func heavy(op huma.Operation) huma.Operation {
	op.Metadata["heavy"] = true
	op.Extensions["x-heavy"] = true
	return op
}

var (
	errHeavy    = metering.Errorf(metering.CodeOverloaded, "other requests that read all customers are in progress; try again")
	errUnderWay = metering.Errorf(metering.CodeOverloaded, "too many requests of the tenant are in progress; try again")
	errUnread   = metering.Errorf(metering.CodeOverloaded, "too many response bytes of the tenant are waiting to be read; read those first, then try again")
)

// begin lets a tenant's request begin where its share has room for it.
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

// beginHeavy waits for the turn of a heavy request, which ends when its answer is made.
// Before each further batch of customers, the request lets other tenants read.
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
	reads := true
	x.endTurn = sync.OnceFunc(func() {
		if reads {
			turns.reading.Give(tenant, 1)
		}
		turns.begun.Give(tenant, 1)
	})
	x.atEnd(x.endTurn)
	x.yield = func(ctx context.Context) error {
		if !reads {
			return context.Cause(ctx) // the turn was lost when ctx ended
		}
		err := turns.reading.Yield(ctx, tenant)
		reads = err == nil
		return err
	}
	return nil
}

// answerMade ends the turn of a heavy request: clients may read slowly.
func (x *exchange) answerMade() {
	if x.endTurn != nil {
		x.endTurn()
	}
}

// yieldTurn lets other tenants read first, if the request is heavy.
func (x *exchange) yieldTurn(ctx context.Context) error {
	if x.yield == nil {
		return nil
	}
	return x.yield(ctx)
}

// holdPage takes the room of a page's next row, or nothing: then the page ends before it.
func (x *exchange) holdPage(bytes int64) bool {
	return x.hold == nil || x.hold(pageCopies*bytes)
}

// admits reports whether an answer of so many bytes may be held in memory until the client
// has taken it. A page has room already; what a request has changed is always answered.
func (x *exchange) admits(bytes int) bool {
	if bytes <= smallAnswer || x.hold == nil || x.held > 0 || !x.reads {
		return true
	}
	return x.hold(answerCopies * int64(bytes))
}
