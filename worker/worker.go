// Package worker runs the workflows and their activities: it registers them,
// polls the task queues, starts again what nobody is working on, and stops
// without losing anything. It owns no rule of what happens.
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
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/webhook"
	"github.com/odometer-metering/odometer/workflows"
)

// Config is what a worker works with. The caller opens and closes both clients.
type Config struct {
	Store                  *db.DB
	Temporal               client.Client
	Namespace              string // that Temporal uses; "" is "default"
	Keyring                db.Keyring
	Guard                  providers.Guard
	Providers              providers.Registry
	Retention              metering.Retention
	ProviderCallsPerSecond float64 // over all workers, which must agree on it; 0: 100
	BaseURL                string  // where clients reach the API, for the details of runs; "": they have no links
	Log                    *slog.Logger
	Metrics                prometheus.Registerer // may be nil
	Now                    func() time.Time      // nil: time.Now
	ClockOffset            metering.ClockOffset  // of Now; no activity runs while it is beyond metering.ClockLimit
	Started                func()                // called once the task queues are polled; may be nil
}

// stopTimeout is how long running activities may go on after a stop: longer
// than any call to a provider takes.
const stopTimeout = 30 * time.Second

// Run works until ctx ends, and then stops gracefully.
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
		config.Metrics.MustRegister(&state{config.Store, config.Log, config.Now})
	}
	fatal := make(chan error, 3)
	options := worker.Options{
		WorkerStopTimeout: stopTimeout,
		OnFatalError:      func(err error) { fatal <- err },
		Interceptors:      []interceptor.WorkerInterceptor{&failures{log: config.Log, clock: config.ClockOffset}},
		// The SDK would hold beats back for 0.8 of their timeout: one that is
		// late on a busy machine would be the end of an attempt that works.
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
	// Workflows stop being driven first; what they have started may still end. Heavy work ends
	// meanwhile: it would begin another part otherwise.
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
