package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// namedGroups selects group_id and group_key of the groups of a meter that quotas and alerts name,
// as SQL.
const namedGroups = `
	(select group_id, group_key from quotas where tenant_id = @tenant and meter_id = @meter and group_id is not null
	union all
	select group_id, group_key from alerts where tenant_id = @tenant and meter_id = @meter and group_id is not null and deleted_at is null)`

// groupNamedByOthers reports whether a quota or an alert names group g of usage_groups, except for
// those of @customer, as SQL.
const groupNamedByOthers = `exists (
	  select
	  from meter_versions v
	  join (
	    select meter_id, group_id, customer_id from quotas where tenant_id = @tenant
	    union all
	    select meter_id, group_id, customer_id from alerts where tenant_id = @tenant and deleted_at is null) named using (meter_id)
	  where v.tenant_id = @tenant
	    and v.id = g.meter_version_id
	    and named.group_id = g.group_id
	    and named.customer_id is distinct from @customer)`

// isUnusedGroup is the condition that no folded event is in group g of usage_groups, as SQL. No quota or
// alert may name the group either, except for those of @customer.
const isUnusedGroup = `g.tenant_id = @tenant
		  and g.group_id <> @other
		  and not ` + groupUsedByAny + `
		  and not ` + groupNamedByOthers

// unusedGroups are the groups that no folded event is in, and that no other customer's quota or alert
// names. Their keys may be personal data of an erased customer.
type unusedGroups struct {
	versions []int64
	ids      [][16]byte
}

// findUnusedGroups returns the groups that no folded event is in, and that no quota or alert names except
// for the customer's. Events that are not folded yet can be in them.
func findUnusedGroups(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) (unused unusedGroups, err error) {
	rows, err := tx.Query(ctx, `select g.meter_version_id, g.group_id from usage_groups g where `+isUnusedGroup, unusedArgs(tenant, customer))
	if err != nil {
		return unused, err
	}
	var version int64
	var id [16]byte
	_, err = pgx.ForEachRow(rows, []any{&version, &id}, func() error {
		unused.versions, unused.ids = append(unused.versions, version), append(unused.ids, id)
		return nil
	})
	return unused, err
}

// delete deletes those of the groups that are still unused. The caller has folded the tenant's usage.
func (u unusedGroups) delete(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) error {
	args := unusedArgs(tenant, customer)
	args["versions"], args["ids"] = u.versions, u.ids
	_, err := tx.Exec(ctx, `
		delete from usage_groups g
		using unnest(@versions::bigint[], @ids::uuid[]) unused (version, id)
		where g.meter_version_id = unused.version
		  and g.group_id = unused.id
		  and `+isUnusedGroup, args)
	return err
}

func unusedArgs(tenant metering.TenantID, customer metering.CustomerID) pgx.NamedArgs {
	return pgx.NamedArgs{"tenant": tenant, "customer": customer, "other": [16]byte(metering.OtherGroup.ID)}
}

// registerGroup makes ingest count usage of a group separately from now on, or returns the error of
// requireCounted. The caller holds the tenant's shared lock.
func registerGroup(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, meter metering.MeterID, group *metering.Group) error {
	if group == nil {
		return nil
	}
	if err := requireCounted(ctx, tx, tenant, meter, group); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `
		insert into usage_groups (tenant_id, meter_version_id, group_id, group_key)
		select $1, id, $3, $4 from meter_versions where tenant_id = $1 and meter_id = $2 and status <> 'retired'
		on conflict do nothing`, tenant, meter, groupID(group), groupKey(group))
	return err
}

// requireCounted returns an error unless usage of the group is counted separately. The group_by of the
// meter must not be changing (CodeConflict), and the group must not be in $other (CodeInvalid). A nil
// group is all usage.
func requireCounted(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, meter metering.MeterID, group *metering.Group) error {
	if group == nil {
		return nil
	}
	latest, err := latestMeterVersion(ctx, tx, tenant, meter)
	if err != nil {
		return err
	}
	if _, err := latest.QuotaGroup("body.group", group.Key); err != nil {
		return metering.Errorf(metering.CodeConflict, "the group_by of the meter is being changed; repeat the request once the meter's status is complete").Because(err)
	}
	var counted bool
	err = tx.QueryRow(ctx, `
		select exists (select from usage_groups where tenant_id = $1 and meter_version_id = $2 and group_id = $3)
		  or (select count(*) < $4 from usage_groups where tenant_id = $1 and meter_version_id = $2)`,
		tenant, latest.ID, groupID(group), metering.MaxGroupsPerMeter).Scan(&counted)
	if err == nil && !counted {
		err = metering.Invalid("body.group", "is counted in $other, because the meter has %d groups already; group by properties with fewer values to count one group", metering.MaxGroupsPerMeter)
	}
	return err
}

// registerNamedGroups makes a new meter version count the groups of quotas and alerts separately,
// regardless of the number of other groups.
func registerNamedGroups(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, version metering.MeterVersion) error {
	_, err := tx.Exec(ctx, `
		insert into usage_groups (tenant_id, meter_version_id, group_id, group_key)
		select distinct on (group_id) @tenant::bigint, @version::bigint, group_id, group_key
		from `+namedGroups+` named
		on conflict do nothing`, pgx.NamedArgs{"tenant": tenant, "meter": version.MeterID, "version": version.ID})
	return err
}

// requireNoNamedGroups returns CodeConflict if quotas or alerts name groups of the meter. It guards a
// change of the meter's group_by.
func requireNoNamedGroups(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, meter metering.MeterID) error {
	var named int
	err := tx.QueryRow(ctx, `select count(*) from `+namedGroups+` named`, pgx.NamedArgs{"tenant": tenant, "meter": meter}).Scan(&named)
	if err == nil && named > 0 {
		err = metering.Errorf(metering.CodeConflict,
			"%d quotas and alerts are of single groups of the meter by its present group_by; delete them first, see GET /v1/quotas and GET /v1/alerts", named)
	}
	return err
}
