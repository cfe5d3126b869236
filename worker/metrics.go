package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/odometer-metering/odometer/db"
)

// stateCollector collects metrics from the database each time Prometheus scrapes the worker. All workers return the
// same values.
type stateCollector struct {
	store *db.DB
	log   *slog.Logger
	now   func() time.Time
}

const stateTimeout = 5 * time.Second

var (
	discrepancies = prometheus.NewDesc("odometer_usage_discrepancies",
		"Combinations of day, meter and customer for which the last comparison found different usage in totals and in events.", nil, nil)
	unfolded = prometheus.NewDesc("odometer_unfolded_transactions",
		"Ingest transactions whose usage is not folded into the rollups yet. Every total already includes it.", nil, nil)
	openSyncs   = prometheus.NewDesc("odometer_syncs_open", "Requested syncs that have not finished yet.", nil, nil)
	outstanding = prometheus.NewDesc("odometer_billing_reports_outstanding",
		"Reports to billing providers without a known outcome.", nil, nil)
	oldestReport = prometheus.NewDesc("odometer_billing_oldest_outstanding_report_timestamp_seconds",
		"Time at which the oldest report without a known outcome was created; absent if there is none.", nil, nil)
	reconciliations = prometheus.NewDesc("odometer_billing_reconciliations",
		"Reconciliations of closed periods and meters that found a discrepancy with the provider's final invoices, by state.", []string{"state"}, nil)
	holds = prometheus.NewDesc("odometer_billing_holds",
		"Holds on draft invoices, by state.", []string{"state"}, nil)
	duePeriods    = prometheus.NewDesc("odometer_billing_periods_due", "Billing periods that are not closed although their grace period is over.", nil, nil)
	pending       = prometheus.NewDesc("odometer_webhook_messages_pending", "Messages that wait for delivery to a tenant's webhook.", nil, nil)
	oldestMessage = prometheus.NewDesc("odometer_webhook_oldest_pending_message_timestamp_seconds",
		"Time at which the oldest message that waits for a tenant's webhook was created; absent if none waits.", nil, nil)
	evaluationsDue   = prometheus.NewDesc("odometer_alert_customers_due", "Customers whose alerts and quotas wait for an evaluation.", nil, nil)
	oldestEvaluation = prometheus.NewDesc("odometer_alert_oldest_due_timestamp_seconds",
		"Time since which the first customer waits for an evaluation of its alerts and quotas; absent if none waits.", nil, nil)
	keptFrom = prometheus.NewDesc("odometer_events_kept_from_timestamp_seconds", "Time from which events are kept; absent if all events are kept.", nil, nil)
)

func (s *stateCollector) Describe(all chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{discrepancies, unfolded, openSyncs, outstanding, oldestReport, reconciliations, holds, duePeriods, pending, oldestMessage, evaluationsDue, oldestEvaluation, keptFrom} {
		all <- d
	}
}

// Collect returns no metrics if the database does not respond.
func (s *stateCollector) Collect(all chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	found, err := s.store.Maintenance.State(ctx, s.now())
	if err != nil {
		s.log.Warn("the worker cannot read the state of the database for /metrics", "error", err)
		return
	}
	gauge := func(d *prometheus.Desc, value int64, labels ...string) {
		all <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	gauge(discrepancies, found.Discrepancies)
	gauge(unfolded, found.Unfolded)
	instant := func(d *prometheus.Desc, t *time.Time) {
		if t != nil {
			gauge(d, t.Unix())
		}
	}
	gauge(openSyncs, found.OpenSyncs)
	gauge(outstanding, found.OutstandingReports)
	instant(oldestReport, found.OldestReport)
	for state, n := range found.Reconciliations {
		gauge(reconciliations, n, string(state))
	}
	for state, n := range found.Holds {
		gauge(holds, n, string(state))
	}
	gauge(duePeriods, found.DuePeriods)
	gauge(pending, found.PendingMessages)
	instant(oldestMessage, found.OldestMessage)
	gauge(evaluationsDue, found.EvaluationsDue)
	instant(oldestEvaluation, found.OldestEvaluation)
	instant(keptFrom, found.KeptFrom)
}
