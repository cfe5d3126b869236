package db

import (
	"context"
	"fmt"

	"github.com/odometer-metering/odometer/metering"
)

// interruptionsAtMost is how many attempts in a row to count a day may end without an
// answer, as they do when their worker is killed. Then the backfill is paused.
const interruptionsAtMost = 3

// BackfillState is the state of a backfill when an attempt to count a day begins.
type BackfillState string

// States of a backfill.
const (
	BackfillRuns   BackfillState = "runs"
	BackfillPaused BackfillState = "paused" // interruptionsAtMost is reached, until Answered
	BackfillEnded  BackfillState = "ended"  // the meter version is complete or retired
)

// Begin notes that an attempt to count a day begins, before it does: one whose worker is
// killed leaves the note. If the backfill may go on, the caller calls Answered afterwards.
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
		  and g.id = $2`, tenant, version, interruptionsAtMost).Scan(&state)
	if err != nil {
		return "", fmt.Errorf("begin to count: %w", coded(err))
	}
	return state, nil
}

// Answered notes that an attempt has ended with an answer, also where that is an error,
// or that an operator has the paused backfill go on.
func (s Backfills) Answered(ctx context.Context, tenant metering.TenantID, version metering.MeterVersionID) error {
	_, err := s.pool.Exec(ctx, `update meter_versions set interruptions = 0 where tenant_id = $1 and id = $2 and interruptions > 0`, tenant, version)
	if err != nil {
		return fmt.Errorf("reset the interruptions of a backfill: %w", coded(err))
	}
	return nil
}
