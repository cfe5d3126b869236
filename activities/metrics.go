package activities

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Metrics counts the work of activities by outcome. It has no label for the tenant.
type Metrics struct {
	calls    *prometheus.HistogramVec
	failed   *prometheus.GaugeVec
	reports  *prometheus.CounterVec
	syncs    *prometheus.CounterVec
	webhooks *prometheus.CounterVec
	missed   prometheus.Counter
	gaps     prometheus.Counter
}

// NewMetrics creates the metrics and registers them with registry, unless that is nil.
func NewMetrics(registry prometheus.Registerer) Metrics {
	m := Metrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "odometer_provider_call_duration_seconds", Help: "Duration of calls to billing providers, by outcome: answered, refused, unavailable, or failed because of Odometer itself.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 12),
		}, []string{"provider", "outcome"}),
		failed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "odometer_provider_last_failure_timestamp_seconds", Help: "Time of this worker's last failed call to a provider of this kind.",
		}, []string{"provider"}),
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "odometer_billing_reports_total", Help: "Reports to billing providers, by outcome.",
		}, []string{"kind", "state"}),
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "odometer_syncs_total", Help: "Finished syncs of customers, by outcome: succeeded or failed.",
		}, []string{"outcome"}),
		webhooks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "odometer_webhook_attempts_total", Help: "Attempts to deliver messages to tenants' webhooks, by outcome: succeeded or failed.",
		}, []string{"outcome"}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "odometer_provider_events_missed_total", Help: "Provider events that did not arrive at the API and were found in the provider's list of events.",
		}),
		gaps: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "odometer_provider_event_gaps_total", Help: "Times that the worker read a provider's list of events too late to see every event.",
		}),
	}
	for _, outcome := range []string{"succeeded", "failed"} { // start at 0, so that the first increment is visible as an increase
		m.syncs.WithLabelValues(outcome)
		m.webhooks.WithLabelValues(outcome)
	}
	if registry != nil {
		registry.MustRegister(m.calls, m.failed, m.reports, m.syncs, m.webhooks, m.missed, m.gaps)
	}
	return m
}

// measureCall calls a provider, and records the duration and the outcome.
func measureCall[T any](m Metrics, kind metering.ProviderKind, call func() (T, error)) (T, error) {
	began := time.Now()
	answer, err := call()
	outcome := "failed"
	switch metering.CodeOf(err) {
	case "":
		outcome = "answered"
	case metering.CodeProviderRefuse:
		outcome = "refused"
	case metering.CodeProviderDown:
		outcome = "unavailable"
	}
	m.calls.WithLabelValues(string(kind), outcome).Observe(time.Since(began).Seconds())
	if err != nil {
		m.failed.WithLabelValues(string(kind)).SetToCurrentTime()
	}
	return answer, err
}

// countReport counts a report by its state if err is nil. It returns err, the error of storing that state.
func (m Metrics) countReport(kind billing.Kind, state billing.State, err error) error {
	if err == nil {
		m.reports.WithLabelValues(string(kind), string(state)).Inc()
	}
	return err
}

// countSyncs counts the finished sync requests of a pass if err is nil. It returns err, the error of storing their
// result. failure is the error of the sync; "": it succeeded.
func (m Metrics) countSyncs(failure string, requests int, err error) error {
	if err == nil {
		m.syncs.WithLabelValues(outcomeOf(failure)).Add(float64(requests))
	}
	return err
}

// countDelivery counts an attempt to deliver a message if err is nil. It returns err, the error of storing the attempt.
// failure is the error of the delivery; "": it succeeded.
func (m Metrics) countDelivery(failure string, err error) error {
	if err == nil {
		m.webhooks.WithLabelValues(outcomeOf(failure)).Inc()
	}
	return err
}

// outcomeOf returns the value of the outcome label for a failure; "" stands for success.
func outcomeOf(failure string) string {
	if failure != "" {
		return "failed"
	}
	return "succeeded"
}
