package usage

import (
	"context"
	"fmt"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// InterruptionsAtMost is the maximum number of consecutive attempts to count a day that end without a result,
// for example because the worker is killed. At this number, the backfill is paused.
const InterruptionsAtMost = 3

// BackfillState is the state of a backfill when an attempt to count a day begins.
type BackfillState string

// States of a backfill.
const (
	BackfillRuns   BackfillState = "runs"
	BackfillPaused BackfillState = "paused" // InterruptionsAtMost is reached; lasts until Answered is called
	BackfillEnded  BackfillState = "ended"  // the meter version is complete or retired
)

// Begin records an attempt to count a day before it starts, so that the record survives if the worker is
// killed. If the state is BackfillRuns, the caller calls Answered after the attempt.
func (s Backfills) Begin(ctx context.Context, tenant metering.TenantID, version metering.MeterVersionID) (state BackfillState, err error) {
	err = s.pool.QueryRow(ctx, `
		with begun as (
		  update meter_versions
		  set interruptions = interruptions + 1
		  where tenant_id = $1
		    and id = $2
		    and status = 'backfilling'
		    and interruptions < $3
		  returning id)
		select case when g.status <> 'backfilling' then 'ended' when b.id is null then 'paused' else 'runs' end
		from meter_versions g
		left join begun b on b.id = g.id
		where g.tenant_id = $1
		  and g.id = $2`, tenant, version, InterruptionsAtMost).Scan(&state)
	if err != nil {
		return "", fmt.Errorf("begin to count: %w", pg.Coded(err))
	}
	return state, nil
}

// Answered resets the number of interrupted attempts. Call it when an attempt has ended with a result or an
// error, or when an operator resumes the paused backfill.
func (s Backfills) Answered(ctx context.Context, tenant metering.TenantID, version metering.MeterVersionID) error {
	_, err := s.pool.Exec(ctx, `update meter_versions set interruptions = 0 where tenant_id = $1 and id = $2 and interruptions > 0`, tenant, version)
	if err != nil {
		return fmt.Errorf("reset the interruptions of a backfill: %w", pg.Coded(err))
	}
	return nil
}
