package catalog

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Meters stores meters and their versions.
type Meters struct{ pool pg.Beginner }

// MeterVersionColumns are the columns of a meter version g, in the order of MeterVersionFields.
const MeterVersionColumns = `g.id, g.meter_id, g.event_type, g.aggregation, g.value_property, g.filters, g.group_by, g.timezone, g.epoch, g.status, g.counted_from`

// SelectMeters selects the meters m of tenant $1, each with the version from which usage is read. A condition or an
// order can follow.
var SelectMeters = `
		select m.id, m.slug, m.event_type, m.name, m.unit, m.usage_scale, m.created_at, ` + ArchivedAt("m") + `, ` + MeterVersionColumns + `
		from meters m join meter_versions g on g.tenant_id = m.tenant_id and g.id = m.meter_version_id
		where m.tenant_id = $1 `

// MeterVersionFields returns the destinations of MeterVersionColumns in a Scan.
func MeterVersionFields(g *metering.MeterVersion) []any {
	return []any{&g.ID, &g.MeterID, &g.EventType, &g.Aggregation, &g.ValueProperty, &g.Filters, &g.GroupBy, &g.Timezone, &g.Epoch, &g.Status, &g.CountedFrom}
}

func ScanMeter(row pgx.CollectableRow) (m metering.Meter, err error) {
	fields := []any{&m.ID, &m.Slug, &m.EventType, &m.Name, &m.Unit, &m.UsageScale, &m.CreatedAt, &m.ArchivedAt}
	return m, row.Scan(append(fields, MeterVersionFields(&m.Version)...)...)
}

// CollectMeters reads the meters that SelectMeters with the SQL in where selects. The first argument is the tenant.
func CollectMeters(ctx context.Context, q pg.Querier, where string, args ...any) ([]metering.Meter, error) {
	rows, err := q.Query(ctx, SelectMeters+where, args...)
	if err != nil {
		return nil, pg.Coded(err)
	}
	meters, err := pgx.CollectRows(rows, ScanMeter)
	return meters, pg.Coded(err)
}

// Get returns the meter with that slug, or CodeNotFound.
func (s Meters) Get(ctx context.Context, tenant metering.TenantID, slug string) (metering.Meter, error) {
	return MeterBySlug(ctx, s.pool, tenant, slug)
}

func MeterBySlug(ctx context.Context, q pg.Querier, tenant metering.TenantID, slug string) (metering.Meter, error) {
	meters, err := CollectMeters(ctx, q, `and m.slug = $2`, tenant, slug)
	if err == nil && len(meters) == 0 {
		err = metering.Errorf(metering.CodeNotFound, "there is no meter with this slug")
	}
	if err != nil {
		return metering.Meter{}, err
	}
	return meters[0], nil
}

// Next returns the versions to which meters switch once they are backfilled.
func (s Meters) Next(ctx context.Context, tenant metering.TenantID) (map[metering.MeterID]metering.MeterVersion, error) {
	rows, err := s.pool.Query(ctx, `
		select `+MeterVersionColumns+`
		from meter_versions g
		join meters m on m.tenant_id = g.tenant_id and m.id = g.meter_id and m.meter_version_id <> g.id
		where g.tenant_id = $1
		  and g.status = 'backfilling'`, tenant)
	if err != nil {
		return nil, pg.Coded(err)
	}
	next := make(map[metering.MeterID]metering.MeterVersion)
	var g metering.MeterVersion
	_, err = pgx.ForEachRow(rows, MeterVersionFields(&g), func() error {
		next[g.MeterID] = g
		return nil
	})
	return next, pg.Coded(err)
}

// List returns the next meters in order of ID, at most limit. It begins after the given ID. It includes archived meters
// only if archived is true.
func (s Meters) List(ctx context.Context, tenant metering.TenantID, after metering.MeterID, limit int, archived bool) (page pg.Page[metering.Meter], err error) {
	rows, err := s.pool.Query(ctx, SelectMeters+`and m.id > $2 and ($4 or m.archived_at is null) order by m.id limit $3`, tenant, after, limit+1, archived)
	if err != nil {
		return page, pg.Coded(err)
	}
	page, err = pg.ReadPage(ctx, rows, limit, ScanMeter)
	return page, pg.Coded(err)
}

