package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// groupNamedByOthers is the SQL condition that a quota or an alert names group g of usage_groups. It ignores quotas and
// alerts of @customer.
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

// isUnusedGroup is the SQL condition that group g of usage_groups has no events in the rollups. In addition,
// no quota or alert names the group, except for those of @customer.
const isUnusedGroup = `g.tenant_id = @tenant
		  and g.group_id <> @other
		  and not ` + usage.GroupUsedByAny + `
		  and not ` + groupNamedByOthers

// unusedGroups are groups that have no events in the rollups, and that no other customer's quota or
// alert names. Their keys may be personal data of an erased customer.
type unusedGroups struct {
	versions []int64
	ids      [][16]byte
}

// findUnusedGroups returns the groups that meet isUnusedGroup. Events that are not folded into the rollups
// yet may belong to these groups.
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

// delete deletes the groups of u that are still unused. The caller has folded the tenant's usage.
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
