package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/registry"
	"github.com/odometer-metering/odometer/worker"
)

// workerMemoryLimit is the default memory limit of a worker; GOMEMLIMIT overrides it.
const workerMemoryLimit = 160 << 20

// runWorker runs the worker until ctx ends. Then it stops the worker gracefully, and running activities get
// time to finish.
func runWorker(ctx context.Context, env *environment) error {
	log := env.logger()
	url, address, keyring := env.databaseURL(), env.address("METRICS_ADDRESS", ""), env.keyring()
	secret := env.secret()
	guard := providers.Guard{AllowLoopback: env.flag("ALLOW_LOOPBACK_WEBHOOKS")}
	stripeBase, retention, base := env.stripe(), env.retention(), env.baseURL("BASE_URL", "")
	metrics := newRegistry()
	temporal, namespace := env.temporal(log, metrics)
	if err := env.err(); err != nil {
		return err
	}
	defer temporal.Close()
	env.limitMemory(workerMemoryLimit)
	all := registry.New(guard, stripeBase)
	store, err := db.Open(ctx, url, secret, all.Price)
	if err != nil {
		return err
	}
	defer store.Close()

	evaluator := newEvaluator(store, log)
	defer evaluator.Close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	clock := watchClock(ctx, store, log, metrics)
	var started atomic.Bool
	served := make(chan error, 1)
	go func() {
		defer cancel()
		if address == "" {
			<-ctx.Done()
			served <- nil
			return
		}
		served <- serve(ctx, log, endpoint{address, workerRoutes(&started, clock.offset, metrics), nil})
	}()
	err = worker.Run(ctx, worker.Config{
		Store: store, Temporal: temporal, Namespace: namespace, Keyring: keyring, Guard: guard, Providers: all, Retention: retention, BaseURL: base, Log: log, Metrics: metrics, Now: now, ClockOffset: clock.offset,
		Started: func() { started.Store(true) },
	})
	cancel()
	return errors.Join(err, <-served)
}

// newEvaluator starts an evaluator of alerts. Each API and worker process runs one.
func newEvaluator(store *db.DB, log *slog.Logger) *limits.Evaluator {
	evaluator := store.NewEvaluator(now, func(err error) {
		log.Warn("alerts could not be evaluated; the process tries again", "error", err)
	})
	evaluator.Start()
	return evaluator
}

// workerRoutes returns the endpoints of a worker. /readyz returns 200 if the worker polls its task queues and
// its clock is correct.
func workerRoutes(started *atomic.Bool, clock metering.ClockOffset, registry *prometheus.Registry) http.Handler {
	mux := metricsRoutes(registry)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !started.Load() || clock.Check(metering.ClockWarning) != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	return mux
}