// meterLimit includes archived meters, because ingest and billing read all meters, plans and prices of a tenant at
// once.
var meterLimit = pg.Limit{
	Count: `select count(*) from meters where tenant_id = @tenant`,
	Most:  metering.MaxMeters, Noun: "meters", Fix: "change an existing meter, such as an archived one, instead",
}

// definitionLimit bounds the size of the definitions, because ingest reads all of them at once.
var definitionLimit = pg.Limit{
	Count: `select coalesce(sum(octet_length(filters::text)), 0) from meter_versions where tenant_id = @tenant and status <> 'retired' and filters <> '[]'`,
	Most:  metering.MaxDefinitionBytes, Noun: "bytes of filters of meters", Fix: "use fewer or shorter values in the filters of a meter",
}

// Create creates a meter and publishes its first version. If events of its type exist, the version is
// Backfilling and the caller starts the backfill. Otherwise it is Complete.
func (s Meters) Create(ctx context.Context, tenant metering.TenantID, actor metering.Actor, m metering.Meter) (created metering.Meter, err error) {
	m.Version.EventType = m.EventType
	if err := m.Validate(); err != nil {
		return metering.Meter{}, err
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockTenant(ctx, tx, tenant); err != nil {
			return err
		}
		for _, room := range []pg.Limit{meterLimit, definitionLimit} {
			if err := pg.RequireRoom(ctx, tx, tenant, room); err != nil {
				return err
			}
		}
		if err := requireRoomForMeter(ctx, tx, tenant, m.EventType, 0); err != nil {
			return err
		}
		// The meter and its version refer to each other; the foreign keys are checked at COMMIT.
		var id metering.MeterID
		err := tx.QueryRow(ctx, `
			insert into meters (tenant_id, slug, event_type, name, unit, usage_scale, meter_version_id) values ($1, $2, $3, $4, $5, $6, 0)
			returning id`, tenant, m.Slug, m.EventType, m.Name, m.Unit, m.UsageScale).Scan(&id)
		if pg.ViolatedUnique(err) != "" {
			return metering.Errorf(metering.CodeConflict, "a meter with this slug exists already").Because(err)
		}
		if err != nil {
			return err
		}
		m.Version.MeterID = id
		version, err := publishMeterVersion(ctx, tx, tenant, m.Version)
		if err != nil {
			return err
		}
		if err := Adopt(ctx, tx, tenant, version); err != nil {
			return err
		}
		if created, err = MeterBySlug(ctx, tx, tenant, m.Slug); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "meter.create", id.String(), nil, auditedMeter(created))
	})
	return created, err
}

// requireRoomForMeter returns CodeInvalid if the event type has metering.MaxMetersPerEventType meters already.
// It counts neither archived meters nor the meter beside. If beside is 0, it counts all active meters.
func requireRoomForMeter(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, eventType string, beside metering.MeterID) error {
	var n int
	err := tx.QueryRow(ctx, `select count(*) from meters where tenant_id = $1 and event_type = $2 and id <> $3 and archived_at is null`, tenant, eventType, beside).Scan(&n)
	if err == nil && n >= metering.MaxMetersPerEventType {
		return metering.Invalid("body.event_type", "already has %d meters, which is the maximum; archive one of them, or use another event type", n)
	}
	return err
}

