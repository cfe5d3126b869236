package billing

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// ChangedPeriods returns the open periods of a billing schedule that are charged differently after a change of its
// facts, for any later usage: at other terms, in other units, or over another range. recounted is a meter that counts
// other events after the change, or counts them differently; 0: none.
func ChangedPeriods(before, after Facts, recounted metering.MeterID) (changed []Period) {
	rest := OpenPeriods(after)
	for _, p := range OpenPeriods(before) {
		former := before.chargings(p, 0)
		i := slices.IndexFunc(rest, func(next Period) bool { return next.Start.Equal(p.Start) && next.End.Equal(p.End) })
		switch {
		case i < 0 && len(former) > 0, i >= 0 && !slices.Equal(former, after.chargings(rest[i], recounted)):
			changed = append(changed, p)
		}
		if i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		}
	}
	return append(changed, slices.DeleteFunc(rest, func(p Period) bool { return len(after.chargings(p, recounted)) == 0 })...)
}

// charging holds everything that a meter's charge in a period depends on, except its usage.
type charging struct {
	meter     metering.MeterID
	terms     [sha256.Size]byte
	scale     int32 // decimals to which the units are rounded; -1: not rounded, or the charge does not depend on usage
	recounted bool
}

// chargings returns the charging of each meter that may be charged in an open period. It includes backfilling meters
// and skips free ones.
func (f Facts) chargings(period Period, recounted metering.MeterID) (all []charging) {
	f.Meters = slices.Clone(f.Meters)
	for i := range f.Meters {
		f.Meters[i].Version.Status = metering.Complete
	}
	b := openBooks(f)
	for _, c := range b.shown(period) {
		terms, free := c.chargedTerms()
		if free {
			continue
		}
		of := charging{meter: c.meter.ID, terms: terms, scale: -1}
		if c.byUsage() {
			of.recounted = c.meter.ID == recounted
			if c.scale != nil {
				of.scale = *c.scale
			}
		}
		all = append(all, of)
	}
	return all
}

// byUsage reports whether the charge depends on usage.
func (c *calculation) byUsage() bool { return c.theirs != nil || c.price.byUsage() }

// chargedTerms returns a hash of the terms that charge the units. Terms that charge the same for any usage have the
// same hash. free is true if the terms charge nothing for any usage.
func (c *calculation) chargedTerms() (hash [sha256.Size]byte, free bool) {
	switch {
	case c.trial:
		return hash, true
	case c.theirs != nil:
		return sha256.Sum256(bytes.Join([][]byte{[]byte(c.theirs.ID()), c.theirs.JSON()}, []byte{0})), false
	case c.price.isFree():
		return hash, true
	}
	terms := c.price.Terms
	if !c.byUsage() {
		terms = Terms{BasePrice: terms.bounded(terms.BasePrice), Currency: terms.Currency}
	}
	return terms.Hash(), false
}
