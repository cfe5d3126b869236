package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// RevenueMonth returns the start of the calendar month to which a billing period's revenue belongs. It is the month of
// the period's last microsecond, because the period is billed at its end. A period that ends with a month belongs to
// that month.
func RevenueMonth(period metering.Range, timezone *time.Location) time.Time {
	return CalendarPeriod(period.End.Add(-time.Microsecond), timezone).Start
}

// OpenPeriods returns the periods of ExpectedPeriods that are not closed.
func OpenPeriods(f Facts) []Period {
	return slices.DeleteFunc(ExpectedPeriods(f), func(p Period) bool { return p.ClosedAt != nil })
}

// OpenCharge is the charge of one meter in an open period so far. It includes charges that other series have billed. It
// excludes adjustments, which belong to closed periods.
type OpenCharge struct {
	MeterID  metering.MeterID
	Events   int64
	Charge   metering.Decimal // rounded to the currency's minor unit
	Currency string
}

// OpenCharges returns the charges in the statement of an open period, for meters that have a price.
func OpenCharges(f Facts, period Period) (charges []OpenCharge) {
	for _, c := range openBooks(f).shown(period) {
		if c.price.Version != 0 || c.theirs != nil {
			charges = append(charges, OpenCharge{c.meter.ID, c.events, c.charge(), c.currency})
		}
	}
	return charges
}

// EndsByReports reports whether the end of the last stored period may depend on reports. If nothing of the period was
// reported to a provider, the period may end earlier than stored.
func EndsByReports(f Facts) bool {
	if len(f.Stored) == 0 {
		return false
	}
	last := f.Stored[len(f.Stored)-1]
	return last.shorten(&f).Before(last.End)
}
