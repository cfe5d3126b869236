package pg

import (
	"context"
	"time"
)

// Defaults of Pool.FlushEvery and Pool.FlushTimeout.
const (
	flushEvery   = 5 * time.Second
	flushTimeout = 10 * time.Second
)

// StartFlusher starts a flusher. It calls write every FlushEvery, and once more when it is closed. write stores data
// that the process holds in memory. failed receives the error of each write that fails.
func (p *Pool) StartFlusher(write func(context.Context) error, failed func(error)) *Repeater {
	return StartRepeater(p.FlushEvery, func(*Repeater) {
		ctx, cancel := context.WithTimeout(context.Background(), p.FlushTimeout)
		defer cancel()
		if err := write(ctx); err != nil {
			failed(err)
		}
	})
}
