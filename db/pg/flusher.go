package pg

import (
	"context"
	"time"
)

const (
	flushEvery  = 5 * time.Second
	flushWithin = 10 * time.Second
)

// StartFlusher calls write every flushEvery, and once more when it is closed. write stores data that the
// process holds in memory. failed receives the error of each write that fails.
func StartFlusher(write func(context.Context) error, failed func(error)) *Repeater {
	return StartRepeater(flushEvery, func(*Repeater) {
		ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
		defer cancel()
		if err := write(ctx); err != nil {
			failed(err)
		}
	})
}
