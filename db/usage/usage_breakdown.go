package usage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// BreakdownQuery selects the usage of one meter by all customers. Late usage is included.
type BreakdownQuery struct {
	Meter       metering.Meter
	Range       metering.Range
	Granularity metering.Granularity // empty for one window, the range
	Zone        *time.Location       // time zone of the windows; nil for the meter's
	ByCustomer  bool
	ByPlan      bool
	Properties  []string                     // properties of the meter's group_by that separate rows
	Groups      map[string][]json.RawMessage // as in WindowQuery
	Timezone    *time.Location               // the tenant's time zone, for billing periods that are not stored: these are calendar months
	ByValue     bool                         // order by value, highest first; otherwise order by customer, plan, group and window
	After       *BreakdownPlace
	Limit       int
	Bounds      BreakdownBounds
}

// BreakdownBounds bound the work of a breakdown. Zero values take the defaults.
type BreakdownBounds struct {
	Sums    int           // maximum number of sums of raw events in partial hours of the range; default mostEdges
	Batches time.Duration // maximum time for all batches of customers together; default longestBatches
}

// BreakdownPlace is the position of a row in the order of a breakdown.
type BreakdownPlace struct {
	Value    metering.Decimal
	Customer metering.CustomerID
	Plan     metering.PlanID
	Group    metering.GroupID
	Start    time.Time
}

// BreakdownRow is the usage of one combination of customer, plan, group and window.
type BreakdownRow struct {
	BreakdownPlace
	ExternalID string          // external id of the customer; empty unless by customer
	PlanSlug   string          // empty for usage without a plan
	GroupKey   json.RawMessage // key of the query's properties
}

// Breakdown is a page of rows, and the total of all rows.
type Breakdown struct {
	pg.Page[BreakdownRow]
	Total metering.Decimal
	FilterGaps
}

// Breakdown returns a page of rows and their total, from one snapshot.
func (u Usage) Breakdown(ctx context.Context, tenant metering.TenantID, query BreakdownQuery) (b Breakdown, err error) {
	read, err := newBreakdownRead(tenant, query)
	if err != nil {
		return Breakdown{}, err
	}
	err = u.consistent(ctx, func(q pg.Querier) error {
		read.events.Querier = q
		b, err = read.page(ctx)
		return err
	})
	if TooMuch(ctx, err) {
		return Breakdown{}, errLongRead.Because(err)
	}
	if err != nil {
		return Breakdown{}, fmt.Errorf("read breakdown: %w", err)
	}
	return b, u.requireWhole(ctx, read.Range, read.Meter.Version.Timezone)
}

// breakdownRead reads the result of one BreakdownQuery.
type breakdownRead struct {
	BreakdownQuery
	events  *WindowRead // reads the groups and the raw events of partial hours
	windows []time.Time // starts of the windows; nil if the range is one window
	plans   []plannedSpan
	cut     []int64 // customers with a plan that begins in the middle of a month; their usage is read from hourly rollups
}

func newBreakdownRead(tenant metering.TenantID, query BreakdownQuery) (*breakdownRead, error) {
	if query.Properties == nil {
		query.Properties = []string{}
	}
	if query.Granularity == "" {
		query.Zone = nil // the only window is the range
	}
	events, err := NewWindowRead(tenant, WindowQuery{
		Customer: metering.WholeTenant, Meter: query.Meter, Range: query.Range, Granularity: query.Granularity, Zone: query.Zone, GroupBy: query.Properties, Groups: query.Groups,
	})
	if err != nil {
		return nil, err
	}
	events.byCustomer = query.ByCustomer || query.ByPlan
	events.most = cmp.Or(query.Bounds.Sums, mostEdges)
	query.Bounds.Batches = cmp.Or(query.Bounds.Batches, longestBatches)
	r := &breakdownRead{BreakdownQuery: query, events: events}
	if query.Granularity == "" {
		return r, nil
	}
	r.windows, err = events.windowStarts()
	return r, err
}

