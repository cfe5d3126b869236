package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

var (
	// ErrUnavailable is returned by Reserve if the service does not answer, with OnErrorDeny.
	ErrUnavailable = errors.New("usage is not reserved, because the service did not answer")
	// ErrTooManyEvents is returned for every event beyond the 1,000th of a reservation.
	ErrTooManyEvents = errors.New("a reservation is settled with at most 1000 events; send further events with a Recorder")
	// ErrReservationEnded is returned for an event after the end of the reservation.
	ErrReservationEnded = errors.New("the reservation has ended; send further events with a Recorder")
)

// QuotaExceededError is returned by Reserve if a hard quota has less left than the requested amount.
type QuotaExceededError struct{ RefusedReservation }

func (e *QuotaExceededError) Error() string {
	return fmt.Sprintf("quota %s has %s left", e.QuotaId, e.Remaining)
}

// SettleError is returned by Reserve if the events of a reservation could not be stored. A repeated
// SettleReservation with the same events counts no event twice.
type SettleError struct {
	ReservationID string
	Events        []Event
	Err           error
}

func (e *SettleError) Error() string {
	return fmt.Sprintf("reservation %s is not settled with %d events: %v", e.ReservationID, len(e.Events), e.Err)
}

func (e *SettleError) Unwrap() error { return e.Err }

// HeldReservation is a reservation during its work. It is safe for concurrent use.
type HeldReservation struct {
	// ID of the reservation.
	ID string
	// Exceeded reports whether a soft quota has less left than the requested amount.
	Exceeded bool

	quotas    *Quotas
	customer  string
	expiresIn int64

	mu     sync.Mutex
	events []Event
	ended  bool
}

// Reserve reserves usage, calls work, and ends the reservation, even if work panics: it settles
// the reservation with the events that work has recorded, or releases it if there are none. It
// returns the errors of work and of the settlement.
//
//   - A request without an id gets one, so that a repeat reserves nothing twice.
//   - While work runs, the reservation is extended each time half of ExpiresIn has passed.
//   - A settlement is repeated until the service answers or ctx ends. At least one request is
//     sent, even if ctx has ended: it waits up to 10 s for its answer.
//   - With OnErrorAllow, work is called without a reservation if the service does not answer.
//     The recorded events are still stored.
func (q *Quotas) Reserve(ctx context.Context, request Reserve, work func(context.Context, *HeldReservation) error) (err error) {
	r, err := q.reserve(ctx, request)
	if err != nil {
		return err
	}
	extending, stop := context.WithCancel(ctx)
	var extension sync.WaitGroup
	extension.Go(func() { r.extend(extending) })
	defer func() {
		stop()
		extension.Wait()
		err = errors.Join(err, r.settleOrRelease(ctx))
	}()
	return work(ctx, r)
}

// Record adds an event to the usage. The default customer is the customer of the reservation.
func (r *HeldReservation) Record(e Event) error {
	if e.CustomerId == "" {
		e.CustomerId = r.customer
	}
	e = withIdentity(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return ErrReservationEnded
	}
	if len(r.events) >= maxBatch {
		return ErrTooManyEvents
	}
	r.events = append(r.events, e)
	return nil
}

// reserve sends the request, and retries failures that can pass until q.options.Timeout or ctx ends. If the
// timeout ends first, reserve returns ErrUnavailable with OnErrorDeny. Otherwise it returns no error and a
// reservation that the service may not have.
func (q *Quotas) reserve(ctx context.Context, request Reserve) (*HeldReservation, error) {
	if request.Id == nil {
		request.Id = new(newID())
	}
	if request.ExpiresIn == nil {
		request.ExpiresIn = new(int64(300))
	}
	r := &HeldReservation{ID: *request.Id, quotas: q, customer: request.Customer, expiresIn: *request.ExpiresIn}
	limited, cancel := context.WithTimeout(ctx, q.options.Timeout)
	defer cancel()
	err := q.retryUntilFinal(limited, func() error { return r.sendReserve(limited, request) })
	if _, exceeded := errors.AsType[*QuotaExceededError](err); exceeded || err == nil || isRefused(err) {
		return r, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if q.onError == OnErrorDeny {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return r, nil
}

func (r *HeldReservation) sendReserve(ctx context.Context, request Reserve) error {
	answer, err := r.quotas.client.ReserveQuotaWithResponse(ctx, request)
	switch {
	case err != nil:
		return noAnswerError(request, err)
	case answer.JSON201 != nil:
		r.Exceeded = answer.JSON201.Exceeded
		return nil
	case answer.JSON200 != nil:
		return &QuotaExceededError{*answer.JSON200}
	}
	return problemError(answer.HTTPResponse, answer.ApplicationproblemJSONDefault)
}

// retryUntilFinal sends a request until it succeeds, is refused, or ctx ends. It returns the last error.
func (q *Quotas) retryUntilFinal(ctx context.Context, send func() error) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := send()
		if _, exceeded := errors.AsType[*QuotaExceededError](err); exceeded || err == nil || isRefused(err) {
			return err
		}
		q.options.OnFailure(err)
		if problem, ok := errors.AsType[*ProblemError](err); ok {
			pause = max(pause, problem.RetryAfter)
		}
		if !sleep(ctx, pause) {
			return err
		}
	}
}

