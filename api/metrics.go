package api

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	events     *prometheus.CounterVec
	refused    *prometheus.CounterVec
	overloaded *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) metrics {
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "odometer_http_requests_total", Help: "HTTP requests, by route and status.",
		}, []string{"route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "odometer_http_request_duration_seconds", Help: "Time from the end of the request's headers to the end of the response.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12),
		}, []string{"route"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "odometer_events_total", Help: "Events, by outcome: stored, duplicate, conflict (a duplicate with other content) or rejected.",
		}, []string{"outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "odometer_bodies_refused_total",
			Help: "Request bodies that the API did not read to the end, by budget (tenants, signed or provider_events) and reason: full (the budget was used up), ended (the body arrived slowly while other requests needed the budget) or slow.",
		}, []string{"budget", "reason"}),
		overloaded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "odometer_requests_overloaded_total",
			Help: "Requests that the API refused with 503 overloaded, except for refused bodies, by bound: heavy, series, requests, responses, large_bodies, sign_ins or database.",
		}, []string{"bound"}),
	}
	if registry != nil {
		registry.MustRegister(m.requests, m.duration, m.events, m.refused, m.overloaded)
	}
	return m
}

func (m metrics) observe(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(route).Observe(took.Seconds())
}
