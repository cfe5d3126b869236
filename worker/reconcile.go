package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

const (
	reconcileEvery = 30 * time.Second
	deliverEvery   = time.Second
	// holdEvery is long, because an invoice is held for days.
	holdEvery = 5 * time.Minute
	// closeEvery is long, because each check starts a run for every tenant with a due period, even if the
	// period cannot be closed yet.
	closeEvery = time.Hour
	// StartOverdue is the time after which a committed row without a workflow run is treated as unfinished.
	StartOverdue = time.Minute
)

// unfinished is a kind of work that is stored as a row before its workflow run starts. If the start fails or
// the run is terminated, the worker starts another run from the row.
type unfinished struct {
	name  string
	first time.Duration // delay of the first check after the worker's start
	every time.Duration
	find  func(ctx context.Context, now time.Time) ([]begin, error)
}

// begin starts a workflow run for a row unless a run is open. For a delayed sync, it notifies the tenant's
// webhooks instead.
type begin func(ctx context.Context) error

// allUnfinished returns all kinds of work that may be unfinished. Every worker checks all of them. An open run
// continues unchanged, even if another worker started it.
func allUnfinished(config Config) []unfinished {
	store, c := config.Store, config.Temporal
	return []unfinished{
		{"backfills", 0, reconcileEvery, startsFor(
			func(ctx context.Context, _ time.Time) ([]usage.BackfillingMeterVersion, error) {
				return store.Backfills.Unfinished(ctx)
			},
			func(ctx context.Context, f usage.BackfillingMeterVersion) error {
				return workflows.StartBackfillMeter(ctx, c, f.Tenant, f.Version)
			},
		)},
		{"events of providers", 0, reconcileEvery, startsFor(overdue(store.ProviderEvents.Open),
			func(ctx context.Context, e ledger.KeptEvent) error {
				return workflows.StartHandleProviderEvent(ctx, c, e.Tenant, e.Customer, e.Row, false)
			},
		)},
		{"syncs", 0, reconcileEvery, startsFor(overdue(store.Syncs.Open),
			func(ctx context.Context, o ledger.OpenSyncs) error {
				return workflows.RestartSyncCustomer(ctx, c, o.Tenant, o.Customer)
			},
		)},
		{"delayed syncs", 0, reconcileEvery, startsFor(store.Syncs.Delayed,
			func(ctx context.Context, d ledger.DelayedSync) error {
				return store.Syncs.ReportDelay(ctx, d, config.Now())
			},
		)},
		{"rotations", 0, reconcileEvery, startsFor(store.Rotations.Unwatched,
			func(ctx context.Context, r access.UnwatchedRotation) error {
				return workflows.StartRotateCredential(ctx, c, r.Tenant, r.ID)
			},
		)},
		{"erasures", 0, reconcileEvery, startsFor(overdue(store.Erasures.Unfinished),
			func(ctx context.Context, e db.ErasingCustomer) error {
				return workflows.StartEraseCustomer(ctx, c, e.Tenant, e.ID)
			},
		)},
		{"held invoices", 0, holdEvery, startsFor(overdue(store.Holds.Open),
			func(ctx context.Context, h ledger.OpenHold) error {
				return workflows.RestartHoldInvoice(ctx, c, h.Tenant, h.Customer, h.ID)
			},
		)},
		// The first check runs StartOverdue after the worker's start, so that the first sync of a new customer
		// precedes it.
		{"billing periods", StartOverdue, closeEvery, startsFor(store.Ledger.DueTenants,
			func(ctx context.Context, tenant metering.TenantID) error {
				return workflows.StartClosePeriod(ctx, c, tenant)
			},
		)},
		{"messages to webhooks", 0, deliverEvery, startsFor(store.Deliveries.Wanted,
			func(ctx context.Context, w access.WantedEndpoint) error {
				return workflows.StartDeliverWebhooks(ctx, c, w.Tenant, w.Endpoint)
			},
		)},
	}
}

