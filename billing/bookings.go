package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Booking is an adjustment of a closed period, written down once: what it came
// to for a meter, and what it came to at the booking before, or when it closed.
// It never changes. Whether it is billed was decided when it was made.
type Booking struct {
	Period  time.Time // start of the closed one
	MeterID metering.MeterID
	Events  int64 // that it is up to, late ones included: the same events are booked once

	UnitsBefore, Units   metering.Decimal // that are charged
	ChargeBefore, Charge metering.Decimal // in the currency's minor unit
	Dimensions           []DimensionUsage // of the units, with prices by dimension
	Currency             string           // the closed period's
	Billed               bool             // it is billed in a target period; else it is only reported
}

// Booked is what the bookings of a closed period's meter come to.
type Booked struct {
	Period  time.Time // start of the closed one
	MeterID metering.MeterID
	Events  int64 // that the last one is up to
	Units   metering.Decimal
	Charge  metering.Decimal

	Dimensions []DimensionUsage // of the units, with prices by dimension

	OnlyReported       metering.Decimal // of the units, what is not billed
	OnlyReportedCharge metering.Decimal // the same of the charge
}

// bookings are those that are still to be made: late usage is booked by whoever
// plans first, under the late policy that holds then.
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

// booking is what of the late calculation is not booked yet.
func (f *Facts) booking(c *calculation) Booking {
	booked := f.booked(c)
	return Booking{
		Period: c.late.closed.Start, MeterID: c.meter.ID, Events: c.events + c.late.events,
		UnitsBefore: booked.Units, Units: c.units(), ChargeBefore: booked.Charge, Charge: c.charge(), Dimensions: c.price.shown(c.allUsage().Dimensions), Currency: c.currency,
		Billed: f.Settings.LatePolicy == metering.AdjustLate,
	}
}

// booked is what is booked of the late calculation.
func (f *Facts) booked(c *calculation) Booked {
	if b, known := f.bookedOf(c.meter.ID, c.late.closed.Start); known {
		return b
	}
	return Booked{Units: c.closed.ownUnits(), Charge: c.closed.Charge}
}

// bookedOf is what is booked of the meter in the closed period that began then.
func (f *Facts) bookedOf(meter metering.MeterID, start time.Time) (b Booked, known bool) {
	i := slices.IndexFunc(f.Booked, func(b Booked) bool { return b.MeterID == meter && b.Period.Equal(start) })
	if i < 0 {
		return Booked{}, false
	}
	return f.Booked[i], true
}

// leaveOnlyReported has the late calculation leave out what is only reported:
// booked as that, or not booked yet while that is the late policy.
func (f *Facts) leaveOnlyReported(c *calculation) {
	booked, rest := f.booked(c), f.booking(c)
	c.late.onlyReported, c.late.onlyReportedCharge = booked.OnlyReported, booked.OnlyReportedCharge
	if !rest.Billed {
		c.late.onlyReported = c.late.onlyReported.Add(rest.Units.Sub(rest.UnitsBefore))
		c.late.onlyReportedCharge = c.late.onlyReportedCharge.Add(rest.Charge.Sub(rest.ChargeBefore))
	}
}
