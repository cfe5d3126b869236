package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// MeasuredKey identifies a tally of measured events.
type MeasuredKey struct {
	no       int32
	customer metering.CustomerID
	version  int64
	start    time.Time
	group    metering.GroupID // zero if groups are not read
}

// Measure reads the events of the source Measured, evaluates MeterVersion.Measure for each, and returns their
// tallies.
func (s *usageStatement) Measure(ctx context.Context, q pg.Querier) (map[MeasuredKey]*Tally, error) {
	rows, err := q.Query(ctx, s.eventsIn(Measured, `x.no, e.customer_id, g.id, x.from_at, e.value, e.properties, e.erased is not null, l.late`), s.Args)
	if err != nil {
		return nil, fmt.Errorf("measure events: %w", err)
	}
	tallies := make(map[MeasuredKey]*Tally)
	var (
		key  MeasuredKey
		sent metering.Event
		late bool
	)
	_, err = pgx.ForEachRow(rows, []any{&key.no, &key.customer, &key.version, &key.start, &sent.Value, &sent.Properties, &sent.Erased, &late}, func() error {
		e := sent
		m, err := s.Selecting[key.version].Measure(&e)
		if err != nil || m.Verdict != metering.Counted {
			return err
		}
		for _, customer := range s.countedFor(key.customer) {
			of := key
			if s.grouped {
				of.group = m.Group.ID
			}
			if of.customer = customer; tallies[of] == nil {
				tallies[of] = new(Tally)
			}
			tallies[of].add(m.Value, late)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("measure events: %w", err)
	}
	return tallies, nil
}

// countedFor returns the customers under which the result counts the events of a customer: the customer,
// WholeTenant or both.
func (s *usageStatement) countedFor(customer metering.CustomerID) []metering.CustomerID {
	switch {
	case s.all:
		return []metering.CustomerID{customer, metering.WholeTenant}
	case s.whole:
		return []metering.CustomerID{metering.WholeTenant}
	}
	return []metering.CustomerID{customer}
}

// MeasuredRows returns SQL that selects the tallies of measured events, with the columns of usageStatement.Rows.
// It also returns the arguments of the SQL, with names that begin with prefix.
func MeasuredRows(prefix string, of map[MeasuredKey]*Tally) (sql string, args pgx.NamedArgs) {
	var numbers []int32
	var customers, versions []int64
	var starts []time.Time
	var groups []*[16]byte
	var tallies []*Tally
	for key, t := range of {
		numbers, customers, versions = append(numbers, key.no), append(customers, int64(key.customer)), append(versions, key.version)
		starts, tallies = append(starts, key.start), append(tallies, t)
		if key.group == (metering.GroupID{}) {
			groups = append(groups, nil)
		} else {
			groups = append(groups, (*[16]byte)(&key.group))
		}
	}
	arrays := tallyArrays(tallies)
	args = pgx.NamedArgs{
		prefix + "_no": numbers, prefix + "_customers": customers, prefix + "_versions": versions, prefix + "_starts": starts, prefix + "_groups": groups,
		prefix + "_sums": arrays[0], prefix + "_counts": arrays[1], prefix + "_late_sums": arrays[2], prefix + "_late_counts": arrays[3],
	}
	return fmt.Sprintf(`
		select no, customer_id, version_id, group_id, start, sum, count, coalesce(late_sum, 0), coalesce(late_count, 0)
		from unnest(@%[1]s_no::int[], @%[1]s_customers::bigint[], @%[1]s_versions::bigint[], @%[1]s_groups::uuid[], @%[1]s_starts::timestamptz[],
		  @%[1]s_sums::text[]::numeric[], @%[1]s_counts::bigint[], @%[1]s_late_sums::text[]::numeric[], @%[1]s_late_counts::bigint[])
		  m (no, customer_id, version_id, group_id, start, sum, count, late_sum, late_count)`, prefix), args
}
