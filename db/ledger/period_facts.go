package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// PeriodQuery selects billing periods of some customers. The caller ensures that the customers are one batch of
// CustomerBatches.
type PeriodQuery struct {
	Customers []int64
	Periods   func(billing.Facts) []billing.Period // returns the periods to read of a billing schedule; nil: none
	Needs     func(metering.MeterID) bool          // reports whether the usage of a meter is needed
}

// PeriodFacts is the result of a PeriodQuery.
type PeriodFacts struct {
	Customers  []int64                  // IDs of the requested customers that exist, ascending
	Facts      map[int64]*billing.Facts // facts of each customer's first billing schedule
	Schedules  []SchedulePeriods        // ordered by customer
	Meters     []metering.Meter         // the meters for which PeriodQuery.Needs returns true
	Dimensions billing.ByDimension      // by which prices divide the usage of meters
	Timezone   *time.Location
}

// SchedulePeriods is a customer's billing schedule with its selected periods.
type SchedulePeriods struct {
	Facts   *billing.Facts
	Periods []billing.Period
}

// ReadOpenPeriods reads the open periods that q selects, with their usage so far.
func ReadOpenPeriods(ctx context.Context, tx pgx.Tx, read ReadPrice, tenant metering.TenantID, q PeriodQuery, now time.Time) (PeriodFacts, error) {
	return readPeriodFacts(ctx, tx, read, tenant, q, now, (*openBatch).load)
}

// ReadAllPeriods reads the open and closed periods that q selects. The facts contain usage only for customers
// with several billing schedules.
func ReadAllPeriods(ctx context.Context, tx pgx.Tx, read ReadPrice, tenant metering.TenantID, q PeriodQuery, now time.Time) (PeriodFacts, error) {
	return readPeriodFacts(ctx, tx, read, tenant, q, now, (*openBatch).loadStored)
}

func readPeriodFacts(ctx context.Context, tx pgx.Tx, read ReadPrice, tenant metering.TenantID, q PeriodQuery, now time.Time, load func(*openBatch) error) (PeriodFacts, error) {
	r, err := newRevenueReader(ctx, tx, tenant, now, read, q)
	if err != nil {
		return PeriodFacts{}, err
	}
	b, err := r.batchOf(q.Customers)
	if err != nil || len(b.ids) == 0 {
		return PeriodFacts{}, err
	}
	b.within = `p.customer_id = any(@customers)`
	found := PeriodFacts{Customers: b.ids, Facts: b.facts, Meters: b.meters, Dimensions: b.by, Timezone: b.timezone}
	if q.Periods == nil {
		return found, nil
	}
	if err := load(b); err != nil {
		return PeriodFacts{}, err
	}
	found.Schedules = b.schedules()
	return found, nil
}
