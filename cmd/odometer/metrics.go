package main

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
)

const metricsTimeout = 10 * time.Second // for one scrape

// newRegistry returns a registry with the metrics of every process: build, memory and Go runtime.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewBuildInfoCollector(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// metricsRoutes returns the handler of /metrics. It is served at a separate address, because clients of the
// API must not reach /metrics.
func metricsRoutes(registry *prometheus.Registry) *http.ServeMux {
	scraped := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(metricsTimeout)) // fails without a connection
		scraped.ServeHTTP(w, r)
	})
	return mux
}

// sdkMetrics adds the metrics of Temporal's SDK to the registry, with the names in
// https://docs.temporal.io/references/sdk-metrics.
func sdkMetrics(registry *prometheus.Registry) (client.MetricsHandler, error) {
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, err
	}
	meter := metric.NewMeterProvider(metric.WithReader(exporter)).Meter("temporal")
	return opentelemetry.NewMetricsHandler(opentelemetry.MetricsHandlerOptions{Meter: meter}), nil
}