// publishMeterVersion creates a meter version. From this transaction's COMMIT on, ingest counts by the version.
// Events ingested before have a lower epoch. The backfill counts these events, as far back as events are
// retained. The transaction locks this start of retention until COMMIT. The caller holds the tenant's lock.
func publishMeterVersion(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, g metering.MeterVersion) (metering.MeterVersion, error) {
	epoch, err := RaiseEpoch(ctx, tx, tenant)
	if err != nil {
		return metering.MeterVersion{}, err
	}
	var published metering.MeterVersion
	err = tx.QueryRow(ctx, `
		insert into meter_versions as g
		  (tenant_id, meter_id, event_type, aggregation, value_property, filters, group_by, timezone, epoch, status, completed_at, counted_from)
		select t.id, @meter, @event_type, @aggregation, @value_property, @filters, @group_by, t.timezone, @epoch,
		  case when past.found then 'backfilling' else 'complete' end,
		  case when past.found then null else now() end,
		  case when past.found then kept.kept_from end
		from tenants t,
		  (select kept_from from event_retention for share) kept,
		  lateral (select exists (select from event_types e where e.tenant_id = t.id and e.event_type = @event_type)) past (found)
		where t.id = @tenant
		returning `+MeterVersionColumns,
		pgx.NamedArgs{
			"tenant": tenant, "meter": g.MeterID, "event_type": g.EventType, "aggregation": g.Aggregation,
			"value_property": g.ValueProperty, "filters": notNil(g.Filters), "group_by": notNil(g.GroupBy), "epoch": epoch,
		}).Scan(MeterVersionFields(&published)...)
	return published, err
}

// RaiseEpoch separates the events ingested before this transaction from later ones. The caller holds the
// tenant's lock.
func RaiseEpoch(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) (epoch int64, err error) {
	err = tx.QueryRow(ctx, `update tenants set epoch = epoch + 1 where id = $1 returning epoch`, tenant).Scan(&epoch)
	return epoch, err
}

// Adopt makes reads and billing use a meter version, and retires all other versions of its meter.
func Adopt(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, g metering.MeterVersion) error {
	_, err := tx.Exec(ctx, `update meters set meter_version_id = $3 where tenant_id = $1 and id = $2`, tenant, g.MeterID, g.ID)
	if err != nil {
		return err
	}
	if err := retireOthers(ctx, tx, tenant, g.MeterID, g.ID); err != nil {
		return err
	}
	return QueueAlerts(ctx, tx, tenant, 0)
}

// retireOthers retires all versions of a meter, except the versions to keep.
func retireOthers(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, meter metering.MeterID, keep ...metering.MeterVersionID) error {
	_, err := tx.Exec(ctx, `
		update meter_versions set status = 'retired', retired_at = now()
		where tenant_id = $1 and meter_id = $2 and id <> all($3) and status <> 'retired'`, tenant, meter, keep)
	return err
}

// MeterChange is a change of a meter. Nil fields stay unchanged.
type MeterChange struct {
	Name          *string
	Unit          *string
	Aggregation   *metering.Aggregation
	ValueProperty *string
	Filters       *[]metering.Filter
	GroupBy       *[]string
	UsageScale    *int32
}

