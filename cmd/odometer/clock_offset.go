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
	clockTimeout = 2 * time.Second  // of one reading; the error of the offset is at most half of it
)

// clockWatch compares this process's clock with the database's clock. Between two readings it adds the
// elapsed monotonic time, which changes of this machine's clock do not affect.
type clockWatch struct {
	store *db.DB
	log   *slog.Logger

	mu       sync.Mutex
	database time.Time // the last reading
	read     time.Time // the time of the last reading, by the monotonic clock; zero: none yet
}

// watchClock reads the database's clock now and then every clockEvery, until ctx ends.
func watchClock(ctx context.Context, store *db.DB, log *slog.Logger, metrics prometheus.Registerer) *clockWatch {
	c := &clockWatch{store: store, log: log}
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "odometer_clock_offset_seconds", Help: "Offset of this process's clock from the database's clock in seconds; positive: this process's clock is ahead.",
	}, func() float64 {
		offset, _ := c.offset()
		return offset.Seconds()
	}))
	c.checkOffset(ctx)
	go func() {
		tick := time.NewTicker(clockEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.checkOffset(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	return c
}

// checkOffset reads the database's clock. It logs a warning if the reading fails. It logs an error if the offset exceeds
// metering.ClockWarning, or if no reading has succeeded yet.
func (c *clockWatch) checkOffset(ctx context.Context) {
	if err := c.readDatabase(ctx); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "the process cannot read the database's clock", "error", err)
	}
	if err := metering.ClockOffset(c.offset).Check(metering.ClockWarning); err != nil && ctx.Err() == nil {
		c.log.ErrorContext(ctx, "this process's clock may differ too much from the database's clock", "error", err)
	}
}

// readDatabase stores a reading of the database's clock.
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

// offset returns how far this process's clock is ahead of the database's clock. known is false before the
// first reading. The method implements metering.ClockOffset.
func (c *clockWatch) offset() (offset time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read.IsZero() {
		return 0, false
	}
	return aheadOf(c.database.Add(time.Since(c.read))), true
}
