package worker

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/workflows"
)

const (
	reconcileEvery = 30 * time.Second
	// patience is how long a request may wait for the signal that follows it.
	patience = time.Minute
)

// reconcile starts, now and then, what the database says is unfinished and
// nobody is working on: its run was terminated, or its start never arrived.
func reconcile(ctx context.Context, config Config) {
	for ctx.Err() == nil {
		if err := reconcileOnce(ctx, config, time.Now()); err != nil && ctx.Err() == nil {
			config.Log.WarnContext(ctx, "reconciliation failed", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(reconcileEvery):
		}
	}
}

func reconcileOnce(ctx context.Context, config Config, now time.Time) error {
	filling, err := config.Store.Backfills.Filling(ctx)
	if err != nil {
		return err
	}
	for _, f := range filling { // a run that is open is left alone
		if err := workflows.StartBackfillMeter(ctx, config.Temporal, f.Tenant, f.Generation); err != nil {
			return err
		}
	}
	open, err := config.Store.Syncs.Open(ctx, now.Add(-patience))
	if err != nil {
		return err
	}
	for _, o := range open {
		if err := workflows.RestartSyncCustomer(ctx, config.Temporal, o.Tenant, o.Customer); err != nil {
			return err
		}
	}
	return nil
}