// Update changes a meter. A change of its counting creates a new meter version. If the version has
// earlier events to count, Update returns it as backfilling and the caller starts the backfill. Reads
// use the previous version until the backfill is complete.
func (s Meters) Update(ctx context.Context, tenant metering.TenantID, actor metering.Actor, slug string, change MeterChange) (updated metering.Meter, backfilling *metering.MeterVersion, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		backfilling = nil
		if _, err := RaiseRevision(ctx, tx, tenant); err != nil {
			return err
		}
		if err := pg.LockTenant(ctx, tx, tenant); err != nil {
			return err
		}
		m, err := MeterBySlug(ctx, tx, tenant, slug)
		if err != nil {
			return err
		}
		latest, err := LatestMeterVersion(ctx, tx, tenant, m.ID)
		if err != nil {
			return err
		}
		former := m
		former.Version = latest
		next := change.AppliedTo(latest)
		change.applyTo(&m)
		m.Version = next
		if err := m.Validate(); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `update meters set name = $3, unit = $4, usage_scale = $5 where tenant_id = $1 and id = $2`, tenant, m.ID, m.Name, m.Unit, m.UsageScale)
		if err != nil {
			return err
		}
		if m.UsageScale != former.UsageScale { // the scale rounds the charged usage
			if err := QueueAlerts(ctx, tx, tenant, 0); err != nil {
				return err
			}
		}
		if !next.SameCounting(latest) && !m.ArchivedAt.IsZero() {
			return metering.Errorf(metering.CodeConflict, "the meter is archived; unarchive it before you change how it counts")
		}
		if !next.SameSelection(latest) {
			if err := requireCountedSinceArchived(ctx, tx, tenant, m.ID); err != nil {
				return err
			}
		}
		if !slices.Equal(next.GroupBy, latest.GroupBy) {
			if err := requireNoNamedGroups(ctx, tx, tenant, m.ID); err != nil {
				return err
			}
			if err := refuseRegrouping(ctx, tx, tenant, next); err != nil {
				return err
			}
		}
		if next.FilterBytes() > latest.FilterBytes() {
			if err := pg.RequireRoom(ctx, tx, tenant, definitionLimit); err != nil {
				return err
			}
		}
		if !next.SameCounting(latest) {
			if backfilling, err = Regroup(ctx, tx, tenant, next); err != nil {
				return err
			}
		}
		if err := audit.RecordChange(ctx, tx, tenant, actor, "meter.update", m.ID.String(), auditedMeter(former), auditedMeter(m)); err != nil {
			return err
		}
		updated, err = MeterBySlug(ctx, tx, tenant, slug)
		return err
	})
	return updated, backfilling, err
}

func (c MeterChange) AppliedTo(g metering.MeterVersion) metering.MeterVersion {
	SetField(&g.Aggregation, c.Aggregation)
	SetField(&g.ValueProperty, c.ValueProperty)
	SetField(&g.Filters, c.Filters)
	SetField(&g.GroupBy, c.GroupBy)
	return g
}

// applyTo changes the fields of m that are not part of a version.
func (c MeterChange) applyTo(m *metering.Meter) {
	SetField(&m.Name, c.Name)
	SetField(&m.Unit, c.Unit)
	SetField(&m.UsageScale, c.UsageScale)
}

// requireCountedSinceArchived returns CodeConflict until the meter has counted the events that were received while it
// was archived. Until then, the current version lacks these events, so its late usage cannot be compared with that of a
// new version.
func requireCountedSinceArchived(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, meter metering.MeterID) error {
	var counting bool
	err := tx.QueryRow(ctx, `
		select coalesce(g.until_epoch > 0, false)
		from meters m
		join meter_versions g on g.tenant_id = m.tenant_id and g.id = m.meter_version_id
		where m.tenant_id = $1
		  and m.id = $2`, tenant, meter).Scan(&counting)
	if err == nil && counting {
		err = metering.Errorf(metering.CodeConflict, "the meter still counts the events from the time when it was archived; change value_property and filters once its status is no longer backfilling")
	}
	return err
}

// LatestMeterVersion returns the newest version of a meter that is not retired. A change of the meter starts
// from this version. While this version is backfilling, reads may use an earlier version.
func LatestMeterVersion(ctx context.Context, q pg.Querier, tenant metering.TenantID, meter metering.MeterID) (g metering.MeterVersion, err error) {
	err = q.QueryRow(ctx, `
		select `+MeterVersionColumns+` from meter_versions g
		where g.tenant_id = $1 and g.meter_id = $2 and g.status <> 'retired'
		order by g.id desc limit 1`, tenant, meter).Scan(MeterVersionFields(&g)...)
	return g, err
}

