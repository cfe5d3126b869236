package billing

import (
	"slices"
	"sync"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// AlertPeriods returns the billing periods that usage and spend alerts read: the periods that are not closed. For
// billing schedule 0, it adds the period of CurrentPeriod, unless that period is closed.
func AlertPeriods(f Facts) []Period {
	periods := OpenPeriods(f)
	current := f.running()
	known := slices.ContainsFunc(periods, func(p Period) bool { return p.Start.Equal(current.Start) })
	if f.Stream > 0 || known || current.ClosedAt != nil {
		return periods
	}
	return append(periods, current)
}

// AlertValues computes the values that usage and spend alerts compare with their thresholds, for one period of
// AlertPeriods.
type AlertValues struct {
	facts   Facts
	period  Period
	charges func() []OpenCharge
}

// ReadAlerts returns the alert values of a period. The charges of the period are calculated once, for the first spend
// alert.
func ReadAlerts(f Facts, period Period) AlertValues {
	return AlertValues{f, period, sync.OnceValue(func() []OpenCharge { return OpenCharges(f, period) })}
}

// Of returns the value of one alert. The value covers all groups, even if the alert has a Group. For a usage alert,
// counted is false if the meter does not feed the billing schedule in the period, or during its first backfill.
func (v AlertValues) Of(a metering.Alert) (value metering.Decimal, counted bool) {
	if a.Type == metering.UsageAlert {
		return v.facts.usage(a.MeterID, v.period).Total, v.facts.IsCounted(a.MeterID, v.period)
	}
	for _, c := range v.charges() {
		if c.Currency == a.Currency && (a.MeterID == 0 || a.MeterID == c.MeterID) {
			value = value.Add(c.Charge)
		}
	}
	return value, true
}

// IsCounted reports whether the meter feeds the billing schedule in the period, and its first backfill has ended.
func (f Facts) IsCounted(meter metering.MeterID, period Period) bool {
	return slices.ContainsFunc(f.metersIn(period), func(m metering.Meter) bool {
		return m.ID == meter && m.Version.Status != metering.Backfilling
	})
}

// NextAlertChange returns the next time at which an alert's value can change without an event: the earliest end of a
// period after Now. The next period then begins with its base prices. It returns the zero time if no period ends after
// Now.
func NextAlertChange(f Facts, periods []Period) (next time.Time) {
	for _, p := range periods {
		if p.End.After(f.Now) && (next.IsZero() || p.End.Before(next)) {
			next = p.End
		}
	}
	return next
}
