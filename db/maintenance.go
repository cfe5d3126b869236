package db

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// Maintenance runs the periodic work on the database for all tenants.
type Maintenance struct {
	pool   *pg.Pool
	ledger ledger.Ledger
}

// MakeChunks creates the chunks of this week and the next two, so that no request has to create them.
func (m Maintenance) MakeChunks(ctx context.Context, now time.Time) error {
	ahead := []metering.Event{{At: now}, {At: now.Add(usage.EventsChunk)}, {At: now.Add(2 * usage.EventsChunk)}}
	if err := usage.NewChunks(m.pool).Ensure(ctx, ahead); err != nil {
		return fmt.Errorf("make chunks: %w", err)
	}
	return nil
}

// compressAfter is the age from which a chunk of events is compressed. Older chunks get few events.
const compressAfter = 60 * 24 * time.Hour

// Refresh refreshes usage_daily, the independent daily count of usage, up to the start of the current day in
// UTC, and compresses old events. Both need TimescaleDB's Community edition. community reports whether the
// database has it; if not, Refresh does nothing.
func (m Maintenance) Refresh(ctx context.Context, now time.Time) (community bool, err error) {
	if err := m.pool.QueryRow(ctx, `select _timescaledb_functions.tsl_loaded()`).Scan(&community); err != nil || !community {
		return community, pg.Coded(err)
	}
	err = m.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if _, err := conn.Exec(ctx, `set statement_timeout = '30min'`); err != nil {
			return err
		}
		defer func() {
			_, _ = conn.Exec(context.WithoutCancel(ctx), fmt.Sprintf(`set statement_timeout = %d`, pg.StatementTimeout.Milliseconds()))
		}()
		var kept *time.Time // earlier days keep their totals, because their events are deleted
		if err := conn.QueryRow(ctx, `select kept_from from event_retention`).Scan(&kept); err != nil {
			return err
		}
		return pg.RunAsOwner(ctx, conn, func() error {
			_, err := conn.Exec(ctx, `call refresh_continuous_aggregate('usage_daily', $1::timestamptz, $2::timestamptz)`, kept, now.Truncate(24*time.Hour))
			if err != nil {
				return fmt.Errorf("refresh usage_daily: %w", err)
			}
			return compressEvents(ctx, conn, now)
		})
	})
	return community, pg.Coded(err)
}

// compressEvents compresses one old chunk after another, because a chunk accepts no events while it is
// being compressed. It compresses a chunk again if events were added after the last compression.
func compressEvents(ctx context.Context, conn *pgxpool.Conn, now time.Time) error {
	rows, err := conn.Query(ctx, `select c::text from show_chunks('events', older_than => $1::timestamptz) c order by 1`, now.Add(-compressAfter))
	if err != nil {
		return fmt.Errorf("find old events: %w", err)
	}
	chunks, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("find old events: %w", err)
	}
	for _, chunk := range chunks {
		if _, err := conn.Exec(ctx, `select compress_chunk($1::text::regclass, if_not_compressed => true)`, chunk); err != nil {
			return fmt.Errorf("compress events: %w", err)
		}
	}
	return nil
}

// State is the state of the service over all tenants, for metrics.
type State struct {
	Discrepancies      int64 // found by the last audits
	Unfolded           int64 // transactions with usage that is not in the rollups yet
	OpenSyncs          int64
	OutstandingReports int64
	OldestReport       *time.Time                            // creation of the oldest outstanding report; nil: none
	Reconciliations    map[billing.ReconciliationState]int64 // with a discrepancy
	Holds              map[billing.HoldState]int64           // open holds of draft invoices
	DuePeriods         int64                                 // open billing periods past their grace period
	PendingMessages    int64                                 // deliveries to tenants' webhooks
	OldestMessage      *time.Time                            // creation of the oldest pending message; nil: none
	EvaluationsDue     int64                                 // customers with an alert evaluation that is due or has failed; an evaluation of a whole tenant is counted as one
	OldestEvaluation   *time.Time                            // time since which the oldest of these evaluations is due or fails; nil: none
	KeptFrom           *time.Time                            // time from which events are retained; nil: all events are retained
}

// State returns the state of the service over all tenants.
func (m Maintenance) State(ctx context.Context, now time.Time) (s State, err error) {
	err = m.pool.QueryRow(ctx, `
		select
		  (select count(*) from usage_discrepancies),
		  (select count(*) from `+usage.UnfoldedTransactions+`),
		  (select count(*) from billing_syncs where status in ('requested', 'running')),
		  r.outstanding, r.oldest,
		  (select jsonb_object_agg(x.state, `+ledger.StandingIn("x.state")+`) from unnest($2::text[]) x (state)),
		  (select jsonb_object_agg(x.state, (select count(*) from billing_holds h where h.ended_at is null and h.state = x.state)) from unnest($3::text[]) x (state)),
		  (select count(*) from billing_periods p join tenants t on t.id = p.tenant_id
		    where p.closed_at is null and p.ends_at <= $1::timestamptz - t.grace),
		  d.pending, d.oldest, e.customers, e.oldest, (select kept_from from event_retention)
		from (
		  select count(*) as outstanding, min(recorded_at) as oldest
		  from billing_reports
		  where state in ('planned', 'sending', 'in_doubt')) r, (
		  select count(*) as pending, min(o.created_at) as oldest
		  from webhook_deliveries w
		  join outbox o on o.tenant_id = w.tenant_id and o.id = w.message_id
		  where w.status = 'pending') d, (
		  select count(distinct (tenant_id, customer_id)) as customers,
		    min(case when failures > 0 then queued_at else greatest(queued_at, due_at) end) as oldest
		  from alert_due
		  where due_at <= $1
		    or failures > 0) e`, now, ledger.Discrepant(), openHolds()).Scan(
		&s.Discrepancies, &s.Unfolded, &s.OpenSyncs, &s.OutstandingReports, &s.OldestReport, &s.Reconciliations, &s.Holds, &s.DuePeriods, &s.PendingMessages, &s.OldestMessage, &s.EvaluationsDue, &s.OldestEvaluation, &s.KeptFrom)
	return s, pg.Coded(err)
}

// openHolds returns the states of a hold that has not ended.
func openHolds() []billing.HoldState {
	return slices.DeleteFunc(billing.HoldState("").Values(), billing.HoldState.Ended)
}
