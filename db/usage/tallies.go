package usage

import "github.com/odometer-metering/odometer/metering"

// Tally is the sum and the number of a set of events. A rollup row stores one tally, of which the meter's
// aggregation selects the sum or the count. Late usage is separate, so that a closed window never changes.
type Tally struct {
	sum, lateSum     metering.Decimal
	Count, LateCount int64
}

// SQL of a tally.
const (
	tallyColumns = `sum, count, late_sum, late_count`
	MergedTally  = `sum(sum), sum(count)::bigint, sum(late_sum), sum(late_count)::bigint`                                               // of several rows
	eventTally   = `case when l.late then 0 else e.value end, (not l.late)::int, case when l.late then e.value else 0 end, l.late::int` // of one event e
)

// Fields returns the destinations for scanning tallyColumns or MergedTally.
func (t *Tally) Fields() []any { return []any{&t.sum, &t.Count, &t.lateSum, &t.LateCount} }

// mergedTotal returns the SQL of an aggregation's total over rows of tallies.
func mergedTotal(a metering.Aggregation) string {
	if a == metering.Count {
		return `sum(count + late_count)`
	}
	return `sum(sum + late_sum)`
}

// addTallies returns the SQL that adds rows of tallies to a rollup. The rows have the columns of the
// rollup's key. The statement locks rows in the order of their keys, to avoid deadlocks.
func addTallies(rollup, start, rows string) string {
	key := `tenant_id, customer_id, meter_version_id, group_id, ` + start
	return `
		insert into ` + rollup + ` as u (` + key + `, ` + tallyColumns + `)
		select ` + key + `, ` + MergedTally + `
		from ` + rows + ` x
		group by ` + key + `
		order by ` + key + `
		on conflict (` + key + `) do update
		set sum = u.sum + excluded.sum, count = u.count + excluded.count,
		    late_sum = u.late_sum + excluded.late_sum, late_count = u.late_count + excluded.late_count`
}

// tallyArrayColumns are the columns of usage_added that store the result of tallyArrays.
const tallyArrayColumns = `sums, counts, late_sums, late_counts`

// tallyArrays returns tallies as arrays, one per column. The arrays of late usage are nil if none is late.
func tallyArrays(tallies []*Tally) []any {
	n, late := len(tallies), false
	sums, counts, lateSums, lateCounts := make([]string, n), make([]int64, n), make([]string, n), make([]int64, n)
	for i, t := range tallies {
		sums[i], counts[i], lateSums[i], lateCounts[i] = t.sum.String(), t.Count, t.lateSum.String(), t.LateCount
		late = late || t.LateCount > 0
	}
	if !late {
		lateSums, lateCounts = nil, nil
	}
	return []any{sums, counts, lateSums, lateCounts}
}

func (t *Tally) add(value metering.Decimal, late bool) {
	if late {
		t.lateSum, t.LateCount = t.lateSum.Add(value), t.LateCount+1
		return
	}
	t.sum, t.Count = t.sum.Add(value), t.Count+1
}

func (t *Tally) merge(o *Tally) {
	t.sum, t.lateSum = t.sum.Add(o.sum), t.lateSum.Add(o.lateSum)
	t.Count, t.LateCount = t.Count+o.Count, t.LateCount+o.LateCount
}

// All returns a tally that counts late usage as usage in time.
func (t *Tally) All() *Tally { return &Tally{sum: t.sum.Add(t.lateSum), Count: t.Count + t.LateCount} }

// usage returns the sum or count, by the aggregation, of the usage in time. It excludes late usage.
func (t *Tally) usage(a metering.Aggregation) metering.Decimal { return a.Usage(t.sum, t.Count) }

// Total returns the sum or count, by the aggregation, of all usage, including late usage.
func (t *Tally) Total(a metering.Aggregation) metering.Decimal { return t.All().usage(a) }

// Late returns the part of Total that is late usage.
func (t *Tally) Late(a metering.Aggregation) metering.Decimal { return t.Total(a).Sub(t.usage(a)) }
