package usage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// closedLine is the line of a meter in a closed period.
type closedLine struct {
	period      metering.PeriodID
	customer    metering.CustomerID
	fed         metering.Range // part of the period in which the meter feeds the period's billing schedule
	aggregation metering.Aggregation

	difference billing.Measured // stored
}

// keepLateUsage keeps the late usage of closed periods unchanged when successor replaces the meter's current version.
// To the stored difference of each closed line, it adds the late usage by the current version minus the late usage by
// successor. So late usage that has arrived counts by the current version, and later late usage by successor. If both
// versions select the same events with the same values, there is no difference. The caller holds the tenant's lock, so
// that no event arrives.
func keepLateUsage(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, successor metering.MeterVersion) error {
	var current metering.MeterVersion
	err := tx.QueryRow(ctx, `
		select `+catalog.MeterVersionColumns+`
		from meters m
		join meter_versions g on g.tenant_id = m.tenant_id and g.id = m.meter_version_id
		where m.tenant_id = $1
		  and m.id = $2`, tenant, successor.MeterID).Scan(catalog.MeterVersionFields(&current)...)
	if err != nil || current.SameSelection(successor) {
		return err
	}
	if err := pg.AllowLongStatements(ctx, tx); err != nil {
		return err
	}
	lines, err := closedLinesWithLateUsage(ctx, tx, tenant, current, successor)
	if err != nil || len(lines) == 0 {
		return err
	}
	by, err := ClosedDimensions(ctx, tx, tenant)
	if err != nil {
		return err
	}
	byCurrent, err := readLate(ctx, tx, tenant, current, by, lines)
	if err != nil {
		return err
	}
	bySuccessor, err := readLate(ctx, tx, tenant, successor, by, lines)
	if err != nil {
		return err
	}
	var batch pgx.Batch
	for no, l := range lines {
		d := l.difference.Add(byCurrent[no]).Sub(bySuccessor[no])
		batch.Queue(`
			update billing_period_totals
			set late_difference_usage = $4, late_difference_count = $5, late_difference_dimensions = $6
			where tenant_id = $1
			  and period_id = $2
			  and meter_key = $3
			  and component = 'usage'`, tenant, l.period, successor.MeterID, d.Units, d.Events, d.Dimensions)
	}
	return tx.SendBatch(ctx, &batch).Close()
}

// closedLinesWithLateUsage returns the meter's closed lines of the customers that have late usage by one of the versions.
// It skips lines with late usage that is stored, because it is no longer counted.
func closedLinesWithLateUsage(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, current, next metering.MeterVersion) ([]closedLine, error) {
	rows, err := tx.Query(ctx, `
		select p.id, p.customer_id, p.stream, p.starts_at, p.ends_at, g.aggregation, t.late_difference_usage, t.late_difference_count, t.late_difference_dimensions, `+FeedsOfCustomer+`
		from billing_period_totals t
		join meter_versions g on g.tenant_id = t.tenant_id and g.id = t.meter_version_id
		join billing_periods p on p.tenant_id = t.tenant_id and p.id = t.period_id
		join customers c on c.tenant_id = p.tenant_id and c.id = p.customer_id
		where t.tenant_id = $1
		  and t.meter_id = $2
		  and t.late_count is null
		  and c.id in (`+customersWithLateUsage+`)
		order by p.id`, tenant, next.MeterID, []metering.MeterVersionID{current.ID, next.ID})
	if err != nil {
		return nil, fmt.Errorf("find late usage: %w", err)
	}
	lines, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l closedLine, err error) {
		var f billing.Facts
		var period metering.Range
		var feeds []StoredFeed
		d := &l.difference
		err = row.Scan(&l.period, &l.customer, &f.Stream, &period.Start, &period.End, &l.aggregation, &d.Units, &d.Events, &d.Dimensions, &feeds)
		f.Feeds = FeedsOf(feeds)
		for _, part := range f.FedIn(next.MeterID, []metering.Range{period}) {
			l.fed = part
		}
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("find late usage: %w", err)
	}
	return slices.DeleteFunc(lines, func(l closedLine) bool { return l.fed.Empty() }), nil
}

// readLate returns the late usage of each line by the version. Lines of one customer have disjoint ranges, because the
// meter feeds one billing schedule at a time.
func readLate(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, version metering.MeterVersion, by billing.ByDimension, lines []closedLine) ([]billing.Measured, error) {
	type place struct {
		customer metering.CustomerID
		start    time.Time
	}
	meters := []metering.Meter{{ID: version.MeterID, Version: version}}
	statement := NewStatementOfSome(tenant, meters)
	statement.Separate(meters, by)
	ranges, numbers := make([]metering.Range, len(lines)), make(map[place]int)
	for no, l := range lines {
		ranges[no], numbers[place{l.customer, l.fed.Start}] = l.fed, no
		statement.AddOf(no, l.fed, []int64{int64(l.customer)})
	}
	used, err := ReadRanges(ctx, tx, statement, meters, ranges, "timestamptz '0001-01-01'")
	if err != nil {
		return nil, err
	}
	late := make([]billing.Measured, len(lines))
	for _, u := range used {
		no := numbers[place{u.Customer, u.Within.Start}]
		aggregation := lines[no].aggregation
		_, dimensions := u.ByDimension(aggregation)
		late[no] = billing.Measured{Units: u.Tally.Late(aggregation), Events: u.Tally.LateCount, Dimensions: dimensions}
	}
	return late, nil
}