// page reads the page, the total and the gaps of the filter.
func (r *breakdownRead) page(ctx context.Context) (b Breakdown, err error) {
	r.Limit = min(r.Limit, pg.PageBytes/pg.RowBytes)
	if r.byGroup() || len(r.events.ragged) > 0 {
		if err := r.events.LoadGroups(ctx); err != nil {
			return b, fmt.Errorf("groups: %w", err)
		}
	}
	if err := r.events.LoadEdges(ctx); err != nil {
		return b, fmt.Errorf("edges: %w", err)
	}
	if b.Total, err = r.total(ctx); err != nil {
		return b, fmt.Errorf("total: %w", err)
	}
	rows, err := r.rows(ctx)
	if err != nil {
		return b, err
	}
	if err := r.addKeys(ctx, rows); err != nil {
		return b, fmt.Errorf("group keys: %w", err)
	}
	if b.FilterGaps, err = r.events.filterGaps(ctx); err != nil {
		return b, fmt.Errorf("read the other groups: %w", err)
	}
	b.Page = pg.NewPage(ctx, rows, r.Limit, func(row BreakdownRow) int { return len(row.ExternalID) + len(row.PlanSlug) + len(row.GroupKey) })
	return b, nil
}

// byGroup reports whether the query filters or separates rows by group.
func (r *breakdownRead) byGroup() bool { return len(r.Properties) > 0 || len(r.Groups) > 0 }

// byHour reports whether the windows need hourly rollups, because monthly rollups span several windows or lie in
// another time zone.
func (r *breakdownRead) byHour() bool {
	return r.Granularity != "" && (r.Granularity != metering.Month || !r.events.hasOwnWindows())
}

// total returns the usage of the whole range in the requested groups.
func (r *breakdownRead) total(ctx context.Context) (metering.Decimal, error) {
	if len(r.Groups) > 0 {
		_, total, err := r.events.totals(ctx)
		return total, err
	}
	statement := newUsageStatement(r.events.tenant, metering.WholeTenant, []metering.Meter{r.Meter})
	statement.addWhole(r.Range, false)
	rows, err := r.events.Querier.Query(ctx, `select `+MergedTally+` from `+statement.wholeRows()+` having count(*) > 0`, statement.Args)
	if err != nil {
		return metering.Decimal{}, err
	}
	var whole, t Tally
	if _, err := pgx.ForEachRow(rows, t.Fields(), func() error { whole.merge(&t); return nil }); err != nil {
		return metering.Decimal{}, err
	}
	for _, edge := range r.events.edges {
		whole.merge(&edge.Tally)
	}
	return whole.Total(r.Meter.Version.Aggregation), nil
}

// rows returns the rows of the page and, if there is a next page, one more.
func (r *breakdownRead) rows(ctx context.Context) ([]BreakdownRow, error) {
	switch {
	case !r.ByCustomer && !r.ByPlan:
		return r.read(ctx, r.tenantUsageSQL())
	case r.ByValue || !r.ByCustomer:
		if err := r.loadPlans(ctx, nil); err != nil {
			return nil, fmt.Errorf("plans: %w", err)
		}
		return r.read(ctx, r.customersUsageSQL())
	}
	return r.customerByCustomer(ctx)
}

// Sizes of batches of customers: the first batch, and the largest batch. Each batch is four times as large as the
// previous batch.
const (
	firstCustomers = 16
	mostCustomers  = 4096
)

// Bounds on the time of reading batches of customers. All batches are read from one snapshot, which delays the
// maintenance of the database. Each statement also has its own timeout.
const (
	longestBatches   = time.Minute
	longestWithTurns = 2 * time.Minute // including the time in which other requests read
)

