package db

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Maintenance is what has to be done to the database now and then, for all tenants.
type Maintenance struct{ pool *pool }

// MakeChunks makes the chunks of this week and the next two, so that no
// request has to.
func (m Maintenance) MakeChunks(ctx context.Context, now time.Time) error {
	ahead := []metering.Event{{At: now}, {At: now.Add(eventsChunk)}, {At: now.Add(2 * eventsChunk)}}
	if err := newChunks(m.pool).ensure(ctx, ahead); err != nil {
		return fmt.Errorf("make chunks: %w", err)
	}
	return nil
}

// compressAfter is how old a chunk of events is when it is compressed: by then
// hardly anything is added to it.
const compressAfter = 60 * 24 * time.Hour

// Refresh brings the independent count of usage up to now and compresses old events.
// Both exist only in TimescaleDB's Community edition: community says whether.
func (m Maintenance) Refresh(ctx context.Context, now time.Time) (community bool, err error) {
	if err := m.pool.QueryRow(ctx, `select _timescaledb_functions.tsl_loaded()`).Scan(&community); err != nil || !community {
		return community, coded(err)
	}
	err = m.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if _, err := conn.Exec(ctx, `set statement_timeout = '30min'`); err != nil {
			return err
		}
		defer func() {
			_, _ = conn.Exec(context.WithoutCancel(ctx), fmt.Sprintf(`set statement_timeout = %d`, statementTimeout.Milliseconds()))
		}()
		var kept *time.Time // days whose events are gone stay as they were
		if err := conn.QueryRow(ctx, `select kept_from from event_retention`).Scan(&kept); err != nil {
			return err
		}
		return asOwner(ctx, conn, func() error {
			_, err := conn.Exec(ctx, `call refresh_continuous_aggregate('usage_daily', $1::timestamptz, $2::timestamptz)`, kept, now.Truncate(24*time.Hour))
			if err != nil {
				return fmt.Errorf("refresh usage_daily: %w", err)
			}
			return compressEvents(ctx, conn, now)
		})
	})
	return community, coded(err)
}

// compressEvents takes one chunk after the other: nobody can add to a chunk
// while it is compressed. A chunk to which events came since it was compressed
// is compressed again.
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

// State is how things stand over all tenants.
type State struct {
	Discrepancies      int64 // that the last audits found
	Unfolded           int64 // transactions whose usage is not in the rollups yet
	OpenSyncs          int64
	OutstandingReports int64
	OldestReport       *time.Time                            // when the oldest of them was made; nil: there is none
	Reconciliations    map[billing.ReconciliationState]int64 // that found a discrepancy
	Holds              map[billing.HoldState]int64           // of draft invoices that are not final
	DuePeriods         int64
	PendingMessages    int64      // to tenants' webhooks
	OldestMessage      *time.Time // when the oldest of them was made; nil: there is none
	EvaluationsDue     int64      // customers to compare with their alerts and quotas; a change for all of a tenant counts as one
	OldestEvaluation   *time.Time // since when the first of these customers is due, or fails; nil: there is none
	KeptFrom           *time.Time // from when on events are kept; nil: all are
}

// State counts what somebody who watches the service wants to know.
func (m Maintenance) State(ctx context.Context, now time.Time) (s State, err error) {
	err = m.pool.QueryRow(ctx, `
		select
		  (select count(*) from usage_discrepancies),
		  (select count(*) from `+unfoldedTransactions+`),
		  (select count(*) from billing_syncs where status in ('requested', 'running')),
		  r.outstanding, r.oldest,
		  (select jsonb_object_agg(x.state, `+standingIn("x.state")+`) from unnest($2::text[]) x (state)),
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
		    or failures > 0) e`, now, discrepant(), openHolds()).Scan(
		&s.Discrepancies, &s.Unfolded, &s.OpenSyncs, &s.OutstandingReports, &s.OldestReport, &s.Reconciliations, &s.Holds, &s.DuePeriods, &s.PendingMessages, &s.OldestMessage, &s.EvaluationsDue, &s.OldestEvaluation, &s.KeptFrom)
	return s, coded(err)
}

// openHolds are the states of a hold under which the invoice is a draft.
func openHolds() []billing.HoldState {
	return slices.DeleteFunc(billing.HoldState("").Values(), billing.HoldState.Ended)
}
