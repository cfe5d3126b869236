package billing

import (
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Assignment assigns a plan to a customer from EffectiveFrom on. If two assignments have the same
// EffectiveFrom, the later one in the customer's list applies.
type Assignment struct {
	PlanID        metering.PlanID // 0: no plan
	EffectiveFrom time.Time
}

// PlanAt returns the plan of the customer at t, or 0 if the customer has none.
func PlanAt(assignments []Assignment, t time.Time) metering.PlanID {
	var in Assignment
	for _, a := range assignments {
		if !a.EffectiveFrom.After(t) && !a.EffectiveFrom.Before(in.EffectiveFrom) {
			in = a
		}
	}
	return in.PlanID
}

// PlanStart returns the time from which a plan assignment applies by default, so that each billing schedule of the
// customer is charged at the plan's prices from its next period on.
func PlanStart(schedules []Facts) time.Time {
	earliest := nextStart(schedules, CurrentPeriod(schedules[0]))
	for _, feed := range schedules[0].Feeds {
		if start := PriceStart(schedules, feed.MeterID); start.Before(earliest) {
			earliest = start
		}
	}
	return earliest
}
