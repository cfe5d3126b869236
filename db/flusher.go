package db

import (
	"context"
	"time"
)

const (
	flushEvery  = 5 * time.Second
	flushWithin = 10 * time.Second
)

// flusher writes what a process holds in memory every few seconds, and once more at its close.
type flusher struct{ stop, stopped chan struct{} }

// startFlusher starts a flusher. failed receives the error of each write that fails.
func startFlusher(write func(context.Context) error, failed func(error)) *flusher {
	f := &flusher{make(chan struct{}), make(chan struct{})}
	go f.run(write, failed)
	return f
}

// close returns after the last write.
func (f *flusher) close() {
	close(f.stop)
	<-f.stopped
}

func (f *flusher) run(write func(context.Context) error, failed func(error)) {
	defer close(f.stopped)
	every := time.NewTicker(flushEvery)
	defer every.Stop()
	for stopping := false; !stopping; {
		select {
		case <-f.stop:
			stopping = true
		case <-every.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
		if err := write(ctx); err != nil {
			failed(err)
		}
		cancel()
	}
}
