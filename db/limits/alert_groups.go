package limits

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// groupTotal identifies the total of a group in a billing period. period is the index of the period in the
// argument of groupTotals.
type groupTotal struct {
	period int
	meter  metering.MeterID
	group  metering.GroupID
}

// groupTotals reads the totals of the groups of alerts in billing periods, in one statement.
func (v *alertReader) groupTotals(periods []ledger.CustomerPeriod) (map[groupTotal]metering.Decimal, error) {
	type part struct {
		period int
		meter  metering.Meter
	}
	var (
		parts  []part
		groups [][16]byte
	)
	statement := usage.NewStatementOfSome(v.tenant, nil)
	for no, p := range periods {
		read := make(map[metering.MeterID]bool)
		for _, a := range v.applying(p.Facts, p.Period.Start, isPeriodAlert) {
			if a.Group == nil || !p.Facts.IsCounted(a.MeterID, p.Period) {
				continue
			}
			if groups = append(groups, a.Group.ID); read[a.MeterID] {
				continue
			}
			read[a.MeterID] = true
			m := p.Facts.Meters[slices.IndexFunc(p.Facts.Meters, func(m metering.Meter) bool { return m.ID == a.MeterID })]
			for _, within := range p.Facts.FedIn(m.ID, []metering.Range{p.Period.Range}) {
				statement.AddMeter(len(parts), within, []int64{int64(p.Facts.Customer.ID)}, m.Version, true, false)
				parts = append(parts, part{no, m})
			}
		}
	}
	totals := make(map[groupTotal]metering.Decimal)
	if len(parts) == 0 {
		return totals, nil
	}
	counted, err := statement.Rows(v.ctx, v.tx)
	if err != nil {
		return nil, err
	}
	statement.Args["groups"] = groups
	rows, err := v.tx.Query(v.ctx, `
		select no, group_id, `+usage.MergedTally+`
		from `+counted+`
		where group_id = any(@groups::uuid[])
		group by 1, 2`, statement.Args)
	if err != nil {
		return nil, err
	}
	var (
		no    int
		group metering.GroupID
		t     usage.Tally
	)
	_, err = pgx.ForEachRow(rows, append([]any{&no, (*[16]byte)(&group)}, t.Fields()...), func() error {
		of := groupTotal{parts[no].period, parts[no].meter.ID, group}
		totals[of] = totals[of].Add(t.Total(parts[no].meter.Version.Aggregation))
		return nil
	})
	return totals, err
}
