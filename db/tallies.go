package db

import "github.com/odometer-metering/odometer/metering"

// tally is what some events come to, of which a meter's aggregation picks its
// figure: a row of a rollup holds one. Late usage is kept apart, so that a
// closed window never changes.
type tally struct {
	sum, lateSum     metering.Decimal
	count, lateCount int64
}

// A tally as SQL.
const (
	tallyColumns = `sum, count, late_sum, late_count`
	mergedTally  = `sum(sum), sum(count)::bigint, sum(late_sum), sum(late_count)::bigint`                                               // of rows
	eventTally   = `case when l.late then 0 else e.value end, (not l.late)::int, case when l.late then e.value else 0 end, l.late::int` // of an event e
)

// fields are where tallyColumns or mergedTally are read to.
func (t *tally) fields() []any { return []any{&t.sum, &t.count, &t.lateSum, &t.lateCount} }

// mergedTotal is the total of an aggregation over rows of tallies, as SQL.
func mergedTotal(a metering.Aggregation) string {
	if a == metering.Count {
		return `sum(count + late_count)`
	}
	return `sum(sum + late_sum)`
}

// addTallies adds rows of tallies, which are called x and have the key's columns, to a
// rollup, as SQL. Rows are locked in the order of their keys.
func addTallies(rollup, start, rows string) string {
	key := `tenant_id, customer_id, meter_version_id, group_id, ` + start
	return `
		insert into ` + rollup + ` as u (` + key + `, ` + tallyColumns + `)
		select ` + key + `, ` + mergedTally + `
		from ` + rows + ` x
		group by ` + key + `
		order by ` + key + `
		on conflict (` + key + `) do update
		set sum = u.sum + excluded.sum, count = u.count + excluded.count,
		    late_sum = u.late_sum + excluded.late_sum, late_count = u.late_count + excluded.late_count`
}

// tallyArrayColumns are those of usage_added that tallyArrays are for.
const tallyArrayColumns = `sums, counts, late_sums, late_counts`

// tallyArrays are tallies as arrays; those of late usage are nil where none is late.
func tallyArrays(tallies []*tally) []any {
	n, late := len(tallies), false
	sums, counts, lateSums, lateCounts := make([]string, n), make([]int64, n), make([]string, n), make([]int64, n)
	for i, t := range tallies {
		sums[i], counts[i], lateSums[i], lateCounts[i] = t.sum.String(), t.count, t.lateSum.String(), t.lateCount
		late = late || t.lateCount > 0
	}
	if !late {
		lateSums, lateCounts = nil, nil
	}
	return []any{sums, counts, lateSums, lateCounts}
}

func (t *tally) add(value metering.Decimal, late bool) {
	if late {
		t.lateSum, t.lateCount = t.lateSum.Add(value), t.lateCount+1
		return
	}
	t.sum, t.count = t.sum.Add(value), t.count+1
}

func (t *tally) merge(o *tally) {
	t.sum, t.lateSum = t.sum.Add(o.sum), t.lateSum.Add(o.lateSum)
	t.count, t.lateCount = t.count+o.count, t.lateCount+o.lateCount
}

// all is the tally of what came in time and late, as if all of it came in time.
func (t *tally) all() *tally { return &tally{sum: t.sum.Add(t.lateSum), count: t.count + t.lateCount} }

// usage is the figure of what came in time that the aggregation asks for.
func (t *tally) usage(a metering.Aggregation) metering.Decimal { return a.Usage(t.sum, t.count) }

// total is usage with what came late.
func (t *tally) total(a metering.Aggregation) metering.Decimal { return t.all().usage(a) }

// late is what of the total came late.
func (t *tally) late(a metering.Aggregation) metering.Decimal { return t.total(a).Sub(t.usage(a)) }