// customerByCustomer reads batches of customers until the page is full. Before each batch except the first, it
// lets other requests read.
func (r *breakdownRead) customerByCustomer(ctx context.Context) (all []BreakdownRow, err error) {
	var from metering.CustomerID
	if r.After != nil {
		from = r.After.Customer
	}
	turns, cancel := context.WithTimeout(ctx, longestWithTurns)
	defer cancel()
	var spent time.Duration
	for most := firstCustomers; len(all) <= r.Limit; most = min(4*most, mostCustomers) {
		if most > firstCustomers {
			if err := pg.Yield(turns); err != nil {
				return nil, err
			}
		}
		if spent > r.Bounds.Batches {
			return nil, errLongRead
		}
		began := time.Now()
		customers, some, err := r.batch(ctx, from, most)
		if err != nil || len(customers) == 0 {
			return all, err
		}
		all, from = append(all, some...), metering.CustomerID(customers[len(customers)-1]+1)
		spent += time.Since(began)
	}
	return all, nil
}

// batch returns the next customers in order of ID, at most limit, and their rows. It begins with the given ID.
func (r *breakdownRead) batch(ctx context.Context, from metering.CustomerID, limit int) (customers []int64, all []BreakdownRow, err error) {
	if customers, err = catalog.CustomerIDs[int64](ctx, r.events.Querier, r.events.tenant, from-1, limit); err != nil || len(customers) == 0 {
		return nil, nil, err
	}
	if err := r.loadPlans(ctx, customers); err != nil {
		return nil, nil, fmt.Errorf("plans: %w", err)
	}
	all, err = r.read(ctx, r.someCustomersUsageSQL(customers))
	return customers, all, err
}

// read returns up to Limit+1 rows after the position After, in the order of the query.
func (r *breakdownRead) read(ctx context.Context, counted usageSQL) ([]BreakdownRow, error) {
	args := counted.args
	rows, err := r.events.Querier.Query(ctx, `
		with shown as (
		  select `+r.columns(counted)+`, `+mergedTotal(r.Meter.Version.Aggregation)+` as value
		  from (`+r.asShown(counted)+`) u
		  `+r.planned(counted)+`
		  `+r.grouping()+`
		  having count(*) > 0)
		select s.value, s.customer_id, s.plan_id, s.group_id, s.start, coalesce(c.external_id, ''), coalesce(p.slug, '')
		from (select * from shown where `+r.afterPlace(args)+` order by `+r.order()+` limit @most) s
		left join customers c on c.tenant_id = @tenant and c.id = s.customer_id
		left join plans p on p.tenant_id = @tenant and p.id = s.plan_id
		order by `+r.order(), args)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (b BreakdownRow, err error) {
		err = row.Scan(&b.Value, &b.Customer, &b.Plan, (*[16]byte)(&b.Group), &b.Start, &b.ExternalID, &b.PlanSlug)
		return b, err
	})
}

// columns returns the SQL of the columns in breakdownKey. A column is constant if the query does not separate rows
// by it.
func (r *breakdownRead) columns(counted usageSQL) string {
	args := counted.args
	args["range_start"], args["no_group"] = r.Range.Start, [16]byte(metering.NoGroup.ID)
	column := func(varies bool, name, constant string) string {
		if varies {
			return name
		}
		return constant
	}
	return column(r.ByCustomer, "u.customer_id", "0::bigint") + ` as customer_id, ` +
		column(r.ByPlan, "coalesce(a.plan_id, 0)", "0::bigint") + ` as plan_id, ` +
		column(len(r.Properties) > 0, "u.group_id", "@no_group::uuid") + ` as group_id, ` +
		column(r.Granularity != "", r.window(args), "@range_start::timestamptz") + ` as start`
}

// grouping returns the "group by" clause with the columns that separate rows.
func (r *breakdownRead) grouping() string {
	var places []string
	for i, varies := range []bool{r.ByCustomer, r.ByPlan, len(r.Properties) > 0, r.Granularity != ""} {
		if varies {
			places = append(places, fmt.Sprint(i+1))
		}
	}
	if len(places) == 0 {
		return ""
	}
	return "group by " + strings.Join(places, ", ")
}

