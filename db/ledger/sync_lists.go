package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

var selectSyncs = `
	select s.id, s.customer_id, c.external_id, c.name, s.trigger, s.status, s.error, s.requested_at, s.started_at, s.finished_at, p.began_at, p.began_by, p.reason
	from billing_syncs s
	join customers c on c.tenant_id = s.tenant_id and c.id = s.customer_id
	left join lateral (` + pauseOf("s.tenant_id", "s.customer_id") + `) p on s.status in ('requested', 'running')
	where s.tenant_id = @tenant`

func scanSync(row pgx.CollectableRow) (s metering.Sync, err error) {
	var (
		since  *time.Time
		by     *metering.Actor
		reason *string
	)
	err = row.Scan(&s.ID, &s.CustomerID, &s.ExternalID, &s.CustomerName, &s.Trigger, &s.Status, &s.Error, &s.RequestedAt, &s.StartedAt, &s.FinishedAt, &since, &by, &reason)
	if since != nil {
		s.Pause = &metering.Pause{Since: *since, By: *by, Reason: *reason}
	}
	return s, err
}

// Get returns a sync with its lines, or CodeNotFound.
func (s Syncs) Get(ctx context.Context, tenant metering.TenantID, id uuid.UUID) (metering.Sync, error) {
	rows, err := s.pool.Query(ctx, selectSyncs+` and s.id = @id`, pgx.NamedArgs{"tenant": tenant, "id": id})
	if err != nil {
		return metering.Sync{}, fmt.Errorf("read sync: %w", pg.Coded(err))
	}
	sync, err := pgx.CollectExactlyOneRow(rows, scanSync)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Sync{}, metering.Errorf(metering.CodeNotFound, "there is no such sync")
	}
	if err != nil {
		return metering.Sync{}, fmt.Errorf("read sync: %w", pg.Coded(err))
	}
	if sync.Lines, err = s.lines(ctx, tenant, id); err != nil {
		return metering.Sync{}, fmt.Errorf("read lines of sync: %w", pg.Coded(err))
	}
	if sync.Excluded, err = s.excluded(ctx, tenant, id); err != nil {
		return metering.Sync{}, fmt.Errorf("read excluded meters: %w", pg.Coded(err))
	}
	return sync, nil
}

func (s Syncs) lines(ctx context.Context, tenant metering.TenantID, sync uuid.UUID) ([]metering.SyncLine, error) {
	rows, err := s.pool.Query(ctx, `
		select r.id, s.kind, r.number, r.state, m.id, m.slug, p.starts_at, p.ends_at, case when l.late then 'adjustment' else l.component end, l.usage, l.unit_price,
		  case when l.late then l.amount else l.charge end, l.currency,
		  s.method, s.target, coalesce(s.window_start, t.starts_at), coalesce(s.window_end, t.ends_at), l.quantity, r.quantity, r.response
		from billing_sync_reports x
		join billing_reports r on r.tenant_id = x.tenant_id and r.id = x.report_id
		join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id
		join billing_periods t on t.tenant_id = r.tenant_id and t.id = r.period_id
		join billing_report_lines l on l.tenant_id = r.tenant_id and l.report_id = r.id
		join billing_periods p on p.tenant_id = l.tenant_id and p.id = l.period_id
		left join meters m on m.tenant_id = l.tenant_id and m.id = l.meter_id
		where x.tenant_id = $1
		  and x.sync_id = $2
		order by p.starts_at, s.kind = 'statement', case s.kind when 'statement' then r.number end, m.id, s.window_start, r.number`, tenant, sync)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l metering.SyncLine, err error) {
		err = row.Scan(&l.ReportID, &l.Kind, &l.Number, &l.State, &l.MeterID, &l.MeterSlug, &l.Period.Start, &l.Period.End, &l.Component, &l.Usage, &l.UnitPrice,
			&l.Amount, &l.Currency, &l.Method, &l.Target, &l.Window.Start, &l.Window.End, &l.Quantity, &l.Sent, &l.Response)
		return l, err
	})
}

func (s Syncs) excluded(ctx context.Context, tenant metering.TenantID, sync uuid.UUID) ([]metering.ExcludedMeter, error) {
	rows, err := s.pool.Query(ctx, `
		select m.id, m.slug, x.code, x.detail
		from billing_sync_exclusions x
		join meters m on m.tenant_id = x.tenant_id and m.id = x.meter_id
		where x.tenant_id = $1
		  and x.sync_id = $2
		order by m.id`, tenant, sync)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (k metering.ExcludedMeter, err error) {
		err = row.Scan(&k.MeterID, &k.MeterSlug, &k.Code, &k.Detail)
		return k, err
	})
}

// SyncFilter selects syncs. Zero fields do not restrict.
type SyncFilter struct {
	Customer metering.CustomerID
	Status   metering.SyncStatus
	Before   uuid.UUID // the last sync of the previous page
}

// List returns up to limit syncs, newest first, without their lines.
func (s Syncs) List(ctx context.Context, tenant metering.TenantID, f SyncFilter, limit int) (page pg.Page[metering.Sync], err error) {
	rows, err := s.pool.Query(ctx, selectSyncs+`
		  and (@customer = 0 or s.customer_id = @customer)
		  and (@status = '' or s.status = @status)
		  and (@before::uuid = '00000000-0000-0000-0000-000000000000' or s.id < @before::uuid)
		order by s.id desc
		limit @limit`, pgx.NamedArgs{
		"tenant": tenant, "customer": int64(f.Customer), "status": string(f.Status), "before": f.Before, "limit": limit + 1,
	})
	if err != nil {
		return page, fmt.Errorf("list syncs: %w", pg.Coded(err))
	}
	page, err = pg.ReadPage(ctx, rows, limit, scanSync)
	if err != nil {
		return page, fmt.Errorf("list syncs: %w", pg.Coded(err))
	}
	return page, nil
}

// OpenSyncs is a customer with unanswered requests.
type OpenSyncs struct {
	Tenant   metering.TenantID
	Customer metering.CustomerID
}

// Open returns the customers, of all tenants, with an open request from before the given instant. It skips paused
// customers.
func (s Syncs) Open(ctx context.Context, before time.Time) ([]OpenSyncs, error) {
	rows, err := s.pool.Query(ctx, `
		select distinct s.tenant_id, s.customer_id
		from billing_syncs s
		where s.status in ('requested', 'running')
		  and s.requested_at < $1
		  and not `+isPaused("s.tenant_id", "s.customer_id")+`
		order by s.tenant_id, s.customer_id`, before)
	if err != nil {
		return nil, fmt.Errorf("list open syncs: %w", pg.Coded(err))
	}
	open, err := pgx.CollectRows(rows, pgx.RowToStructByPos[OpenSyncs])
	if err != nil {
		return nil, fmt.Errorf("list open syncs: %w", pg.Coded(err))
	}
	return open, nil
}
