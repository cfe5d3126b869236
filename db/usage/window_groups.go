package usage

import (
	"context"

	"github.com/odometer-metering/odometer/metering"
)

// LoadGroups reads the requested groups from usage_groups. If the range has partial hours, it also sets registered
// to all groups of the meter version.
func (r *WindowRead) LoadGroups(ctx context.Context) error {
	names, values := []string{}, []string{}
	for name, alternatives := range r.Groups {
		for _, value := range alternatives {
			names, values = append(names, name), append(values, string(value))
		}
	}
	rows, err := r.Querier.Query(ctx, `
		with wanted as materialized (
		  select name, array_agg(value) as alternatives, array_agg(coalesce(value #>> '{}', 'null')) as texts
		  from unnest($3::text[], $4::text[]::jsonb[]) as f (name, value)
		  group by name)
		select group_id, case when $6 then group_key end, asked, alike
		from usage_groups, lateral (
		  select coalesce(bool_and(coalesce(group_key -> name = any(alternatives), false)), true),
		    coalesce(bool_and(group_key ? name and coalesce(group_key ->> name, 'null') = any(texts)), true)
		  from wanted
		) filter (asked, alike)
		where tenant_id = $1 and meter_version_id = $2 and (asked or alike or $5)`,
		r.tenant, r.Meter.Version.ID, names, values, len(r.ragged) > 0, r.GroupBy != nil)
	if err != nil {
		return err
	}
	defer rows.Close()
	r.groups, r.examples = make(map[metering.GroupID]metering.GroupID), make(map[metering.GroupID]metering.GroupID)
	r.registered = make(map[metering.GroupID]bool)
	for rows.Next() {
		var group metering.Group
		var asked, alike bool
		if err := rows.Scan((*[16]byte)(&group.ID), &group.Key, &asked, &alike); err != nil {
			return err
		}
		r.registered[group.ID], r.alike = true, r.alike || alike && !asked
		if !asked {
			continue
		}
		shown := group
		if r.GroupBy != nil {
			if shown, err = group.By(r.GroupBy); err != nil {
				return err
			}
		}
		r.groups[group.ID], r.examples[shown.ID] = shown.ID, group.ID
	}
	return rows.Err()
}
