package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/odometer-metering/odometer/db"
)

// state tells Prometheus how things stand in the database, asked when it asks;
// every worker says the same.
type state struct {
	store *db.DB
	log   *slog.Logger
	now   func() time.Time
}

const stateTimeout = 5 * time.Second

var (
	discrepancies = prometheus.NewDesc("odometer_usage_discrepancies",
		"Days, meters and customers on which the last audit found that totals and events disagree.", nil, nil)
	unfolded = prometheus.NewDesc("odometer_unfolded_transactions",
		"Transactions of ingest whose usage is not in the rollups yet. It is in every total.", nil, nil)
	openSyncs   = prometheus.NewDesc("odometer_syncs_open", "Requested syncs that are not answered yet.", nil, nil)
	outstanding = prometheus.NewDesc("odometer_billing_reports_outstanding",
		"Reports to providers whose outcome is not known yet.", nil, nil)
	oldestReport = prometheus.NewDesc("odometer_billing_oldest_outstanding_report_timestamp_seconds",
		"When the oldest report was made whose outcome is not known yet; absent: there is none.", nil, nil)
	reconciliations = prometheus.NewDesc("odometer_billing_reconciliations",
		"Closed periods and meters by how their reconciliation with the provider's final invoices stands, where it found a discrepancy.", []string{"state"}, nil)
	holds = prometheus.NewDesc("odometer_billing_holds",
		"Draft invoices that are kept from becoming final, by how their hold stands.", []string{"state"}, nil)
	duePeriods    = prometheus.NewDesc("odometer_billing_periods_due", "Billing periods whose grace is over and that are not closed.", nil, nil)
	pending       = prometheus.NewDesc("odometer_webhook_messages_pending", "Messages that wait for a tenant's webhook.", nil, nil)
	oldestMessage = prometheus.NewDesc("odometer_webhook_oldest_pending_message_timestamp_seconds",
		"When the oldest message was made that waits for a tenant's webhook; absent: none does.", nil, nil)
	keptFrom = prometheus.NewDesc("odometer_events_kept_from_timestamp_seconds", "From when on events are kept; absent: all are.", nil, nil)
)

func (s *state) Describe(all chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{discrepancies, unfolded, openSyncs, outstanding, oldestReport, reconciliations, holds, duePeriods, pending, oldestMessage, keptFrom} {
		all <- d
	}
}

// Collect leaves everything out when the database does not answer.
func (s *state) Collect(all chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	found, err := s.store.Maintenance.State(ctx, s.now())
	if err != nil {
		s.log.Warn("the state of the database cannot be shown", "error", err)
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
	instant(keptFrom, found.KeptFrom)
}
