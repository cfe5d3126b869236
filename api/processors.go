package api

import (
	"context"
	"io"
	"runtime"

	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/metering"
)

// atOnce is the number of bytes of a body that are decoded without waiting for a turn.
const atOnce = 16 << 10

// newProcessors shares half of the processors among the tenants' large bodies. The other half stays free for
// short requests. Otherwise these would wait until the scheduler interrupts the decoding of each large body.
func newProcessors() *fair.Shares[metering.TenantID] {
	return fair.NewShares[metering.TenantID](int64(max(1, runtime.GOMAXPROCS(0)/2)))
}

// turns is a reader of a request body. After the first atOnce bytes, each read part is decoded in a turn of
// the tenant. The turn ends before the next read, so that a slow client does not occupy a processor.
type turns struct {
	ctx        context.Context
	body       io.Reader
	processors *fair.Shares[metering.TenantID]
	tenant     metering.TenantID
	read       int
	under      bool
}

func (s *server) inTurns(ctx context.Context, body io.Reader) *turns {
	return &turns{ctx: ctx, body: body, processors: s.processors, tenant: principalOf(ctx).Tenant.ID}
}

var errBusy = metering.Errorf(metering.CodeOverloaded, "too many large bodies of the tenant are waiting to be read; try again")

// Read ends the turn, reads, and waits for the next turn.
func (t *turns) Read(p []byte) (int, error) {
	t.end()
	n, err := t.body.Read(p)
	if t.read += n; t.read <= atOnce {
		return n, err
	}
	waiting, cancel := context.WithTimeout(t.ctx, processorWait)
	defer cancel()
	if t.processors.Wait(waiting, t.tenant) != nil {
		return 0, errBusy
	}
	t.under = true
	return n, err
}

// end ends the turn. It is called before each read and after the body is decoded or has failed.
func (t *turns) end() {
	if t.under {
		t.processors.Give(t.tenant, 1)
		t.under = false
	}
}
