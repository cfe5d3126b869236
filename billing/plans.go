package billing

import (
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Assignment gives a customer a plan from an instant on. If two have the same instant, the later
// one in the list applies.
type Assignment struct {
	PlanID        metering.PlanID // 0: none
	EffectiveFrom time.Time
}

// PlanAt returns the plan that the customer has at t, or 0.
func PlanAt(assignments []Assignment, t time.Time) metering.PlanID {
	var in Assignment
	for _, a := range assignments {
		if !a.EffectiveFrom.After(t) && !a.EffectiveFrom.Before(in.EffectiveFrom) {
			in = a
		}
	}
	return in.PlanID
}
