package db

import (
	"context"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// MeterDays is a meter's usage of all customers by day.
type MeterDays struct {
	Meter       metering.Meter
	Days        []DayUsage // in order of time; those without usage are left out
	Backfilling bool       // the meter's past is still being counted: there are no days
}

// DayUsage is the usage of a day, what came late included.
type DayUsage struct {
	metering.Range
	Usage metering.Decimal
}

// Daily returns what each meter of the tenant, by id, has counted of all customers
// in each of the days. One statement reads them all. It answers CodeInvalid where a
// day cuts an hour whose events are not kept any more.
func (u Usage) Daily(ctx context.Context, tenant metering.TenantID, days []metering.Range) (all []MeterDays, err error) {
	err = u.consistent(ctx, func(q querier) error {
		meters, err := collectMeters(ctx, q, `order by m.id`, tenant)
		if err != nil {
			return err
		}
		all = make([]MeterDays, len(meters))
		for i, m := range meters {
			all[i] = MeterDays{Meter: m, Backfilling: m.Version.Status == metering.Backfilling}
		}
		parts, err := usageOver(ctx, q, tenant, metering.WholeTenant, meters, nil, days)
		for _, p := range parts {
			i := slices.IndexFunc(meters, func(m metering.Meter) bool { return m.ID == p.meter })
			if !all[i].Backfilling {
				all[i].Days = append(all[i].Days, DayUsage{p.within, p.usage})
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		for _, day := range m.Days {
			if err := u.requireWhole(ctx, day.Range, m.Meter.Version.Timezone); err != nil {
				return nil, err
			}
		}
		slices.SortFunc(m.Days, func(a, b DayUsage) int { return a.Start.Compare(b.Start) })
	}
	return all, nil
}
