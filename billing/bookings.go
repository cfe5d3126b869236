package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Booking is a stored adjustment of one meter in a closed period. It holds the new totals, and the totals of the
// previous booking or, for the first booking, of the close. A booking never changes, and neither does whether it is
// billed.
type Booking struct {
	Period  time.Time // start of the closed period
	MeterID metering.MeterID
	Events  int64 // number of events in Units, including late ones; more than in the previous booking

	UnitsBefore, Units   metering.Decimal // charged units: previous total, new total
	ChargeBefore, Charge metering.Decimal // rounded to the currency's minor unit
	Dimensions           []DimensionUsage // Units by dimension, if the price has dimensions
	Currency             string           // currency of the closed line
	Billed               bool             // billed in a target period; false: only reported
}

// Booked holds the totals of all bookings of one meter in a closed period.
type Booked struct {
	Period  time.Time // start of the closed period
	MeterID metering.MeterID
	Events  int64 // Events of the last booking
	Units   metering.Decimal
	Charge  metering.Decimal

	Dimensions []DimensionUsage // Units by dimension, if the price has dimensions

	OnlyReported       metering.Decimal // part of Units that is not billed
	OnlyReportedCharge metering.Decimal // part of Charge that is not billed
}

// bookings returns the missing bookings of late usage. The first plan after late usage arrives books it, under the late
// policy at that time.
func (b *Books) bookings() (all []Booking) {
	if b.Connection == nil {
		return nil
	}
	for _, closed := range b.Stored {
		for _, c := range b.lateOf(closed) {
			if next := b.booking(&c); !next.Units.Equal(next.UnitsBefore) || !next.Charge.Equal(next.ChargeBefore) {
				all = append(all, next)
			}
		}
	}
	return all
}

// booking returns the next booking of the late calculation, from the booked totals to the current totals.
func (f *Facts) booking(c *calculation) Booking {
	booked := f.booked(c)
	return Booking{
		Period: c.late.closed.Start, MeterID: c.meter.ID, Events: c.events + c.late.events,
		UnitsBefore: booked.Units, Units: c.units(), ChargeBefore: booked.Charge, Charge: c.charge(), Dimensions: c.price.shown(c.allUsage().Dimensions), Currency: c.currency,
		Billed: f.Settings.LatePolicy == metering.AdjustLate,
	}
}

// booked returns the booked totals of the late calculation. If there is no booking, these are the totals at the close.
func (f *Facts) booked(c *calculation) Booked {
	if b, known := f.bookedOf(c.meter.ID, c.late.closed.Start); known {
		return b
	}
	return Booked{Units: c.closed.ownUnits(), Charge: c.closed.Charge}
}

// bookedOf returns the booked totals of the meter in the closed period that begins at start.
func (f *Facts) bookedOf(meter metering.MeterID, start time.Time) (b Booked, known bool) {
	i := slices.IndexFunc(f.Booked, func(b Booked) bool { return b.MeterID == meter && b.Period.Equal(start) })
	if i < 0 {
		return Booked{}, false
	}
	return f.Booked[i], true
}

// excludeOnlyReported excludes from the late calculation the part that is only reported: bookings that are not billed,
// and unbooked late usage that the late policy does not bill.
func (f *Facts) excludeOnlyReported(c *calculation) {
	booked, rest := f.booked(c), f.booking(c)
	c.late.onlyReported, c.late.onlyReportedCharge = booked.OnlyReported, booked.OnlyReportedCharge
	if !rest.Billed {
		c.late.onlyReported = c.late.onlyReported.Add(rest.Units.Sub(rest.UnitsBefore))
		c.late.onlyReportedCharge = c.late.onlyReportedCharge.Add(rest.Charge.Sub(rest.ChargeBefore))
	}
}
