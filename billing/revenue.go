package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// RevenueMonth is the start of the month that a billing period's revenue is of:
// the one that its last instant lies in, which is when it is billed. A period
// that ends with a month is of that month.
func RevenueMonth(period metering.Range, timezone *time.Location) time.Time {
	return CalendarPeriod(period.End.Add(-time.Microsecond), timezone).Start
}

// OpenPeriods are the ExpectedPeriods that are not closed.
func OpenPeriods(f Facts) []Period {
	return slices.DeleteFunc(ExpectedPeriods(f), func(p Period) bool { return p.ClosedAt != nil })
}

// OpenCharge is what a meter comes to so far in an open period, whoever has
// billed it and without the adjustments that the period carries, which are of
// others.
type OpenCharge struct {
	MeterID  metering.MeterID
	Events   int64
	Charge   metering.Decimal // rounded to the currency's minor unit
	Currency string
}

// OpenCharges are the charges of an open period's statement, of the meters that
// have a price.
func (b *Books) OpenCharges(period Period) (charges []OpenCharge) {
	for _, c := range b.shown(period) {
		if c.price.Version != 0 || c.theirs != nil {
			charges = append(charges, OpenCharge{c.meter.ID, c.events, c.charge(), c.currency})
		}
	}
	return charges
}

// EndsByReports says whether it takes what was reported to know where the
// customer's last stored period ends.
func EndsByReports(f Facts) bool {
	if len(f.Stored) == 0 {
		return false
	}
	last := f.Stored[len(f.Stored)-1]
	return last.shorten(&f).Before(last.End)
}
