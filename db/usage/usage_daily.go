package usage

import (
	"context"
	"slices"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// MeterDays is the usage of a meter by all customers, by day.
type MeterDays struct {
	Meter       metering.Meter
	Days        []DayUsage // oldest first, without days that have no usage
	Backfilling bool       // the meter's backfill is in progress: Days is empty
}

// DayUsage is the usage of a day, including late usage.
type DayUsage struct {
	metering.Range
	Usage metering.Decimal
}

// Daily returns the usage of each meter of the tenant, by id, in each of the days. One statement reads all
// usage. Daily returns CodeInvalid if a day covers an hour in part and the events of that hour are no longer kept.
func (u Usage) Daily(ctx context.Context, tenant metering.TenantID, days []metering.Range) (all []MeterDays, err error) {
	err = u.consistent(ctx, func(q pg.Querier) error {
		meters, err := catalog.CollectMeters(ctx, q, `order by m.id`, tenant)
		if err != nil {
			return err
		}
		all = make([]MeterDays, len(meters))
		for i, m := range meters {
			all[i] = MeterDays{Meter: m, Backfilling: m.Version.Status == metering.Backfilling}
		}
		parts, err := ReadTotals(ctx, q, tenant, metering.WholeTenant, meters, nil, days)
		for _, p := range parts {
			i := slices.IndexFunc(meters, func(m metering.Meter) bool { return m.ID == p.Meter })
			if !all[i].Backfilling {
				all[i].Days = append(all[i].Days, DayUsage{p.Within, p.Usage})
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