// extend extends the reservation regularly until ctx ends or the service no longer has it.
func (r *HeldReservation) extend(ctx context.Context) {
	half := time.Duration(r.expiresIn) * time.Second / 2
	for wait := half; sleep(ctx, wait); {
		err := r.sendExtend(ctx)
		switch {
		case err == nil:
			wait = half
		case isRefused(err) || isNotFound(err):
			return
		case ctx.Err() == nil:
			r.quotas.options.OnFailure(err)
			wait = max(wait/2, firstPause)
		}
	}
}

func (r *HeldReservation) sendExtend(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	body := ExtendReservation{ExpiresIn: r.expiresIn}
	answer, err := r.quotas.client.ExtendReservationWithResponse(ctx, r.ID, body)
	if err != nil {
		return noAnswerError(body, err)
	}
	if answer.JSON200 == nil {
		return problemError(answer.HTTPResponse, answer.ApplicationproblemJSONDefault)
	}
	return nil
}

// settleOrRelease settles the reservation, or releases it if there are no events. If the service refuses the events, it
// releases the reservation and returns a SettleError. A failed release is only reported, because the reservation
// expires anyway.
func (r *HeldReservation) settleOrRelease(ctx context.Context) error {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	if len(r.events) == 0 {
		r.release(ctx)
		return nil
	}
	err := r.quotas.retryUntilFinal(ctx, func() error { return withoutCancel(ctx, r.sendSettle) })
	if err == nil {
		return nil
	}
	if isRefused(err) {
		r.release(ctx)
	}
	return &SettleError{r.ID, slices.Clone(r.events), err}
}

// release releases the reservation. A failure is only reported to OnFailure.
func (r *HeldReservation) release(ctx context.Context) {
	if err := withoutCancel(ctx, r.sendRelease); err != nil && !isNotFound(err) {
		r.quotas.options.OnFailure(err)
	}
}

// withoutCancel sends a request that the end of ctx does not cancel.
func withoutCancel(ctx context.Context, send func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return send(ctx)
}

func (r *HeldReservation) sendRelease(ctx context.Context) error {
	answer, err := r.quotas.client.ReleaseReservationWithResponse(ctx, r.ID)
	if err != nil {
		return noAnswerError(nil, err)
	}
	if answer.JSON200 == nil {
		return problemError(answer.HTTPResponse, answer.ApplicationproblemJSONDefault)
	}
	return nil
}

// sendSettle settles the reservation with its events. If the service does not have the reservation, it stores the
// events without the reservation.
func (r *HeldReservation) sendSettle(ctx context.Context) error {
	batch := EventBatch{Events: r.events}
	answer, err := r.quotas.client.SettleReservationWithResponse(ctx, r.ID, batch)
	if err != nil {
		return noAnswerError(batch, err)
	}
	if answer.JSON200 != nil {
		return nil
	}
	err = problemError(answer.HTTPResponse, cmp.Or(answer.ApplicationproblemJSON429, answer.ApplicationproblemJSONDefault))
	if isNotFound(err) {
		return r.sendEvents(ctx, batch)
	}
	return err
}

// sendEvents sends the events of a reservation that the service does not have. It returns an error if the service
// rejects one of the events.
func (r *HeldReservation) sendEvents(ctx context.Context, batch EventBatch) error {
	answer, err := r.quotas.client.IngestEventsWithResponse(ctx, batch)
	if err != nil {
		return noAnswerError(batch, err)
	}
	if answer.JSON200 == nil {
		return problemError(answer.HTTPResponse, cmp.Or(answer.ApplicationproblemJSON429, answer.ApplicationproblemJSONDefault))
	}
	for _, e := range answer.JSON200.Errors {
		return &ProblemError{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf("events[%d]: %s", e.Index, e.Message)}
	}
	return nil
}

func isNotFound(err error) bool {
	problem, ok := errors.AsType[*ProblemError](err)
	return ok && problem.Status == http.StatusNotFound
}
