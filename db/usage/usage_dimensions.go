package usage

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// dimensionTally is the part of a tally with one combination of dimension values.
type dimensionTally struct {
	key json.RawMessage // the values as canonical JSON; nil if they are unknown, as in metering.OtherGroup
	Tally
}

// Separate makes the statement read meters by dimension: those with an entry in dimensions. The statement separates
// their usage by the values of the properties on which their prices depend. Call Separate before adding a range.
func (s *usageStatement) Separate(meters []metering.Meter, dimensions billing.ByDimension) {
	var versions []int64
	var properties []string
	for _, m := range meters {
		if len(dimensions[m.ID]) == 0 {
			continue
		}
		s.grouped, s.Selecting[int64(m.Version.ID)] = true, m.Version
		versions, properties = append(versions, int64(m.Version.ID)), append(properties, string(jsonArray(dimensions[m.ID])))
	}
	if len(versions) > 0 {
		s.Args["dimension_versions"], s.Args["dimension_properties"] = versions, properties
	}
}

// jsonArray returns the properties as a JSON array.
func jsonArray(properties []string) json.RawMessage {
	text, err := json.Marshal(properties)
	if err != nil {
		panic(err) // unreachable: strings always encode as JSON
	}
	return text
}

func (s *usageStatement) separates() bool { return s.Args["dimension_versions"] != nil }

// dimensionGroup returns the SQL of the group of a row. The group is null if the row's meter is not read by dimension.
func (s *usageStatement) dimensionGroup() string {
	if !s.separates() {
		return "null::uuid"
	}
	return "case when meter_version_id = any(@dimension_versions::bigint[]) then group_id end"
}

// byDimension returns the SQL of tallies, ordered by range, customer, version and start. For a meter that
// is read by dimension, there is one tally for each combination of its properties' values. All values are
// unknown in metering.OtherGroup and in a group that is not in usage_groups. If the meter no longer groups by a
// property of an old price, the combination lacks that property.
func (s *usageStatement) byDimension(tallies string) string {
	if !s.separates() {
		return `
		select no, customer_id, meter_version_id, start, false, null::jsonb, sum, count, late_sum, late_count
		from (` + tallies + `) as tallies (no, customer_id, meter_version_id, start, group_id, ` + tallyColumns + `)`
	}
	return `
		select no, customer_id, meter_version_id, start, separated, key, ` + MergedTally + `
		from (
		  select x.*, d.version is not null as separated, (
		    select jsonb_object_agg(p.name, g.group_key -> p.name)
		    from jsonb_array_elements_text(d.properties) p (name)
		    where g.group_key ? p.name) as key
		  from (` + tallies + `) as x (no, customer_id, meter_version_id, start, group_id, ` + tallyColumns + `)
		  left join unnest(@dimension_versions::bigint[], @dimension_properties::text[]::jsonb[]) d (version, properties) on d.version = x.meter_version_id
		  left join usage_groups g on g.tenant_id = @tenant and g.meter_version_id = x.meter_version_id and g.group_id = x.group_id) as tallies
		group by 1, 2, 3, 4, 5, 6
		order by 1, 2, 3, 4`
}

// isBeside reports whether two usages have the same range, customer, meter and start.
func (u RangeUsage) isBeside(o RangeUsage) bool {
	return u.Within == o.Within && u.Customer == o.Customer && u.Meter == o.Meter && u.Start.Equal(o.Start)
}

// addDimension adds the tally of a combination of dimension values. key is the combination in the database's JSON
// format.
func (u *RangeUsage) addDimension(key json.RawMessage, t Tally) error {
	canonical := key
	if len(key) > 0 {
		var err error
		if canonical, err = metering.CanonicalKey(key); err != nil {
			return err
		}
	}
	u.dimensions = append(u.dimensions, dimensionTally{canonical, t})
	return nil
}

// ByDimension returns the usage of each combination of dimension values, and the late part of each.
func (u RangeUsage) ByDimension(a metering.Aggregation) (all, late []billing.DimensionUsage) {
	for _, d := range u.dimensions {
		all = append(all, billing.DimensionUsage{Key: d.key, Units: d.Total(a), Events: d.All().Count})
		late = append(late, billing.DimensionUsage{Key: d.key, Units: d.Late(a), Events: d.LateCount})
	}
	return billing.AddDimensions(all, nil), billing.AddDimensions(late, nil)
}

// ClosedDimensions returns the properties by which prices may have charged closed periods of the tenant. It reads
// all stored prices, including prices that are no longer in effect.
func ClosedDimensions(ctx context.Context, q pg.Querier, tenant metering.TenantID) (billing.ByDimension, error) {
	rows, err := q.Query(ctx, `
		select distinct p.meter_id, t.terms -> 'dimensions' -> 'by'
		from meter_prices p
		join price_terms t on t.tenant_id = p.tenant_id and t.hash = p.terms
		where p.tenant_id = $1
		  and t.terms ? 'dimensions'`, tenant)
	if err != nil {
		return nil, err
	}
	by := make(billing.ByDimension)
	var meter metering.MeterID
	var properties []string
	_, err = pgx.ForEachRow(rows, []any{&meter, &properties}, func() error {
		by = by.And(billing.ByDimension{meter: properties})
		return nil
	})
	return by, err
}
