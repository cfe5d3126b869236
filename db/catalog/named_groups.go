package catalog

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// namedGroups is the SQL that selects group_id and group_key of the groups of @meter that quotas and alerts name.
const namedGroups = `
	(select group_id, group_key from quotas where tenant_id = @tenant and meter_id = @meter and group_id is not null
	union all
	select group_id, group_key from alerts where tenant_id = @tenant and meter_id = @meter and group_id is not null and deleted_at is null)`

// RegisterGroup makes ingest count usage of a group separately from now on, or returns the error of
// RequireCounted. The caller holds the tenant's shared lock.
func RegisterGroup(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, meter metering.MeterID, group *metering.Group) error {
	if group == nil {
		return nil
	}
	if err := RequireCounted(ctx, tx, tenant, meter, group); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `
		insert into usage_groups (tenant_id, meter_version_id, group_id, group_key)
		select $1, id, $3, $4 from meter_versions where tenant_id = $1 and meter_id = $2 and status <> 'retired'
		on conflict do nothing`, tenant, meter, GroupID(group), GroupKey(group))
	return err
}

// RequireCounted returns nil if usage of the group is counted separately, or can be from now on. It returns
// CodeConflict if the meter's latest version does not group by the properties of the group, and CodeInvalid if
// usage of the group is counted in $other. A nil group is all usage, which is always counted.
func RequireCounted(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, meter metering.MeterID, group *metering.Group) error {
	if group == nil {
		return nil
	}
	latest, err := LatestMeterVersion(ctx, tx, tenant, meter)
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
		tenant, latest.ID, GroupID(group), metering.MaxGroupsPerMeter).Scan(&counted)
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

func GroupID(g *metering.Group) *[16]byte {
	if g == nil {
		return nil
	}
	return (*[16]byte)(&g.ID)
}

func GroupKey(g *metering.Group) any {
	if g == nil {
		return nil
	}
	return g.Key
}
