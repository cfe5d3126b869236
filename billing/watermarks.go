package billing

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Watermark says what was taken into account when a provider was brought up to
// date about a period. It tells cheaply whether there may be something new to
// report: the plan decides.
type Watermark struct {
	Events        int64  // of the customer in the months that the period touches, and the late ones of every month
	Configuration string // Configuration and OwnVersions of the period; "": something is unreported
}

// PeriodWatermark is the one of the period that begins at Start.
type PeriodWatermark struct {
	Start time.Time
	Watermark
}

// Configuration returns a hash of everything that the charges of a period from start depend on,
// for customers with the plan, except usage and the customer's own prices.
func Configuration(c Connection, late metering.LatePolicy, meters []metering.Meter, prices map[metering.MeterID][]Price, plan metering.PlanID, start time.Time) string {
	text := fmt.Appendln(nil, c.ID, c.Mapping, c.Bills, c.Text, late)
	for _, m := range meters {
		price, _ := PriceAt(prices[m.ID], plan, start)
		for _, n := range []int64{int64(m.ID), int64(m.Version.ID), int64(price.Version), int64(m.UsageScale)} {
			text = append(strconv.AppendInt(text, n, 10), ' ')
		}
		text = append(append(text, m.Version.Status...), '\n')
	}
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:16])
}

// OwnVersions returns the versions in force at start of a customer's own prices, as text.
func OwnVersions(own []Price, start time.Time) string {
	meters := make(map[metering.MeterID]bool)
	for _, p := range own {
		meters[p.MeterID] = true
	}
	var text []byte
	for _, meter := range slices.Sorted(maps.Keys(meters)) {
		if p, ok := ownPriceAt(own, meter, start); ok {
			text = fmt.Appendf(text, " %d:%d", meter, p.Version)
		}
	}
	return string(text)
}

// watermark is what the reports of the period take into account.
func (p *planner) watermark(period Period) Watermark {
	if len(p.leaves) > 0 {
		return Watermark{} // something is left unreported
	}
	var events int64
	for _, c := range p.Counted {
		if c.Period.Equal(period.Start) {
			events = c.Events
		}
	}
	plan := PlanAt(p.Customer.Plans, period.Start)
	return Watermark{
		Events:        events,
		Configuration: Configuration(*p.Connection, p.Settings.LatePolicy, p.Meters, p.Prices, plan, period.Start) + OwnVersions(p.Customer.Prices, period.Start),
	}
}
