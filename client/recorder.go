package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Recorder sends events in the background, in batches. It makes each event's
// idempotency key and timestamp once, when the event is recorded, and repeats
// a batch with the same ones until the service has answered: an event counts
// once, whatever happens on the way. It is safe for concurrent use.
//
// What is recorded is kept in memory: Close before the process ends.
type Recorder struct {
	client  *ClientWithResponses
	options RecorderOptions

	mu      sync.Mutex
	buffer  []Event
	pending int // events recorded and not yet settled, those being sent included
	settled *sync.Cond
	closed  bool

	wake chan struct{}
	stop context.CancelFunc
	done chan struct{}
}

// RecorderOptions tunes a Recorder. Zero values take the defaults.
type RecorderOptions struct {
	// Every is how long an event waits for others to share its request: 1 s.
	Every time.Duration
	// Batch is how many events make a request at once, 1,000 at most and by default.
	Batch int
	// Buffer is how many events may wait before Record answers ErrBufferFull: 100,000.
	Buffer int
	// OnRejected is told of an event that the service will never take, and why.
	// It is logged when OnRejected is nil.
	OnRejected func(Event, error)
}

const (
	defaultEvery  = time.Second
	maxBatch      = 1_000
	defaultBuffer = 100_000
	firstPause    = 100 * time.Millisecond
	longestPause  = 30 * time.Second
)

var (
	// ErrBufferFull says that events are recorded faster than the service takes them.
	ErrBufferFull = errors.New("the recorder's buffer is full")
	// ErrClosed says that the recorder takes no more events.
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
	ctx, stop := context.WithCancel(context.Background())
	r := &Recorder{client: client, options: options, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	r.settled = sync.NewCond(&r.mu)
	go r.run(ctx)
	return r
}

// Record takes an event. It does not wait for the network. An event without a
// timestamp happened now; one without a key gets one.
func (r *Recorder) Record(e Event) error {
	if e.Timestamp == nil {
		now := time.Now().UTC()
		e.Timestamp = &now
	}
	if e.IdempotencyKey == nil {
		key := rand.Text()
		e.IdempotencyKey = &key
	}
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

// Flush sends what is recorded and returns when every event is settled, or
// when ctx ends.
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
			return fmt.Errorf("%d events are not sent: %w", r.pending, ctx.Err())
		}
		r.hurry()
		r.settled.Wait()
	}
	return nil
}

// Close takes no more events, sends the rest, and ends the recorder. When ctx
// ends first, its error says how many events are lost.
func (r *Recorder) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	err := r.Flush(ctx)
	r.stop()
	<-r.done
	return err
}

func (r *Recorder) hurry() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

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

func (r *Recorder) next() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.buffer), r.options.Batch)
	batch := r.buffer[:n:n]
	r.buffer = r.buffer[n:]
	return batch
}

// send repeats a batch until the service has decided on each of its events.
func (r *Recorder) send(ctx context.Context, batch []Event) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		answer, err := r.client.IngestEventsWithResponse(ctx, EventBatch{Events: batch})
		switch {
		case err == nil && answer.StatusCode() == http.StatusOK && answer.JSON200 != nil:
			r.settle(batch, answer.JSON200.Errors)
			return
		case err == nil && answer.StatusCode() == http.StatusRequestEntityTooLarge && len(batch) > 1:
			r.send(ctx, batch[:len(batch)/2])
			r.send(ctx, batch[len(batch)/2:])
			return
		case err == nil && final(answer.StatusCode()):
			r.refuse(batch, answer)
			return
		}
		if !sleep(ctx, max(pause, retryAfter(answer))) {
			return
		}
	}
}

// final says whether the same request would get the same answer again.
func final(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}

func retryAfter(answer *IngestEventsResponse) time.Duration {
	if answer == nil {
		return 0
	}
	seconds, err := time.ParseDuration(answer.HTTPResponse.Header.Get("Retry-After") + "s")
	if err != nil {
		return 0
	}
	return seconds
}

func sleep(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

func (r *Recorder) settle(batch []Event, rejected []IngestError) {
	for _, e := range rejected {
		if e.Index >= 0 && e.Index < int64(len(batch)) {
			r.options.OnRejected(batch[e.Index], fmt.Errorf("%s: %s", e.Code, e.Message))
		}
	}
	r.forget(len(batch))
}

func (r *Recorder) refuse(batch []Event, answer *IngestEventsResponse) {
	err := fmt.Errorf("the service answered %s", answer.Status())
	if p := answer.ApplicationproblemJSONDefault; p != nil {
		err = fmt.Errorf("%w: %s", err, p.Detail)
	}
	for _, e := range batch {
		r.options.OnRejected(e, err)
	}
	r.forget(len(batch))
}

func (r *Recorder) forget(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending -= n
	r.settled.Broadcast()
}
