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
	exceeded := slices.DeleteFunc(levels, func(l customerLevel) bool { return l.Used.Cmp(*l.Limit) <= 0 })
	if exceeded, err = storeExceeded(ctx, tx, tenant, exceeded, now); err != nil {
		return err
	}
	for _, l := range exceeded {
		if err := publish(ctx, tx, tenant, l.customer, quotaExceeded(l.QuotaLevel, now), now); err != nil {
			return err
		}
	}
	return nil
}

// storeExceeded inserts exceeded quotas in the order of their key, and returns those that are new.
func storeExceeded(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, levels []customerLevel, now time.Time) ([]customerLevel, error) {
	if len(levels) == 0 {
		return nil, nil
	}
	var numbers []int32
	var quotas, customers []int64
	var starts, ends []time.Time
	for i, l := range levels {
		numbers, quotas, customers = append(numbers, int32(i)), append(quotas, int64(l.ID)), append(customers, int64(l.customer))
		starts, ends = append(starts, l.Window.Start), append(ends, l.Window.End)
	}
	rows, err := tx.Query(ctx, `
		with exceeded as (
		  select no, quota_id, customer_id, window_start, window_end
		  from unnest(@numbers::int[], @quotas::bigint[], @customers::bigint[], @starts::timestamptz[], @ends::timestamptz[])
		    x (no, quota_id, customer_id, window_start, window_end)),
		stored as (
		  insert into exceeded_quotas (tenant_id, quota_id, customer_id, window_start, window_end, exceeded_at)
		  select @tenant, quota_id, customer_id, window_start, window_end, @now
		  from exceeded
		  order by quota_id, customer_id, window_start
		  on conflict do nothing
		  returning quota_id, customer_id)
		select e.no
		from exceeded e
		join stored s on s.quota_id = e.quota_id and s.customer_id = e.customer_id
		order by e.no`, pgx.NamedArgs{
		"tenant": tenant, "numbers": numbers, "quotas": quotas, "customers": customers, "starts": starts, "ends": ends, "now": metering.Instant(now),
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l customerLevel, err error) {
		var no int32
		err = row.Scan(&no)
		return levels[no], err
	})
}

// limitedLevels reads the levels of customers' quotas that have a limit and a meter that is not
// backfilling.
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
