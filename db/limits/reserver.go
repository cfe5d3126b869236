package limits

import (
	"context"
	"sync"
	"time"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// Reserver answers requests to reserve usage. While a transaction answers requests for a customer, further
// requests for that customer wait, and then share the next transaction. These requests thus wait for the
// customer's lock together and hold only one connection.
type Reserver struct {
	Timeout time.Duration // time limit of a transaction

	quotas Quotas
	now    func() time.Time

	mu      sync.Mutex
	waiting map[usage.CustomerName][]*waitingReserve // has an entry for each customer with a running transaction
}

type waitingReserve struct {
	request ReserveRequest
	answer  Reservation
	done    chan struct{}
}

// NewReserver returns a Reserver.
func (s Stores) NewReserver(now func() time.Time) *Reserver {
	return &Reserver{Timeout: reserveTimeout, quotas: s.Quotas, now: now, waiting: make(map[usage.CustomerName][]*waitingReserve)}
}

// Bounds of a transaction that reserves usage.
const (
	reservedAtOnce = 100              // maximum of requests
	reserveTimeout = 10 * time.Second // default of Reserver.Timeout
)

// Reserve answers as Quotas.Reserve does. If ctx ends first, the usage may still be reserved.
func (r *Reserver) Reserve(ctx context.Context, tenant metering.TenantID, customer string, request ReserveRequest) (Reservation, error) {
	w := &waitingReserve{request: request, done: make(chan struct{})}
	name := usage.CustomerName{Tenant: tenant, ExternalID: customer}
	r.mu.Lock()
	line, isRunning := r.waiting[name]
	r.waiting[name] = append(line, w)
	r.mu.Unlock()
	if !isRunning {
		go r.run(context.WithoutCancel(ctx), name) // run also answers other requests
	}
	select {
	case <-w.done:
		return w.answer, w.answer.Err
	case <-ctx.Done():
		return Reservation{}, metering.Errorf(metering.CodeUnavailable, "the request ended before it was answered; repeat it with the same id").Because(ctx.Err())
	}
}

// run answers the requests of a customer until none waits.
func (r *Reserver) run(ctx context.Context, name usage.CustomerName) {
	for {
		some := r.dequeue(name)
		if some == nil {
			return
		}
		r.answer(ctx, name, some)
	}
}

// dequeue removes and returns the requests that share the next transaction. If none waits, it removes the
// customer's entry and returns nil; run then ends.
func (r *Reserver) dequeue(name usage.CustomerName) []*waitingReserve {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := r.waiting[name]
	if len(line) == 0 {
		delete(r.waiting, name)
		return nil
	}
	n := min(len(line), reservedAtOnce)
	r.waiting[name] = line[n:]
	return line[:n]
}

// answer reserves the usage in one transaction and sends each request its answer. If that fails because of one of the
// requests, it answers each request in a transaction of its own.
func (r *Reserver) answer(ctx context.Context, name usage.CustomerName, some []*waitingReserve) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	requests := make([]ReserveRequest, len(some))
	for i, w := range some {
		requests[i] = w.request
	}
	answers, err := r.quotas.Reserve(ctx, name.Tenant, name.ExternalID, requests, r.now())
	if code := metering.CodeOf(err); len(some) > 1 && (code == metering.CodeBackfilling || code == metering.CodeInternal) {
		for i := range some { // an invalid request must not fail the others
			r.answer(ctx, name, some[i:i+1])
		}
		return
	}
	for i, w := range some {
		if w.answer.Err = err; err == nil {
			w.answer = answers[i]
		}
		close(w.done)
	}
}