// asShown returns the SQL of the rows of counted, and of the raw events of partial hours. Each row has the group
// under which the result shows it.
func (r *breakdownRead) asShown(counted usageSQL) string {
	args := counted.args
	group, join := "@no_group::uuid", ""
	if r.byGroup() {
		group, join = "shown_in", " join unnest(@counted_in::uuid[], @shown_in::uuid[]) as g (counted_in, shown_in) on counted_in = group_id"
		args["counted_in"], args["shown_in"] = r.events.shownGroups()
	}
	shown := `select customer_id, ` + group + ` as group_id, start, start as hour, ` + tallyColumns + ` from ` + counted.table + join
	if len(r.events.edges) == 0 {
		return shown
	}
	ids, groups, starts, hours, tallies := []int64{}, [][16]byte{}, []time.Time{}, []time.Time{}, []*Tally{}
	for _, edge := range r.events.edges {
		if !counted.has(edge.customer) {
			continue
		}
		ids, groups, tallies = append(ids, int64(edge.customer)), append(groups, edge.group), append(tallies, edge.All())
		starts, hours = append(starts, edge.start), append(hours, metering.WindowOf(edge.start, metering.Hour, r.events.hours).Start)
	}
	args["edge_customers"], args["edge_groups"], args["edge_starts"], args["edge_hours"] = ids, groups, starts, hours
	arrays := tallyArrays(tallies)
	args["edge_sums"], args["edge_counts"] = arrays[0], arrays[1]
	return shown + ` union all
		select *, 0, 0
		from unnest(@edge_customers::bigint[], @edge_groups::uuid[], @edge_starts::timestamptz[], @edge_hours::timestamptz[], @edge_sums::text[]::numeric[], @edge_counts::bigint[])`
}

// window returns the SQL of the start of the window that contains a row u.
func (r *breakdownRead) window(args pgx.NamedArgs) string {
	if r.Granularity == metering.Hour && r.events.hasOwnWindows() {
		return "u.start"
	}
	args["windows"] = r.windows
	return "(@windows::timestamptz[])[width_bucket(u.start, @windows::timestamptz[])]"
}

const breakdownKey = `customer_id, plan_id, group_id, start`

// order returns the SQL of the order of the rows.
func (r *breakdownRead) order() string {
	if r.ByValue {
		return "value desc, " + breakdownKey
	}
	return breakdownKey
}

// afterPlace returns the SQL condition for the rows after the position After.
func (r *breakdownRead) afterPlace(args pgx.NamedArgs) string {
	args["most"] = r.Limit + 1
	if r.After == nil {
		return "true"
	}
	args["after_customer"], args["after_plan"], args["after_group"], args["after_start"] = r.After.Customer, r.After.Plan, [16]byte(r.After.Group), r.After.Start
	place := `(` + breakdownKey + `) > (@after_customer::bigint, @after_plan::bigint, @after_group::uuid, @after_start::timestamptz)`
	if !r.ByValue {
		return place
	}
	args["after_value"] = r.After.Value.String()
	return `(value < @after_value::text::numeric or value = @after_value::text::numeric and ` + place + `)`
}

// addKeys sets the group keys of rows.
func (r *breakdownRead) addKeys(ctx context.Context, rows []BreakdownRow) error {
	if len(r.Properties) == 0 {
		return nil
	}
	var examples [][16]byte
	for _, row := range rows {
		examples = append(examples, r.events.examples[row.Group])
	}
	slices.SortFunc(examples, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	found, err := r.events.Querier.Query(ctx, `
		select group_id, group_key
		from usage_groups
		where tenant_id = $1
		  and meter_version_id = $2
		  and group_id = any($3)`, r.events.tenant, r.Meter.Version.ID, slices.Compact(examples))
	if err != nil {
		return err
	}
	keys := make(map[metering.GroupID]json.RawMessage)
	var group metering.Group
	_, err = pgx.ForEachRow(found, []any{(*[16]byte)(&group.ID), &group.Key}, func() error {
		shown, err := group.By(r.Properties)
		keys[shown.ID] = bytes.Clone(shown.Key)
		return err
	})
	for i := range rows {
		rows[i].GroupKey = keys[rows[i].Group]
	}
	return err
}
