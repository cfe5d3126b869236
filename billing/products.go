package billing

import (
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Assignment says which product a customer has from an instant on. Of two with
// the same instant the later in a list holds.
type Assignment struct {
	ProductID     metering.ProductID // 0: none
	EffectiveFrom time.Time
}

// ProductAt returns the product that the customer has at t, or 0.
func ProductAt(assignments []Assignment, t time.Time) metering.ProductID {
	var in Assignment
	for _, a := range assignments {
		if !a.EffectiveFrom.After(t) && !a.EffectiveFrom.Before(in.EffectiveFrom) {
			in = a
		}
	}
	return in.ProductID
}
