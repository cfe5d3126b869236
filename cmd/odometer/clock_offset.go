package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

const (
	clockEvery   = 10 * time.Second // between two readings of the database's clock
	clockTimeout = 2 * time.Second  // for a reading; half of it is the error of the offset at most
)

// clockWatch compares this process's clock with the database's. Between two readings it adds
// the time that has passed, which no change of this machine's clock affects.
type clockWatch struct {
	store *db.DB
	log   *slog.Logger

	mu       sync.Mutex
	database time.Time // the last reading
	read     time.Time // when, by this machine's monotonic clock; zero: never
}

// watchClock reads the database's clock, and reads it again until ctx ends.
func watchClock(ctx context.Context, store *db.DB, log *slog.Logger, metrics prometheus.Registerer) *clockWatch {
	c := &clockWatch{store: store, log: log}
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "odometer_clock_offset_seconds", Help: "Offset of this process's clock from the database's clock in seconds; positive: this process's clock is ahead.",
	}, func() float64 {
		offset, _ := c.offset()
		return offset.Seconds()
	}))
	c.compare(ctx)
	go func() {
		tick := time.NewTicker(clockEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.compare(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	return c
}

// compare reads the database's clock, and logs if this process's differs.
func (c *clockWatch) compare(ctx context.Context) {
	if err := c.readDatabase(ctx); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "the process cannot read the database's clock", "error", err)
	}
	if err := metering.ClockOffset(c.offset).Check(metering.ClockWarning); err != nil && ctx.Err() == nil {
		c.log.ErrorContext(ctx, "this process's clock may differ too much from the database's clock", "error", err)
	}
}

func (c *clockWatch) readDatabase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	began := time.Now()
	database, err := c.store.ReadClock(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.database, c.read = database, began.Add(time.Since(began)/2) // the middle of the round trip
	return nil
}

// offset is the process's metering.ClockOffset.
func (c *clockWatch) offset() (offset time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read.IsZero() {
		return 0, false
	}
	return aheadOf(c.database.Add(time.Since(c.read))), true
}
