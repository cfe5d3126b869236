package worker

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/odometer-metering/odometer/workflows"
)

const (
	reconcileEvery = 30 * time.Second
	// patience is how long a request may wait for the signal that follows it.
	patience = time.Minute
)

// registerSearchAttributes makes runs findable. Without the attributes they
// are only harder to find, so that a refusal is a warning.
func registerSearchAttributes(ctx context.Context, config Config) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := config.Temporal.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace:        config.namespace(),
		SearchAttributes: workflows.SearchAttributes(),
	})
	var exists *serviceerror.AlreadyExists
	if err != nil && !errors.As(err, &exists) {
		config.Log.WarnContext(ctx, "search attributes could not be registered: runs start without them", "error", err)
	}
}

func (c Config) namespace() string {
	if c.Namespace == "" {
		return "default"
	}
	return c.Namespace
}

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
