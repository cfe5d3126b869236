package db

import (
	"context"
	"time"
)

const (
	flushEvery  = 5 * time.Second
	flushWithin = 10 * time.Second
)

// startFlusher calls write every flushEvery, and once more when it is closed. write stores data that the
// process holds in memory. failed receives the error of each write that fails.
func startFlusher(write func(context.Context) error, failed func(error)) *repeater {
	return startRepeater(flushEvery, func(*repeater) {
		ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
		defer cancel()
		if err := write(ctx); err != nil {
			failed(err)
		}
	})
}
