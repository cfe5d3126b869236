package db

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// rollups collects what a set of events adds to the hourly and monthly rows.
// Ingest and backfill share it, so both count alike.
type rollups struct {
	hours, months map[bucket]*tally
	groups        map[groupName]metering.Group
	zones         map[string]*zoneClock
	recent        map[metering.MeterVersionID]grouped
}

// grouped is the group of some properties.
type grouped struct {
	properties json.RawMessage
	group      metering.Group
}

// bucket is the key of a rollup row.
type bucket struct {
	customer metering.CustomerID
	version  metering.MeterVersionID
	group    metering.GroupID
	start    time.Time
}

func newRollups() *rollups {
	return &rollups{
		hours: make(map[bucket]*tally), months: make(map[bucket]*tally),
		groups: make(map[groupName]metering.Group), zones: make(map[string]*zoneClock),
		recent: make(map[metering.MeterVersionID]grouped),
	}
}

// add counts an event for its customer and for the whole tenant, and returns
// the group that it counts in.
func (r *rollups) add(g metering.MeterVersion, e *metering.Event, late bool) (metering.Group, error) {
	group, err := r.groupOf(g, e.Properties)
	if err != nil {
		return group, err
	}
	r.groups[groupName{g.ID, group.ID}] = group
	clock, ok := r.zones[g.Timezone]
	if !ok {
		clock = &zoneClock{zone: metering.Location(g.Timezone)}
		r.zones[g.Timezone] = clock
	}
	hour, month := clock.buckets(e.At)
	for _, customer := range []metering.CustomerID{e.CustomerID, metering.WholeTenant} {
		addTo(r.hours, bucket{customer, g.ID, group.ID, hour}, e.Value, late)
		addTo(r.months, bucket{customer, g.ID, group.ID, month}, e.Value, late)
	}
	return group, nil
}

// groupOf remembers the last group of each version: events that come together
// often have the same properties, or none.
func (r *rollups) groupOf(g metering.MeterVersion, properties json.RawMessage) (metering.Group, error) {
	if last, known := r.recent[g.ID]; known && bytes.Equal(last.properties, properties) {
		return last.group, nil
	}
	group, err := g.GroupOf(properties)
	if err != nil {
		return group, fmt.Errorf("group event: %w", err)
	}
	r.recent[g.ID] = grouped{properties, group}
	return group, nil
}

// foldOthers moves what belongs to groups beyond the bound to OtherGroup.
func (r *rollups) foldOthers(known func(groupName) bool) {
	for _, rows := range []map[bucket]*tally{r.hours, r.months} {
		for key, t := range rows {
			if key.group == metering.OtherGroup.ID || known(groupName{key.version, key.group}) {
				continue
			}
			delete(rows, key)
			key.group = metering.OtherGroup.ID
			if other, ok := rows[key]; ok {
				other.merge(t)
			} else {
				rows[key] = t
			}
		}
	}
}

func addTo(rows map[bucket]*tally, key bucket, value metering.Decimal, late bool) {
	t, ok := rows[key]
	if !ok {
		t = new(tally)
		rows[key] = t
	}
	t.add(value, late)
}

// zoneClock finds the local hour and month of an instant, remembering the last
// ones: events mostly come in order.
type zoneClock struct {
	zone        *time.Location
	hour, month metering.Range
}

func (c *zoneClock) buckets(t time.Time) (hour, month time.Time) {
	if !c.hour.Contains(t) {
		c.hour = metering.WindowOf(t, metering.Hour, c.zone)
	}
	if !c.month.Contains(t) {
		c.month = metering.WindowOf(t, metering.Month, c.zone)
	}
	return c.hour.Start, c.month.Start
}

var (
	addHours  = addTallies("usage_hourly", "hour")
	addMonths = addTallies("usage_monthly", "month")
)

// queue puts the additions into a batch, in the one order that every
// transaction uses, so that two of them never wait for each other in a circle.
func (r *rollups) queue(batch *pgx.Batch, tenant metering.TenantID) {
	if len(r.hours) == 0 {
		return
	}
	batch.Queue(addHours, rollupArrays(tenant, r.hours)...)
	batch.Queue(addMonths, rollupArrays(tenant, r.months)...)
}

// write adds everything in the transaction.
func (r *rollups) write(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	var batch pgx.Batch
	r.queue(&batch, tenant)
	return tx.SendBatch(ctx, &batch).Close()
}

func rollupArrays(tenant metering.TenantID, rows map[bucket]*tally) []any {
	keys := make([]bucket, 0, len(rows))
	for key := range rows {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, inLockOrder)
	n := len(keys)
	customers, versions, groups, starts := make([]int64, n), make([]int64, n), make([][16]byte, n), make([]time.Time, n)
	tallies := make([]*tally, n)
	for i, key := range keys {
		customers[i], versions[i], groups[i], starts[i] = int64(key.customer), int64(key.version), key.group, key.start
		tallies[i] = rows[key]
	}
	return append([]any{tenant, customers, versions, groups, starts}, tallyArrays(tallies)...)
}

// inLockOrder puts the tenant's own rows, which every transaction wants, last:
// they are locked for the shortest time.
func inLockOrder(a, b bucket) int {
	whole := func(k bucket) int {
		if k.customer == metering.WholeTenant {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(whole(a), whole(b)),
		a.start.Compare(b.start),
		cmp.Compare(a.customer, b.customer),
		cmp.Compare(a.version, b.version),
		bytes.Compare(a.group[:], b.group[:]),
	)
}

// What is counted in one group is counted in another instead, by hour and by month, as SQL.
const (
	regroupHours  = `update usage_hourly ` + setGroup
	regroupMonths = `update usage_monthly ` + setGroup
	setGroup      = `set group_id = @next where tenant_id = @tenant and meter_version_id = @version and group_id = @former`
)
