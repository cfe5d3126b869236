package usage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// rollups collects the usage that a set of events adds to the hourly and monthly rollups. Ingest and backfills
// both use it, so that they count in the same way.
type rollups struct {
	hours    map[bucket]*Tally
	groups   groupsMet
	versions map[metering.MeterVersionID]metering.MeterVersion
	held     int // size of hours and groups in bytes
	room     *rollupRoom
	zones    map[string]*zoneClock
	recent   map[metering.MeterVersionID]lastMeasured
}

// Bounds of the bytes that rollups hold before they are written.
const (
	heldAtOnce = 4 << 20 // by one transaction
	heldByAll  = 8 << 20 // by all transactions of a process; one tenant alone may hold half
)

// Bytes of an entry in the maps of rollups, including map overhead, without the properties of a group.
const (
	bucketBytes = 320
	groupBytes  = 96
)

// rollupMemory bounds the bytes of rollups that the transactions of a process hold.
type rollupMemory struct {
	shares *fair.Shares[metering.TenantID] // of all transactions together
	most   int                             // of one transaction
}

func newRollupMemory() *rollupMemory {
	return &rollupMemory{shares: fair.NewShares[metering.TenantID](heldByAll), most: heldAtOnce}
}

// roomFor returns the memory budget for the rollups of one transaction.
func (m *rollupMemory) roomFor(tenant metering.TenantID) *rollupRoom {
	return &rollupRoom{memory: m, tenant: tenant}
}

// LimitRollups sets the bytes of rollups that a transaction may hold before it writes them. Call it before the
// stores are used.
func (s Stores) LimitRollups(bytes int) { s.Backfills.memory.most = bytes }

// rollupRoom is the memory budget of one transaction's rollups.
type rollupRoom struct {
	memory *rollupMemory
	tenant metering.TenantID
	taken  int
}

// fits reserves memory until the total is bytes, and returns true. If the total reaches the bound of a
// transaction or exceeds the tenant's share, it reserves no more memory and returns false.
func (r *rollupRoom) fits(bytes int) bool {
	if bytes >= r.memory.most || !r.memory.shares.Take(r.tenant, int64(bytes-r.taken)) {
		return false
	}
	r.taken = bytes
	return true
}

// give releases the reserved memory.
func (r *rollupRoom) give() {
	r.memory.shares.Give(r.tenant, int64(r.taken))
	r.taken = 0
}

// isFull reserves memory for the collected usage. It returns true if not enough memory is left. The caller then
// writes the rollups.
func (r *rollups) isFull() bool { return !r.room.fits(r.held) }

// lastMeasured is the last measurement by a meter version, with the properties of the measured event.
type lastMeasured struct {
	properties json.RawMessage
	erased     bool
	metering.Measurement
}

// bucket is the key of an hourly row. With month instead of hour, it is the key of a monthly row.
type bucket struct {
	customer metering.CustomerID
	version  metering.MeterVersionID
	group    metering.GroupID
	hour     time.Time
	month    time.Time // the month that contains the hour
}

func newRollups(room *rollupRoom) *rollups {
	return &rollups{
		room:  room,
		hours: make(map[bucket]*Tally), groups: make(groupsMet), versions: make(map[metering.MeterVersionID]metering.MeterVersion),
		zones: make(map[string]*zoneClock), recent: make(map[metering.MeterVersionID]lastMeasured),
	}
}

// add measures an event, and counts it if the verdict is metering.Counted. If late is true, the event counts as late
// usage.
func (r *rollups) add(g metering.MeterVersion, e *metering.Event, late bool) (metering.Measurement, error) {
	m, err := r.measure(g, e)
	if err != nil || m.Verdict != metering.Counted {
		return m, err
	}
	r.meet(g, m.Group, e.Properties)
	clock, ok := r.zones[g.Timezone]
	if !ok {
		clock = &zoneClock{zone: metering.Location(g.Timezone)}
		r.zones[g.Timezone] = clock
	}
	hour, month := clock.buckets(e.At)
	of := bucket{e.CustomerID, g.ID, m.Group.ID, hour, month}
	t, ok := r.hours[of]
	if !ok {
		t = new(Tally)
		r.hours[of] = t
		r.held += bucketBytes
	}
	t.add(m.Value, late)
	return m, nil
}

// meet adds a group to the groups that settle registers.
func (r *rollups) meet(g metering.MeterVersion, group metering.Group, properties json.RawMessage) {
	name := groupName{g.ID, group.ID}
	if _, met := r.groups[name]; met {
		return
	}
	if len(g.GroupBy) == 0 {
		properties = nil
	}
	r.groups[name], r.versions[g.ID] = properties, g
	r.held += groupBytes + len(properties)
}

// measure returns the measurement of an event. For a version that groups events, it reuses the last measurement
// if the properties are equal, because successive events often have the same properties.
func (r *rollups) measure(g metering.MeterVersion, e *metering.Event) (metering.Measurement, error) {
	if len(g.GroupBy) == 0 {
		return g.Measure(e)
	}
	if last, known := r.recent[g.ID]; known && last.erased == e.Erased && bytes.Equal(last.properties, e.Properties) {
		if g.ValueProperty == "" {
			last.Value = e.Value
		}
		return last.Measurement, nil
	}
	m, err := g.Measure(e)
	if err != nil {
		return m, fmt.Errorf("measure event: %w", err)
	}
	r.recent[g.ID] = lastMeasured{e.Properties, e.Erased, m}
	return m, nil
}

