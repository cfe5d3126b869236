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

// Watermark identifies the usage and the configuration that the reports of a period reflect. A comparison of watermarks
// is a cheap test for whether a new report may be needed. Only a plan decides that.
type Watermark struct {
	Events        int64  // number of events, as in EventCount
	Configuration string // results of Configuration and OwnVersions; "": something is unreported
}

// PeriodWatermark is the watermark of the period that begins at Start.
type PeriodWatermark struct {
	Start time.Time
	Watermark
}

// Configuration returns a hash of everything that determines the charges of customers with the plan in a period that
// begins at start, except usage and the customer's own prices.
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

// OwnVersions returns the versions of a customer's own prices that are in force at start, as text.
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

// watermark returns the watermark that holds once the planned reports of the period are accepted.
func (p *planner) watermark(period Period) Watermark {
	if len(p.excludedMeters) > 0 {
		return Watermark{} // usage of the excluded meters stays unreported
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
