package api

import (
	"context"
	"io"
	"runtime"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// atOnce is how much of a body is decoded without waiting for a turn.
const atOnce = 16 << 10

// newProcessors shares half of the processors among tenants whose requests keep
// one busy. The others are left to requests that need one for a moment: those
// would wait behind each of them for as long as the scheduler lets it run.
func newProcessors() *db.Shares[metering.TenantID] {
	return db.NewShares[metering.TenantID](int64(max(1, runtime.GOMAXPROCS(0)/2)))
}

// turns has what is made of a body be made in the tenant's turns, but for its
// beginning. While more of it is awaited, nobody waits for its turn to end.
type turns struct {
	ctx        context.Context
	body       io.Reader
	processors *db.Shares[metering.TenantID]
	tenant     metering.TenantID
	read       int
	under      bool
}

func (s *server) inTurns(ctx context.Context, body io.Reader) *turns {
	return &turns{ctx: ctx, body: body, processors: s.processors, tenant: principalOf(ctx).Tenant.ID}
}

var errBusy = metering.Errorf(metering.CodeOverloaded, "too many large bodies of the tenant are waiting to be read; try again")

// Read ends a turn, and begins the next when something has come.
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

// end is when the body is decoded, or cannot be.
func (t *turns) end() {
	if t.under {
		t.processors.Give(t.tenant, 1)
		t.under = false
	}
}
