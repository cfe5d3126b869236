package db

import (
	"context"
	"sync"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Reserver answers requests to reserve. Those for one customer that arrive while others for it
// are answered share the next transaction, so that they wait for the customer's turn together and
// hold one connection.
type Reserver struct {
	quotas Quotas
	now    func() time.Time

	mu      sync.Mutex
	waiting map[customerName][]*waitingReserve // nil: no transaction is under way
}

type waitingReserve struct {
	request ReserveRequest
	answer  Reservation
	done    chan struct{}
}

// NewReserver makes a Reserver of store.
func NewReserver(store *DB, now func() time.Time) *Reserver {
	return &Reserver{quotas: store.Quotas, now: now, waiting: make(map[customerName][]*waitingReserve)}
}

// Bounds of a transaction that reserves.
const (
	reservedAtOnce = 100              // requests
	reservesWithin = 10 * time.Second // its time
)

// Reserve answers as Quotas.Reserve does. When ctx ends first, the usage may still be reserved.
func (r *Reserver) Reserve(ctx context.Context, tenant metering.TenantID, customer string, request ReserveRequest) (Reservation, error) {
	w := &waitingReserve{request: request, done: make(chan struct{})}
	name := customerName{tenant, customer}
	r.mu.Lock()
	line, isRunning := r.waiting[name]
	r.waiting[name] = append(line, w)
	r.mu.Unlock()
	if !isRunning {
		go r.run(context.WithoutCancel(ctx), name) // it serves other requests too
	}
	select {
	case <-w.done:
		return w.answer, w.answer.Err
	case <-ctx.Done():
		return Reservation{}, metering.Errorf(metering.CodeUnavailable, "the request ended before it was answered; repeat it with the same id").Because(ctx.Err())
	}
}

// run answers the requests of a customer until none waits.
func (r *Reserver) run(ctx context.Context, name customerName) {
	for {
		some := r.next(name)
		if some == nil {
			return
		}
		r.answer(ctx, name, some)
	}
}

// next takes the requests that share a transaction. If there are none, it returns nil, and run ends.
func (r *Reserver) next(name customerName) []*waitingReserve {
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

func (r *Reserver) answer(ctx context.Context, name customerName, some []*waitingReserve) {
	ctx, cancel := context.WithTimeout(ctx, reservesWithin)
	defer cancel()
	requests := make([]ReserveRequest, len(some))
	for i, w := range some {
		requests[i] = w.request
	}
	answers, err := r.quotas.Reserve(ctx, name.tenant, name.externalID, requests, r.now())
	if code := metering.CodeOf(err); len(some) > 1 && (code == metering.CodeBackfilling || code == metering.CodeInternal) {
		for i := range some { // one of them harms no others
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