// settle registers the groups that are not known yet, and returns the registered groups. It moves the
// usage of groups that cannot be registered to OtherGroup. These groups remain in r.groups.
func (r *rollups) settle(ctx context.Context, q pg.Querier, tenant metering.TenantID, known func(groupName) bool) (map[groupName]bool, error) {
	maps.DeleteFunc(r.groups, func(name groupName, _ json.RawMessage) bool { return known(name) })
	registered, err := registerGroups(ctx, q, tenant, r.versions, r.groups)
	if err != nil {
		return nil, fmt.Errorf("register groups: %w", err)
	}
	maps.DeleteFunc(r.groups, func(name groupName, _ json.RawMessage) bool {
		return registered[name] || name.group == metering.OtherGroup.ID
	})
	for of, t := range r.hours {
		if _, beyond := r.groups[groupName{of.version, of.group}]; !beyond {
			continue
		}
		delete(r.hours, of)
		of.group = metering.OtherGroup.ID
		if other, ok := r.hours[of]; ok {
			other.merge(t)
		} else {
			r.hours[of] = t
		}
	}
	return registered, nil
}

// zoneClock computes the local hour and month of an instant. It caches the last hour and month, because events
// mostly arrive in order.
type zoneClock struct {
	zone        *time.Location
	hour, month metering.Range
}

// buckets returns the starts of the local hour and month that contain an instant.
func (c *zoneClock) buckets(t time.Time) (hour, month time.Time) {
	if !c.hour.Contains(t) {
		c.hour = metering.WindowOf(t, metering.Hour, c.zone)
	}
	if !c.month.Contains(t) {
		c.month = metering.WindowOf(t, metering.Month, c.zone)
	}
	return c.hour.Start, c.month.Start
}

// addedAtOnce is the maximum number of tallies in a row of usage_added.
const addedAtOnce = 1000

// queue adds statements to a batch that store the collected usage in usage_added. The statements only insert
// rows, so that no transaction waits for another.
func (r *rollups) queue(batch *pgx.Batch, tenant metering.TenantID) {
	for some := range slices.Chunk(slices.SortedFunc(maps.Keys(r.hours), inOrder), addedAtOnce) {
		batch.Queue(addUsage, r.arrays(tenant, some)...)
	}
}

// write stores the collected usage in the transaction, and releases the memory.
func (r *rollups) write(ctx context.Context, q pg.Batcher, tenant metering.TenantID) error {
	var batch pgx.Batch
	r.queue(&batch, tenant)
	r.hours, r.groups, r.held = make(map[bucket]*Tally), make(groupsMet), 0
	r.room.give()
	return q.SendBatch(ctx, &batch).Close()
}

// arrays returns the arguments of addUsage for some buckets.
func (r *rollups) arrays(tenant metering.TenantID, buckets []bucket) []any {
	n := len(buckets)
	customers, versions, groups := make([]int64, n), make([]int64, n), make([][16]byte, n)
	hours, months, tallies := make([]time.Time, n), make([]time.Time, n), make([]*Tally, n)
	for i, of := range buckets {
		customers[i], versions[i], groups[i] = int64(of.customer), int64(of.version), of.group
		hours[i], months[i], tallies[i] = of.hour, of.month, r.hours[of]
	}
	return append([]any{tenant, customers, versions, groups, hours, months}, tallyArrays(tallies)...)
}

// inOrder orders buckets so that equal column values are adjacent, because arrays of them compress better.
func inOrder(a, b bucket) int {
	return cmp.Or(
		cmp.Compare(a.version, b.version),
		a.hour.Compare(b.hour),
		cmp.Compare(a.customer, b.customer),
		bytes.Compare(a.group[:], b.group[:]),
	)
}

// addUsage is the SQL that inserts a row of usage_added. Its arguments are a tenant, the columns of the buckets as five
// arrays, and the arrays that tallyArrays returns.
const addUsage = `
	insert into usage_added (tenant_id, customer_ids, meter_version_ids, group_ids, hours, months, ` + tallyArrayColumns + `)
	values ($1, $2, $3, $4, $5, $6, $7::text[]::numeric[], $8, $9::text[]::numeric[], $10)`

// SQL that adds the usage of group @from of meter version @version to group @next.
var (
	RegroupHours  = moveGroup("usage_hourly", "hour")
	RegroupMonths = moveGroup("usage_monthly", "month")
)

// moveGroup returns SQL that moves rows of a rollup to another group. The SQL adds to existing rows, because the
// other group can have usage in the same hours or months. Such usage is from a customer with the same group
// values that was erased earlier.
func moveGroup(rollup, start string) string {
	return `
		with moved as (
		  delete from ` + rollup + `
		  where tenant_id = @tenant and meter_version_id = @version and group_id = @from
		  returning tenant_id, customer_id, meter_version_id, @next::uuid as group_id, ` + start + `, ` + tallyColumns + `)` +
		addTallies(rollup, start, "moved")
}

// DeleteRollups deletes the rollup rows of some customers for a meter version.
func DeleteRollups(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, version metering.MeterVersionID, customers []metering.CustomerID) error {
	if err := pg.AllowLongStatements(ctx, tx); err != nil {
		return err
	}
	for _, table := range []string{"usage_hourly", "usage_monthly"} {
		_, err := tx.Exec(ctx, `delete from `+table+` where tenant_id = $1 and customer_id = any($2) and meter_version_id = $3`, tenant, customers, version)
		if err != nil {
			return err
		}
	}
	return nil
}
