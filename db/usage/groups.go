package usage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// groupName identifies a group across meter versions.
type groupName struct {
	version metering.MeterVersionID
	group   metering.GroupID
}

// groupsMet holds the groups of a set of events. Each value is the properties of one event of the group. GroupOf
// computes the group's key from these properties when the group is written.
type groupsMet map[groupName]json.RawMessage

// keysAtOnce is the number of bytes of group keys from which registerGroups executes an INSERT.
const keysAtOnce = 1 << 20

// registerGroups adds groups to the dictionary, the table usage_groups. It returns those of the groups that are in the
// dictionary afterwards. It skips keys longer than MaxGroupKeyBytes, and groups beyond MaxGroupsPerMeter of a
// meter version. Two concurrent calls may exceed MaxGroupsPerMeter by the groups that one of them adds.
func registerGroups(ctx context.Context, q pg.Querier, tenant metering.TenantID, versions map[metering.MeterVersionID]metering.MeterVersion, met groupsMet) (map[groupName]bool, error) {
	registered := make(map[groupName]bool)
	if len(met) == 0 {
		return registered, nil
	}
	names := inInsertOrder(met)
	if err := readRegistered(ctx, q, tenant, names, registered); err != nil || len(registered) == len(met) {
		return registered, err
	}
	unknown := slices.DeleteFunc(names, func(name groupName) bool { return registered[name] })
	rooms, err := readRooms(ctx, q, tenant, versionsOf(unknown))
	if err != nil {
		return nil, err
	}
	var added newGroups
	for _, name := range unknown {
		if rooms[name.version] == 0 || name.group == metering.OtherGroup.ID {
			continue
		}
		group, err := versions[name.version].GroupOf(met[name])
		if err != nil {
			return nil, err
		}
		if len(group.Key) > metering.MaxGroupKeyBytes {
			continue
		}
		rooms[name.version]--
		registered[name] = true
		if added.add(name, group.Key); added.bytes < keysAtOnce {
			continue
		}
		if err := added.write(ctx, q, tenant); err != nil {
			return nil, err
		}
	}
	if err := added.write(ctx, q, tenant); err != nil || len(registered) == len(met) {
		return registered, err
	}
	return registered, registerOther(ctx, q, tenant, versionsOf(unknown))
}

// readRegistered adds to registered the groups that are in the dictionary.
func readRegistered(ctx context.Context, q pg.Querier, tenant metering.TenantID, names []groupName, registered map[groupName]bool) error {
	versions, ids := make([]int64, len(names)), make([][16]byte, len(names))
	for i, name := range names {
		versions[i], ids[i] = int64(name.version), name.group
	}
	rows, err := q.Query(ctx, `
		select meter_version_id, group_id from usage_groups
		where tenant_id = $1 and (meter_version_id, group_id) in (select * from unnest($2::bigint[], $3::uuid[]))`,
		tenant, versions, ids)
	if err != nil {
		return err
	}
	var name groupName
	_, err = pgx.ForEachRow(rows, []any{&name.version, (*[16]byte)(&name.group)}, func() error { registered[name] = true; return nil })
	return err
}

// readRooms returns the number of groups that can still be added to each meter version.
func readRooms(ctx context.Context, q pg.Querier, tenant metering.TenantID, versions []int64) (map[metering.MeterVersionID]int, error) {
	rows, err := q.Query(ctx, `
		select version, (
		  select greatest($3 - count(*), 0)
		  from usage_groups u
		  where u.tenant_id = $1
		    and u.meter_version_id = version
		    and u.group_id <> $4)
		from unnest($2::bigint[]) as version`, tenant, versions, metering.MaxGroupsPerMeter, [16]byte(metering.OtherGroup.ID))
	if err != nil {
		return nil, err
	}
	rooms := make(map[metering.MeterVersionID]int)
	var version metering.MeterVersionID
	var room int
	_, err = pgx.ForEachRow(rows, []any{&version, &room}, func() error { rooms[version] = room; return nil })
	return rooms, err
}

// newGroups holds new rows of usage_groups as columns.
type newGroups struct {
	versions []int64
	ids      [][16]byte
	keys     []string
	bytes    int // size of all keys
}

func (n *newGroups) add(name groupName, key json.RawMessage) {
	n.versions, n.ids, n.keys = append(n.versions, int64(name.version)), append(n.ids, name.group), append(n.keys, string(key))
	n.bytes += len(key)
}

// write inserts the entries and empties n.
func (n *newGroups) write(ctx context.Context, q pg.Querier, tenant metering.TenantID) error {
	if len(n.ids) == 0 {
		return nil
	}
	_, err := q.Exec(ctx, `
		insert into usage_groups (tenant_id, meter_version_id, group_id, group_key)
		select $1, version, id, key::jsonb
		from unnest($2::bigint[], $3::uuid[], $4::text[]) as new (version, id, key)
		order by version, id
		on conflict do nothing`, tenant, n.versions, n.ids, n.keys)
	*n = newGroups{}
	return err
}

// registerOther adds OtherGroup to the dictionary of the meter versions. OtherGroup counts the events of all
// groups that cannot be registered.
func registerOther(ctx context.Context, q pg.Querier, tenant metering.TenantID, versions []int64) error {
	_, err := q.Exec(ctx, `
		insert into usage_groups (tenant_id, meter_version_id, group_id, group_key)
		select distinct $1::bigint, version, $3::uuid, $4::jsonb from unnest($2::bigint[]) as version order by 2
		on conflict do nothing`, tenant, versions, [16]byte(metering.OtherGroup.ID), string(metering.OtherGroup.Key))
	return err
}

// inInsertOrder returns the groups in the order in which every transaction inserts them, to avoid deadlocks.
func inInsertOrder(met groupsMet) []groupName {
	return slices.SortedFunc(maps.Keys(met), func(a, b groupName) int {
		return cmp.Or(cmp.Compare(a.version, b.version), bytes.Compare(a.group[:], b.group[:]))
	})
}

// versionsOf returns the meter versions of groups in insert order.
func versionsOf(names []groupName) (versions []int64) {
	for _, name := range names {
		if len(versions) == 0 || versions[len(versions)-1] != int64(name.version) {
			versions = append(versions, int64(name.version))
		}
	}
	return versions
}
