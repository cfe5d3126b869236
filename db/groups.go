package db

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// groupName identifies a group across meter versions.
type groupName struct {
	version metering.MeterVersionID
	group   metering.GroupID
}

// register writes groups into the dictionary, up to MaxGroupsPerMeter in each
// meter version, and returns those that are in it then. Two at once may together
// exceed the bound by what one of them adds.
func register(ctx context.Context, q querier, tenant metering.TenantID, groups map[groupName]metering.Group) (map[groupName]bool, error) {
	registered := make(map[groupName]bool)
	if len(groups) == 0 {
		return registered, nil
	}
	versions, ids, keys := groupArrays(groups)
	_, err := q.Exec(ctx, `
		insert into usage_groups (tenant_id, meter_version_id, group_id, group_key)
		select $1, version, id, key::jsonb
		from (
		  select new.*, row_number() over (partition by version order by place)
		    + (select count(*) from usage_groups u where u.tenant_id = $1 and u.meter_version_id = new.version) as total
		  from unnest($2::bigint[], $3::uuid[], $4::text[]) with ordinality as new (version, id, key, place)
		  where not exists (select from usage_groups u where u.tenant_id = $1 and u.meter_version_id = new.version and u.group_id = new.id)
		) room
		where total <= $5
		order by version, id
		on conflict do nothing`, tenant, versions, ids, keys, metering.MaxGroupsPerMeter)
	if err != nil {
		return nil, err
	}
	rows, err := q.Query(ctx, `
		select meter_version_id, group_id from usage_groups
		where tenant_id = $1 and (meter_version_id, group_id) in (select * from unnest($2::bigint[], $3::uuid[]))`,
		tenant, versions, ids)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name groupName
		if err := rows.Scan(&name.version, (*[16]byte)(&name.group)); err != nil {
			return nil, err
		}
		registered[name] = true
	}
	if err := rows.Err(); err != nil || len(registered) == len(groups) {
		return registered, err
	}
	return registered, registerOther(ctx, q, tenant, versions)
}

// registerOther gives the groups beyond the bound their common entry.
func registerOther(ctx context.Context, q querier, tenant metering.TenantID, versions []int64) error {
	_, err := q.Exec(ctx, `
		insert into usage_groups (tenant_id, meter_version_id, group_id, group_key)
		select distinct $1::bigint, version, $3::uuid, $4::jsonb from unnest($2::bigint[]) as version order by 2
		on conflict do nothing`, tenant, versions, [16]byte(metering.OtherGroup.ID), string(metering.OtherGroup.Key))
	return err
}

// groupArrays lists the groups in the order in which every transaction inserts them.
func groupArrays(groups map[groupName]metering.Group) (versions []int64, ids [][16]byte, keys []string) {
	names := make([]groupName, 0, len(groups))
	for name := range groups {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b groupName) int {
		return cmp.Or(cmp.Compare(a.version, b.version), bytes.Compare(a.group[:], b.group[:]))
	})
	for _, name := range names {
		versions, ids, keys = append(versions, int64(name.version)), append(ids, name.group), append(keys, string(groups[name].Key))
	}
	return versions, ids, keys
}
