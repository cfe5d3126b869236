package worker

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/workflows"
)

const (
	reconcileEvery = 30 * time.Second
	deliverEvery   = time.Second
	// startOverdue is how long a request may wait for the signal that follows it.
	startOverdue = time.Minute
)

// reconcile starts, now and then, what the database says is unfinished and
// nobody is working on: its run was terminated, or its start never arrived.
func reconcile(ctx context.Context, config Config) {
	distrusted := true // whatever has happened to the schedules while no worker was there
	for ctx.Err() == nil {
		if err := applySchedules(ctx, config, distrusted); err != nil {
			if ctx.Err() == nil {
				config.Log.WarnContext(ctx, "schedules do not follow their settings", "error", err)
			}
		} else {
			distrusted = false
		}
		if err := reconcileOnce(ctx, config, time.Now()); err != nil && ctx.Err() == nil {
			config.Log.WarnContext(ctx, "reconciliation failed", "error", err)
		}
		rest(ctx, reconcileEvery)
	}
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// deliver begins the runs that tell webhooks what happened. Whatever happens is
// committed with its messages, so that a look at them is enough.
func deliver(ctx context.Context, config Config) {
	for ctx.Err() == nil {
		if err := deliverOnce(ctx, config, time.Now()); err != nil && ctx.Err() == nil {
			config.Log.WarnContext(ctx, "messages wait for their run", "error", err)
		}
		rest(ctx, deliverEvery)
	}
}

func deliverOnce(ctx context.Context, config Config, now time.Time) error {
	wanted, err := config.Store.Deliveries.Wanted(ctx, now)
	if err != nil {
		return err
	}
	for _, w := range wanted {
		if err := workflows.StartDeliverWebhooks(ctx, config.Temporal, w.Tenant, w.Endpoint); err != nil {
			return err
		}
	}
	return nil
}

func reconcileOnce(ctx context.Context, config Config, now time.Time) error {
	backfilling, err := config.Store.Backfills.Unfinished(ctx)
	if err != nil {
		return err
	}
	for _, f := range backfilling { // a run that is open is left alone
		if err := workflows.StartBackfillMeter(ctx, config.Temporal, f.Tenant, f.Version); err != nil {
			return err
		}
	}
	events, err := config.Store.ProviderEvents.Open(ctx, now.Add(-startOverdue))
	if err != nil {
		return err
	}
	for _, e := range events {
		if err := workflows.StartHandleProviderEvent(ctx, config.Temporal, e.Tenant, e.Row); err != nil {
			return err
		}
	}
	replaced, err := config.Store.HMACSecrets.Replaced(ctx, now.Add(-startOverdue))
	if err != nil {
		return err
	}
	for _, r := range replaced {
		if err := workflows.StartRotateHMACSecret(ctx, config.Temporal, r.Tenant, r.Secret); err != nil {
			return err
		}
	}
	open, err := config.Store.Syncs.Open(ctx, now.Add(-startOverdue))
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

// applySchedules makes the schedules follow the database: those of tenants
// whose settings have changed, or all of them.
func applySchedules(ctx context.Context, config Config, all bool) error {
	if all {
		if err := workflows.EnsureSchedules(ctx, config.Temporal); err != nil {
			return err
		}
	}
	list, err := config.Store.AutoSyncs.ToApply(ctx, all)
	if err != nil {
		return err
	}
	for _, a := range list {
		setPaused := a.AppliedAt == nil // the tenant's latest word; otherwise the operators' stands
		if err := workflows.ApplyAutoSync(ctx, config.Temporal, a.Tenant, a.AutoSync, setPaused); err != nil {
			return err
		}
		if err := config.Store.AutoSyncs.Applied(ctx, a.Tenant.ID, a.AutoSync); err != nil {
			return err
		}
	}
	return nil
}
