package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Recorder sends events in the background, in batches. It sets the idempotency key and the timestamp of
// each event once, when the event is recorded, and repeats a batch unchanged until the service has
// answered. So an event counts once, even if requests or answers are lost.
//
// An invalid credential, a missing permission or an outage loses no event. The recorder discards only
// events that the service rejects because of their content. It is safe for concurrent use.
//
// Recorded events are kept in memory: call Close before the process ends.
type Recorder struct {
	client  *ClientWithResponses
	options RecorderOptions

	mu      sync.Mutex
	buffer  []Event
	pending int // events recorded and not yet settled, including those in a request
	settled *sync.Cond
	failure error // of the last attempt; nil: it was answered
	closed  bool

	wake chan struct{}
	stop context.CancelFunc
	done chan struct{}
}

// RecorderOptions configures a Recorder. Zero values select the defaults.
type RecorderOptions struct {
	// Every is the maximum time that an event waits before it is sent: 1 s by default.
	Every time.Duration
	// Batch is the maximum number of events in a request: 1,000 by default and at most.
	Batch int
	// Buffer is the number of unsettled events at which Record returns ErrBufferFull: 100,000 by default.
	Buffer int
	// OnRejected is called with each event that the service rejects permanently, and the reason. If it is
	// nil, the rejection is logged.
	OnRejected func(Event, error)
	// OnRetry is called after each failed attempt, with the reason. The events are kept and sent again. If
	// it is nil, the reason is logged.
	OnRetry func(error)
}

const (
	defaultEvery  = time.Second
	maxBatch      = 1_000
	defaultBuffer = 100_000
	firstPause    = 100 * time.Millisecond
	longestPause  = 30 * time.Second
)

var (
	// ErrBufferFull reports that events are recorded faster than the service accepts them.
	ErrBufferFull = errors.New("the recorder's buffer is full")
	// ErrClosed reports that the recorder accepts no more events.
	ErrClosed = errors.New("the recorder is closed")
)

// NewRecorder starts a recorder that sends through client.
func NewRecorder(client *ClientWithResponses, options RecorderOptions) *Recorder {
	if options.Every <= 0 {
		options.Every = defaultEvery
	}
	if options.Batch <= 0 || options.Batch > maxBatch {
		options.Batch = maxBatch
	}
	if options.Buffer <= 0 {
		options.Buffer = defaultBuffer
	}
	if options.OnRejected == nil {
		options.OnRejected = func(e Event, err error) {
			slog.Error("event rejected", "event_type", e.EventType, "error", err)
		}
	}
	if options.OnRetry == nil {
		options.OnRetry = func(err error) { slog.Warn("events not sent yet", "error", err) }
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &Recorder{client: client, options: options, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	r.settled = sync.NewCond(&r.mu)
	go r.run(ctx)
	return r
}

// Record accepts an event without waiting for the network. The default timestamp is now. The default
// idempotency key is a UUID of version 7, which the service finds and stores at the lowest cost.
func (r *Recorder) Record(e Event) error {
	e = withIdentity(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	if r.pending >= r.options.Buffer {
		return ErrBufferFull
	}
	r.buffer = append(r.buffer, e)
	r.pending++
	if len(r.buffer) >= r.options.Batch {
		r.hurry()
	}
	return nil
}

// withIdentity returns the event with a timestamp and a key, so that every retry sends the same event.
func withIdentity(e Event) Event {
	if e.Timestamp == nil {
		e.Timestamp = new(time.Now().UTC())
	}
	if e.IdempotencyKey == nil {
		e.IdempotencyKey = new(newID())
	}
	return e
}

func newID() string {
	return uuid.Must(uuid.NewV7()).String() // NewV7 fails only if crypto/rand fails
}

// Flush sends the recorded events. It returns when every event is settled or ctx ends.
func (r *Recorder) Flush(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.settled.Broadcast()
	})()
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.pending > 0 {
		if ctx.Err() != nil {
			return r.unsent(ctx.Err())
		}
		r.hurry()
		r.settled.Wait()
	}
	return nil
}

// unsent returns err with the number of unsent events and the error of the last attempt.
func (r *Recorder) unsent(err error) error {
	if r.failure == nil {
		return fmt.Errorf("%d events are not sent: %w", r.pending, err)
	}
	return fmt.Errorf("%d events are not sent: %w; %w", r.pending, err, r.failure)
}

// Close accepts no more events, sends the remaining ones and stops the recorder. If ctx ends first, the
// error contains the number of lost events.
func (r *Recorder) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	err := r.Flush(ctx)
	r.stop()
	<-r.done
	return err
}

