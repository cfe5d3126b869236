package billing

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// ChangedPeriods returns the open periods of a stream that are charged at other terms once
// its prices or products change, whatever usage follows.
func ChangedPeriods(before, after Facts) []Period {
	return slices.DeleteFunc(OpenPeriods(before), func(p Period) bool {
		return slices.Equal(before.chargings(p), after.chargings(p))
	})
}

// charging is all that a meter's charge in a period depends on beside its usage.
type charging struct {
	meter metering.MeterID
	terms [sha256.Size]byte
}

// chargings lists the meters that may be charged in an open period, backfilling meters
// included, and free ones excluded.
func (f Facts) chargings(period Period) (all []charging) {
	f.Meters = slices.Clone(f.Meters)
	for i := range f.Meters {
		f.Meters[i].Version.Status = metering.Complete
	}
	for _, c := range f.shown(period) {
		if terms, free := c.chargedTerms(); !free {
			all = append(all, charging{c.meter.ID, terms})
		}
	}
	return all
}

// byUsage reports whether the charge depends on usage.
func (c *calculation) byUsage() bool { return c.theirs != nil || !c.price.OverageRate.IsZero() }

// chargedTerms returns a hash of the terms that charge the units. Terms that charge the
// same for any usage have one hash. free: they charge nothing for any.
func (c *calculation) chargedTerms() (hash [sha256.Size]byte, free bool) {
	switch {
	case c.trial:
		return hash, true
	case c.theirs != nil:
		return sha256.Sum256(bytes.Join([][]byte{[]byte(c.theirs.ID()), c.theirs.JSON()}, []byte{0})), false
	case !c.byUsage() && c.price.BasePrice.IsZero():
		return hash, true
	}
	terms := c.price.Terms
	if !c.byUsage() {
		terms.IncludedUnits = metering.Decimal{}
	}
	return terms.Hash(), false
}
