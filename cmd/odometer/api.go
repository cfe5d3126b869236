package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/registry"
)

const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	headerBytes    = 16<<10 - 4<<10   // net/http reads 4 KiB more before it returns 431
	stopTimeout    = 25 * time.Second // longer than the writer's deadline
	memoryLimit    = 90 << 20         // default; GOMEMLIMIT overrides it
	garbagePercent = 400              // default; GOGC overrides it. The live heap is small, and memoryLimit still applies

	credentialConnections = 4 // a request uses one for a single lookup
)

// serveAPI serves the API until ctx ends. Then it waits until every request is answered and every accepted
// event is stored.
func serveAPI(ctx context.Context, env *environment) error {
	log := env.logger()
	url, listen, metricsAddress := env.databaseURL(), env.address("LISTEN_ADDRESS", "127.0.0.1:8080"), env.address("METRICS_ADDRESS", "")
	keys, keyring, secret := env.keys(), env.keyring(), env.secret()
	base := env.baseURL("BASE_URL", defaultBase(listen))
	guard := providers.Guard{AllowLoopback: env.flag("ALLOW_LOOPBACK_WEBHOOKS")}
	stripeBase, retention := env.stripe(), env.retention()
	errorDocs := env.baseURL("ERROR_DOCS_BASE", base+"/errors")
	shared, proxies, calls := env.redis(), env.networks("TRUSTED_PROXIES"), env.count("CALLS_PER_MINUTE")
	maxRequests := env.count("MAX_REQUESTS_PER_MINUTE")
	coalescing := usage.WriterOptions{GroupEvents: env.count("INGEST_GROUP_EVENTS"), Lanes: env.count("INGEST_LANES")}
	temporal, namespace := env.temporal(log, nil)
	workflowsURL := env.workflowsURL(namespace)
	if err := env.err(); err != nil {
		return err
	}
	defer temporal.Close()
	env.limitMemory(memoryLimit)
	if env.get("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	all := registry.New(guard, stripeBase)
	store, err := db.OpenWarm(ctx, url, secret, all.Price)
	if err != nil {
		return err
	}
	defer store.Close()
	// Ingest has its own connection pool. While ingest waits for a lock, API keys are still checked and usage
	// is still read.
	ingest, err := db.OpenForIngest(ctx, url, secret, all.Price)
	if err != nil {
		return err
	}
	defer ingest.Close()
	// Authentication also has its own connection pool, so that load on the other pools does not delay it.
	credentials, err := db.OpenSmall(ctx, url, secret, credentialConnections)
	if err != nil {
		return err
	}
	defer credentials.Close()
	if shared == nil {
		log.Info("REDIS_URL is not set: each replica applies the rate limits on its own")
	} else {
		defer func() { _ = shared.Close() }() // the process ends anyway
	}
	coalescing.Uncounted = ingest.NewUncountedSampler(func(err error) {
		log.Warn("references to uncounted events could not be stored; the API tries again", "error", err)
	})
	defer coalescing.Uncounted.Close()
	writer := ingest.NewWriter(coalescing)
	defer writer.Close()
	counter := ingest.NewEventCounter(func(err error) {
		log.Warn("the statistics of events could not be stored; the API tries again", "error", err)
	})
	defer counter.Close()
	folder := ingest.NewFolder(func(err error) {
		log.Warn("stored usage could not be folded into the rollups; the API tries again", "error", err)
	})
	defer folder.Close()
	evaluator := newEvaluator(store, log)
	defer evaluator.Close()

	metrics := newRegistry()
	clock := watchClock(ctx, credentials, log, metrics)
	handler, err := api.New(api.Deps{
		Store: store, Authentication: credentials, Writer: writer, EventCounter: counter, Temporal: temporal, Guard: guard, Providers: all,
		Keyring: keyring, Keys: keys, Secret: secret, Retention: retention, BaseURL: base, WorkflowsURL: workflowsURL, ErrorDocsBase: errorDocs, Redis: shared,
		CallsPerMinute: calls, MaxRequestsPerMinute: maxRequests, TrustedProxies: proxies, Now: now, ClockOffset: clock.offset, Log: log, Metrics: metrics, Stopping: ctx.Done(),
	})
	if err != nil {
		return err
	}
	bounded := func(listener net.Listener) *connections { return newConnections(listener, proxies, metrics, log) }
	endpoints := []endpoint{{listen, handler, bounded}}
	if metricsAddress != "" {
		endpoints = append(endpoints, endpoint{metricsAddress, metricsRoutes(metrics), nil})
	}
	return serve(ctx, log, endpoints...)
}

// defaultBase returns the URL of the address on which the API listens.
func defaultBase(listen string) string {
	if strings.HasPrefix(listen, ":") {
		return "http://localhost" + listen
	}
	return "http://" + listen
}

// endpoint is an address with the handler of its requests.
type endpoint struct {
	address string
	handler http.Handler
	bounded func(net.Listener) *connections // nil: no limit, because only trusted networks connect
}

// serve serves all endpoints until ctx ends. Then it waits until the requests in progress are answered.
func serve(ctx context.Context, log *slog.Logger, endpoints ...endpoint) error {
	ended := make(chan error, len(endpoints))
	var servers []*http.Server
	for _, e := range endpoints {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", e.address)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		server := &http.Server{
			Handler: e.handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes,
			ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		}
		listener = api.Listener(listener)
		if e.bounded != nil {
			bounded := e.bounded(listener)
			bounded.watch(server)
			listener = bounded
		}
		servers = append(servers, server)
		log.Info("listening", "address", listener.Addr().String())
		go func() { ended <- server.Serve(listener) }()
	}
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		log.Info("stopping")
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	for _, server := range servers {
		err = errors.Join(err, server.Shutdown(stopping))
	}
	return err
}
