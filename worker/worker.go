// Package worker runs the workflows and their activities. It registers them, polls the task queues, starts
// missing workflow runs, and stops without losing work. It contains no business rules.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/webhook"
	"github.com/odometer-metering/odometer/workflows"
)

// Config contains the dependencies of a worker. The caller opens and closes both clients.
type Config struct {
	Store                  *db.DB
	Temporal               client.Client
	Namespace              string // Temporal namespace; "": "default"
	Keyring                seal.Keyring
	Guard                  providers.Guard
	Providers              providers.Registry
	Retention              metering.Retention
	ProviderCallsPerSecond float64 // for all workers together, which must have the same value; 0: 100
	BaseURL                string  // base URL of the API for links in the details of runs; "": no links
	Log                    *slog.Logger
	Metrics                prometheus.Registerer // may be nil
	Now                    func() time.Time      // nil: time.Now
	ClockOffset            metering.ClockOffset  // offset of Now; no activity runs while it exceeds metering.ClockLimit
	Started                func()                // called once the worker polls the task queues; may be nil
}

// stopTimeout is the time that running activities get to finish after a stop. It is longer than any
// call to a provider.
const stopTimeout = 30 * time.Second

// Run runs the worker until ctx ends, and then stops it gracefully.
func Run(ctx context.Context, config Config) error {
	if config.ProviderCallsPerSecond == 0 {
		config.ProviderCallsPerSecond = 100
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if err := checkNamespace(ctx, config); err != nil && ctx.Err() == nil {
		return fmt.Errorf("check the Temporal namespace: %w", err)
	}

	do := activities.New(activities.Config{
		Store: config.Store, Keyring: config.Keyring, Webhook: webhook.New(config.Guard), Providers: config.Providers, Retention: config.Retention,
		Metrics: activities.NewMetrics(config.Metrics), Now: config.Now, BaseURL: config.BaseURL,
	})
	if config.Metrics != nil {
		config.Metrics.MustRegister(&stateCollector{config.Store, config.Log, config.Now})
	}
	fatal := make(chan error, 3)
	options := worker.Options{
		WorkerStopTimeout: stopTimeout,
		OnFatalError:      func(err error) { fatal <- err },
		Interceptors:      []interceptor.WorkerInterceptor{&activityInterceptor{execute: logFailures(config.Log)}, &activityInterceptor{execute: checkClock(config.ClockOffset)}},
		// By default, the SDK delays heartbeats by up to 80% of their timeout. On a busy machine, a further
		// delay would end an attempt although it is still running.
		MaxHeartbeatThrottleInterval: activities.Beat,
	}
	main := worker.New(config.Temporal, workflows.TaskQueue, options)
	for _, workflow := range workflows.All() {
		main.RegisterWorkflow(workflow)
	}
	main.RegisterActivity(do)

	options.DisableWorkflowWorker = true
	heavy := worker.New(config.Temporal, workflows.HeavyTaskQueue, options)
	for _, work := range []any{do.CountDays, do.EraseGroups, do.EraseEvents, do.EraseMessages, do.FinishErasure} {
		heavy.RegisterActivity(work)
	}

	options.TaskQueueActivitiesPerSecond = config.ProviderCallsPerSecond
	calls := worker.New(config.Temporal, workflows.ProviderTaskQueue, options)
	for _, call := range []any{do.ReadProvider, do.SendReport, do.SyncBatch, do.ReadInvoice, do.LookAtHold, do.ListEvents, do.ListInvoices, do.SendMessages} {
		calls.RegisterActivity(call)
	}

	if err := errors.Join(main.Start(), calls.Start(), heavy.Start()); err != nil {
		return fmt.Errorf("start worker: %w", err)
	}
	// Workflows stop before the worker of provider calls, so that activities that the workflows started can
	// still finish. Heavy activities stop at the same time as workflows, because otherwise they would begin
	// another part of their work.
	var stopping sync.WaitGroup
	defer stopping.Wait()
	defer calls.Stop()
	defer main.Stop()
	defer stopping.Go(heavy.Stop)
	if config.Started != nil {
		config.Started()
	}
	reconcile(ctx, config)
	select {
	case <-ctx.Done():
		return nil
	case err := <-fatal:
		return fmt.Errorf("poll task queues: %w", err)
	}
}
