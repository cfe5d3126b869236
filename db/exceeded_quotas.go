package db

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// exceededQuotas publishes the quotas of customers that usage has exceeded: each once in its
// window.
func (e Evaluations) exceededQuotas(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customers []int64, now time.Time) error {
	levels, err := e.limitedLevels(ctx, tx, tenant, customers, now)
	if err != nil {
		return err
	}
	for _, l := range levels {
		if l.Used.Cmp(*l.Limit) <= 0 {
			continue
		}
		tag, err := tx.Exec(ctx, `
			insert into exceeded_quotas (tenant_id, quota_id, customer_id, window_start, window_end, exceeded_at)
			values ($1, $2, $3, $4, $5, $6)
			on conflict do nothing`, tenant, l.ID, l.customer, l.Window.Start, l.Window.End, metering.Instant(now))
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			continue
		}
		if err := publish(ctx, tx, tenant, l.customer, quotaExceeded(l.QuotaLevel, now), now); err != nil {
			return err
		}
	}
	return nil
}

// limitedLevels reads the levels of customers' quotas that have a limit and whose meter has
// counted its past events.
func (e Evaluations) limitedLevels(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customers []int64, now time.Time) ([]customerLevel, error) {
	read := Quotas(e).levelRead(ctx, tx, tenant, now)
	quotas, err := read.quotas(customers, nil)
	if err != nil {
		return nil, err
	}
	quotas = slices.DeleteFunc(quotas, func(l customerLevel) bool {
		return l.Limit == nil || l.Meter.Version.Status == metering.Backfilling
	})
	levels, err := read.used(quotas)
	if err != nil {
		return nil, fmt.Errorf("read usage of quotas: %w", err)
	}
	return levels, nil
}

// SweepExceeded deletes up to limit rows, of any tenant, of windows of quotas that ended before then.
func (s Quotas) SweepExceeded(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return oldRows{table: "exceeded_quotas", key: "tenant_id, quota_id, customer_id, window_start", by: "window_end", noun: "exceeded quotas"}.sweep(ctx, s.pool, before, limit)
}