// Regroup publishes next as a new version of its meter, after any change of the counting or after the meter was
// unarchived. If the version has earlier events to count, Regroup returns the version, and the caller starts
// the backfill. Meanwhile, usage is read from the current version, and all other versions are retired.
// Otherwise Regroup adopts the version at once and returns nil. If the first backfill of the meter has not
// completed, it adopts the version at once in both cases.
func Regroup(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, next metering.MeterVersion) (*metering.MeterVersion, error) {
	if err := requireRoomForVersion(ctx, tx, tenant, next.MeterID); err != nil {
		return nil, err
	}
	published, err := publishMeterVersion(ctx, tx, tenant, next)
	if err != nil {
		return nil, err
	}
	if err := registerNamedGroups(ctx, tx, tenant, published); err != nil {
		return nil, err
	}
	if published.Status == metering.Complete {
		return nil, Adopt(ctx, tx, tenant, published)
	}
	var read metering.MeterVersionID
	var unread bool // no version of the meter has counted earlier events: its first backfill has not completed
	err = tx.QueryRow(ctx, `
		select g.id, g.status = 'backfilling' or coalesce(g.until_epoch = 0, false) from meters m
		join meter_versions g on g.tenant_id = m.tenant_id and g.id = m.meter_version_id
		where m.tenant_id = $1 and m.id = $2`, tenant, published.MeterID).Scan(&read, &unread)
	if err != nil {
		return nil, err
	}
	if unread {
		return &published, Adopt(ctx, tx, tenant, published)
	}
	return &published, retireOthers(ctx, tx, tenant, published.MeterID, read, published.ID)
}

// notNil returns an empty list for nil, which would become null in SQL.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func auditedMeter(m metering.Meter) audit.Fields {
	return audit.Fields{
		"slug": m.Slug, "event_type": m.EventType, "name": m.Name, "usage_scale": m.UsageScale,
		"unit": m.Unit, "aggregation": m.Version.Aggregation, "value_property": m.Version.ValueProperty,
		"filters": notNil(m.Version.Filters), "group_by": notNil(m.Version.GroupBy),
	}
}

// Changed returns the definition of a meter after a change, without storing it. Like Update, it applies the
// change to the latest definition, and returns CodeInvalid if the result is invalid. current is the meter,
// or nil if it has no complete definition yet.
func (s Meters) Changed(ctx context.Context, tenant metering.TenantID, slug string, change MeterChange) (definition metering.MeterVersion, current *metering.Meter, err error) {
	m, err := s.Get(ctx, tenant, slug)
	if err != nil {
		return definition, nil, err
	}
	latest, err := LatestMeterVersion(ctx, s.pool, tenant, m.ID)
	if err != nil {
		return definition, nil, pg.Coded(err)
	}
	changed := m
	change.applyTo(&changed)
	changed.Version = change.AppliedTo(latest)
	if m.Version.Status == metering.Complete {
		current = &m
	}
	return changed.Version, current, changed.Validate()
}

// Nothing reads a retired meter version: usage and billing read the current version of a meter, and a closed
// period has stored totals. The rollups of a retired version are therefore dropped after RetiredFor. By then,
// all requests and backfills that began before its retirement have ended.
const (
	retiredVersionsKept = 10        // maximum of a meter's retired versions with stored rollups
	RetiredFor          = time.Hour // delay before rollups are dropped; longer than any request or backfill that may still use them
)

// requireRoomForVersion returns CodeRateLimited while too many retired versions of the meter have stored rollups.
func requireRoomForVersion(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, meter metering.MeterID) error {
	var kept int
	var slug string
	err := tx.QueryRow(ctx, `
		select m.slug, (
		  select count(*)
		  from meter_versions g
		  where g.tenant_id = m.tenant_id
		    and g.meter_id = m.id
		    and g.status = 'retired'
		    and g.dropped_at is null)
		from meters m
		where m.tenant_id = $1
		  and m.id = $2`, tenant, meter).Scan(&slug, &kept)
	if err != nil || kept < retiredVersionsKept {
		return err
	}
	refused := metering.Errorf(metering.CodeRateLimited, "the meter %s has %d previous versions with stored totals, which is the maximum. "+
		"They are deleted within two hours of their replacement; try again then", slug, kept)
	refused.RetryAfter = RetiredFor
	return refused
}
