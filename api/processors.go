package api

import (
	"context"
	"errors"
	"io"
	"runtime"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/metering"
)

// undelayedBytes is the number of leading bytes of a body that are decoded without waiting for a processor.
const undelayedBytes = 16 << 10

// newProcessors divides half of the processors among the tenants' large bodies. The other half stays free for
// short requests. Otherwise a short request would wait until the scheduler interrupts the decoding of each
// large body.
func newProcessors() *fair.Shares[metering.TenantID] {
	return fair.NewShares[metering.TenantID](int64(max(1, runtime.GOMAXPROCS(0)/2)))
}

// turns reads a request body and limits the number of processors that decode large bodies. After the first
// undelayedBytes bytes, Read returns only when the tenant has a processor to decode the returned bytes. The next Read
// first releases the processor, so that a slow client does not occupy it. A body that is decoded only after its
// end needs a processor only then.
type turns struct {
	ctx        context.Context
	body       io.Reader
	processors *fair.Shares[metering.TenantID]
	tenant     metering.TenantID
	whole      bool // the body is decoded after its end
	read       int
	hasTurn    bool // a processor is reserved for decoding the bytes of the last Read
}

// inTurns returns a reader of the body that limits the processors of the calling tenant.
func (s *server) inTurns(ctx context.Context, body io.Reader) *turns {
	return &turns{ctx: ctx, body: body, processors: s.processors, tenant: principalOf(ctx).Tenant.ID}
}

// decodeInTurn runs the next middleware with a context in which huma decodes a large body only when the tenant has
// a processor for it.
func (s *server) decodeInTurn(ctx huma.Context, next func(huma.Context)) {
	turns := s.inTurns(ctx.Context(), ctx.BodyReader())
	turns.whole = true
	defer turns.end()
	next(decodingContext{ctx, turns})
}

// decodingContext is a context from which huma reads a body in turns. After huma has decoded and validated the
// body, it calls Context to run the operation or to respond with an error. This call releases the processor.
type decodingContext struct {
	humaContext

	turns *turns
}

type humaContext = huma.Context // because an embedded field named Context would hide the method Context

func (c decodingContext) BodyReader() io.Reader { return c.turns }

func (c decodingContext) Context() context.Context {
	c.turns.end()
	return c.humaContext.Context()
}

var errBusy = metering.Errorf(metering.CodeOverloaded, "too many large bodies of the tenant are waiting to be read; try again")

// Read releases the tenant's processor, reads, and waits for a processor to decode the bytes.
func (t *turns) Read(p []byte) (int, error) {
	t.end()
	n, err := t.body.Read(p)
	if t.read += n; t.read <= undelayedBytes || t.whole && !errors.Is(err, io.EOF) {
		return n, err
	}
	if t.processors.WaitFor(t.ctx, t.tenant, processorWait) != nil {
		return 0, errBusy
	}
	t.hasTurn = true
	return n, err
}

// end releases the tenant's processor. It is called before each read, and after decoding the body succeeds or
// fails.
func (t *turns) end() {
	if t.hasTurn {
		t.processors.Give(t.tenant, 1)
		t.hasTurn = false
	}
}
