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

const metricsTimeout = 10 * time.Second // to take them

// newRegistry has what every process says of itself: its build, its memory and
// what Go does.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewBuildInfoCollector(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// metricsRoutes are never at the API's own address: whoever reaches that is a client.
func metricsRoutes(registry *prometheus.Registry) *http.ServeMux {
	scraped := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(metricsTimeout)) // fails where there is no connection
		scraped.ServeHTTP(w, r)
	})
	return mux
}

// sdkMetrics has the registry show what Temporal's SDK measures, by the names in
// https://docs.temporal.io/references/sdk-metrics.
func sdkMetrics(registry *prometheus.Registry) (client.MetricsHandler, error) {
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, err
	}
	meter := metric.NewMeterProvider(metric.WithReader(exporter)).Meter("temporal")
	return opentelemetry.NewMetricsHandler(opentelemetry.MetricsHandlerOptions{Meter: meter}), nil
}