// startsFor returns a function that finds rows, and returns a begin for each of them that calls start.
func startsFor[Row any](find func(ctx context.Context, now time.Time) ([]Row, error), start func(ctx context.Context, row Row) error) func(context.Context, time.Time) ([]begin, error) {
	return func(ctx context.Context, now time.Time) (starts []begin, err error) {
		found, err := find(ctx, now)
		for _, row := range found {
			starts = append(starts, func(ctx context.Context) error { return start(ctx, row) })
		}
		return starts, err
	}
}

// overdue returns only rows that are older than StartOverdue, because the start of the run for a newer row
// may still be in progress.
func overdue[Row any](find func(ctx context.Context, before time.Time) ([]Row, error)) func(context.Context, time.Time) ([]Row, error) {
	return func(ctx context.Context, now time.Time) ([]Row, error) { return find(ctx, now.Add(-StartOverdue)) }
}

// reconcile periodically starts runs for all unfinished work. Each kind of work has a goroutine of its own,
// so that the kinds do not wait for each other.
func reconcile(ctx context.Context, config Config) {
	go applySchedules(ctx, config)
	for _, u := range allUnfinished(config) {
		go u.reconcile(ctx, config)
	}
}

// reconcile checks for unfinished work periodically, until ctx ends.
func (u unfinished) reconcile(ctx context.Context, config Config) {
	sleep(ctx, u.first)
	for ctx.Err() == nil {
		pause := u.every
		if err := u.checkOnce(ctx, config.Now()); err != nil && ctx.Err() == nil {
			config.Log.WarnContext(ctx, u.name+": the worker could not handle every row; it tries again", "error", err)
			pause = min(pause, reconcileEvery)
		}
		sleep(ctx, pause)
	}
}

// checkOnce checks for unfinished work once. If a run cannot be started, checkOnce still starts the runs of the other
// rows. The next check tries again.
func (u unfinished) checkOnce(ctx context.Context, now time.Time) error {
	starts, err := u.find(ctx, now)
	if err != nil {
		return err
	}
	var failures []error
	for _, start := range starts {
		if err := start(ctx); err != nil {
			failures = append(failures, err)
		}
	}
	return joinFailures(failures, len(starts))
}

// joinFailures joins the failures of a number of attempts into one error. It returns nil if there are none.
func joinFailures(failures []error, attempts int) error {
	if len(failures) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d attempts failed: %w", len(failures), attempts, errors.Join(failures...))
}

// sleep waits for a duration, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// applySchedules periodically updates the Temporal schedules to match their settings.
func applySchedules(ctx context.Context, config Config) {
	applyAll := true // schedules may have changed while no worker was running
	for ctx.Err() == nil {
		if err := applySchedulesOnce(ctx, config, applyAll); err == nil {
			applyAll = false
		} else if ctx.Err() == nil {
			config.Log.WarnContext(ctx, "the worker could not apply the settings of all schedules; it tries again", "error", err)
		}
		sleep(ctx, reconcileEvery)
	}
}

// applySchedulesOnce updates the schedules of tenants with changed settings, or all schedules. If an update
// fails, the other schedules are still updated.
func applySchedulesOnce(ctx context.Context, config Config, all bool) error {
	if all {
		if err := workflows.EnsureSchedules(ctx, config.Temporal); err != nil {
			return err
		}
	}
	list, err := config.Store.AutoSyncs.ToApply(ctx, all)
	if err != nil {
		return err
	}
	var failures []error
	for _, a := range list {
		if err := applySchedule(ctx, config, a); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", a.Tenant.ID, err))
		}
	}
	return joinFailures(failures, len(list))
}

// applySchedule updates a tenant's schedule in Temporal, and records that its settings are applied.
func applySchedule(ctx context.Context, config Config, a ledger.TenantAutoSync) error {
	setPaused := a.AppliedAt == nil // the tenant's new setting applies; otherwise, an operator's pause or resume stays
	if err := workflows.ApplyAutoSync(ctx, config.Temporal, a.Tenant, a.AutoSync, setPaused); err != nil {
		return err
	}
	return config.Store.AutoSyncs.Applied(ctx, a.Tenant.ID, a.AutoSync)
}