// hurry makes run send the buffered events now.
func (r *Recorder) hurry() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run sends the buffered events at each tick and each call of hurry, until ctx ends.
func (r *Recorder) run(ctx context.Context) {
	defer close(r.done)
	tick := time.NewTicker(r.options.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-tick.C:
		}
		for batch := r.next(); len(batch) > 0 && ctx.Err() == nil; batch = r.next() {
			r.send(ctx, batch)
		}
	}
}

// next removes the next batch from the buffer and returns it.
func (r *Recorder) next() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.buffer), r.options.Batch)
	batch := r.buffer[:n:n]
	r.buffer = r.buffer[n:]
	return batch
}

// send repeats a batch until the service has decided on each of its events. It halves a batch that the
// service refuses, until only the events remain that the service refuses alone.
func (r *Recorder) send(ctx context.Context, batch []Event) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		answer, err := r.client.IngestEventsWithResponse(ctx, EventBatch{Events: batch})
		switch {
		case err == nil && answer.StatusCode() == http.StatusOK && answer.JSON200 != nil:
			r.settle(batch, answer.JSON200.Errors)
			return
		case refused(answer) || unencodable(batch, err):
			if len(batch) == 1 {
				r.giveUp(batch[0], cmp.Or(err, failureOf(answer)))
				return
			}
			r.send(ctx, batch[:len(batch)/2])
			r.send(ctx, batch[len(batch)/2:])
			return
		case ctx.Err() != nil:
			return
		}
		r.failed(cmp.Or(err, failureOf(answer)))
		if !sleep(ctx, max(pause, pauseAfter(answer))) {
			return
		}
	}
}

// refused reports whether the service refuses the events because of their content, so that a retry cannot
// succeed.
func refused(answer *IngestEventsResponse) bool {
	return answer != nil && refusesContent(answer.StatusCode())
}

// refusesContent reports whether a status means that the service refuses a request because of its content.
func refusesContent(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return true
	}
	return false
}

// unencodable reports whether events were not sent because they cannot be encoded as JSON.
func unencodable(batch []Event, failure error) bool {
	if failure == nil {
		return false
	}
	_, err := json.Marshal(batch)
	return err != nil
}

// failureOf returns the error of an answer to a failed request, or nil without an answer.
func failureOf(answer *IngestEventsResponse) error {
	if answer == nil {
		return nil
	}
	err := fmt.Errorf("the service answered %s", answer.Status())
	if p := cmp.Or(answer.ApplicationproblemJSON429, answer.ApplicationproblemJSONDefault); p != nil {
		return fmt.Errorf("%w: %s", err, p.Detail)
	}
	return err
}

// pauseAfter returns the pause in the header Retry-After of an answer, or 0.
func pauseAfter(answer *IngestEventsResponse) time.Duration {
	if answer == nil {
		return 0
	}
	return retryAfter(answer.HTTPResponse)
}

func retryAfter(response *http.Response) time.Duration {
	seconds, err := time.ParseDuration(response.Header.Get("Retry-After") + "s")
	if err != nil {
		return 0
	}
	return seconds
}

// sleep waits for the pause. It returns false if ctx ends first.
func sleep(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// settle ends a batch that the service has answered, and calls OnRejected for its rejected events.
func (r *Recorder) settle(batch []Event, rejected []IngestError) {
	for _, e := range rejected {
		if e.Index >= 0 && e.Index < int64(len(batch)) {
			r.options.OnRejected(batch[e.Index], fmt.Errorf("%s: %s", e.Code, e.Message))
		}
	}
	r.forget(len(batch))
}

// giveUp discards an event that the service refuses, and calls OnRejected.
func (r *Recorder) giveUp(e Event, err error) {
	r.options.OnRejected(e, err)
	r.forget(1)
}

// failed stores the error of an attempt and calls OnRetry. The events are kept.
func (r *Recorder) failed(err error) {
	r.mu.Lock()
	r.failure = err
	r.mu.Unlock()
	r.options.OnRetry(err)
}

// forget subtracts n settled events from the pending ones, and wakes Flush.
func (r *Recorder) forget(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending -= n
	r.failure = nil
	r.settled.Broadcast()
}
