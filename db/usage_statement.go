package db

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// usageStatement reads ranges from the cheapest exact places, all of them in
// one statement: of each place, the parts of the ranges that are read there.
// Nothing else reads the rollups, so that their shape can change.
type usageStatement struct {
	args   pgx.NamedArgs
	all    bool               // each customer's usage, and the whole tenant's
	some   bool               // each customer's usage, in that customer's ranges
	whole  bool               // the whole tenant's
	zones  map[string][]int64 // the meter versions of each timezone
	places [4]rangeParts

	selecting map[int64]metering.MeterVersion // the versions that do not count each event with its value, and those that are read by group
	grouped   bool                            // rows of events have their groups

	customers []int64 // whose the parts are that are being added
}

// rangeParts are parts of ranges, in columns.
type rangeParts struct {
	numbers     []int32
	from, until []time.Time
	versions    [][]int64 // the meter versions that are read there
	customers   [][]int64 // whose the part is; of a statement of some customers
}

// place is where usage is read.
type place int

const (
	monthly place = iota
	hourly
	raw      // the events themselves, of versions that count each one with its value
	measured // the events themselves, which MeterVersion.Measure measures
)

// rollup is the table of a place, and the column that says where a row starts.
func (p place) rollup() (table, start string) {
	if p == monthly {
		return "usage_monthly", "u.month"
	}
	return "usage_hourly", "u.hour"
}

// unfolded is what is not in the rollups yet, and unfoldedTransactions has a row for
// each that has added to it.
const (
	unfolded             = "usage_unfolded"
	unfoldedTransactions = "usage_added"
)

// newUsageStatement reads usage of one customer, or of the whole tenant.
func newUsageStatement(tenant metering.TenantID, customer metering.CustomerID, meters []metering.Meter) *usageStatement {
	s := &usageStatement{
		args:  pgx.NamedArgs{"tenant": tenant, "customer": customer},
		whole: customer == metering.WholeTenant, zones: make(map[string][]int64), selecting: make(map[int64]metering.MeterVersion),
	}
	for _, m := range meters {
		if m.Version.Selects() {
			s.selecting[int64(m.Version.ID)] = m.Version
		}
		s.zones[m.Version.Timezone] = append(s.zones[m.Version.Timezone], int64(m.Version.ID))
	}
	return s
}

// newUsageStatementOfAll reads usage customer by customer, and the whole
// tenant's beside it.
func newUsageStatementOfAll(tenant metering.TenantID, meters []metering.Meter) *usageStatement {
	s := newUsageStatement(tenant, metering.WholeTenant, meters)
	s.all, s.whole = true, false
	return s
}

// newUsageStatementOfSome reads usage of customers that have ranges of their own.
func newUsageStatementOfSome(tenant metering.TenantID, meters []metering.Meter) *usageStatement {
	s := newUsageStatement(tenant, metering.WholeTenant, meters)
	s.some, s.whole = true, false
	return s
}

// addOf has a range of some customers read as well, to the microsecond.
func (s *usageStatement) addOf(no int, r metering.Range, customers []int64) {
	s.customers = customers
	s.add(no, r, false)
}

// add has a range read as well, to the microsecond: in hours alone, or in
// months where those will do.
func (s *usageStatement) add(no int, r metering.Range, byHour bool) {
	for zone, versions := range s.zones {
		s.addIn(zone, versions, no, r, byHour)
	}
}

// addMeter adds a range of customers and one meter, to the microsecond. With grouped, the rows have
// the group of each event. With byHour, it reads hours only, and no months.
func (s *usageStatement) addMeter(no int, r metering.Range, customers []int64, v metering.MeterVersion, grouped, byHour bool) {
	if grouped {
		s.grouped, s.selecting[int64(v.ID)] = true, v
	}
	s.customers = customers
	s.addIn(v.Timezone, []int64{int64(v.ID)}, no, r, byHour)
}

func (s *usageStatement) addIn(zone string, versions []int64, no int, r metering.Range, byHour bool) {
	s.addWholeIn(zone, versions, no, r, byHour)
	for _, edge := range metering.Split(r, metering.Location(zone)).Ragged {
		s.part(raw, no, edge, slices.DeleteFunc(slices.Clone(versions), s.selects))
		s.part(measured, no, edge, slices.DeleteFunc(slices.Clone(versions), func(id int64) bool { return !s.selects(id) }))
	}
}

// selects reports whether events of the version are measured.
func (s *usageStatement) selects(version int64) bool {
	_, selects := s.selecting[version]
	return selects
}

// addWhole is add of one range, without the hours that the range cuts.
func (s *usageStatement) addWhole(r metering.Range, byHour bool) {
	for zone, versions := range s.zones {
		s.addWholeIn(zone, versions, 0, r, byHour)
	}
}

func (s *usageStatement) addWholeIn(zone string, versions []int64, no int, r metering.Range, byHour bool) {
	span := metering.Split(r, metering.Location(zone))
	if byHour {
		s.part(hourly, no, wholeHours(span), versions)
		return
	}
	s.part(monthly, no, span.Months, versions)
	for _, hours := range span.Hours {
		s.part(hourly, no, hours, versions)
	}
}

// wholeHours joins the months and hours of a span, which follow one another.
func wholeHours(span metering.Span) metering.Range {
	var all metering.Range
	for _, r := range append(span.Hours, span.Months) {
		if r.Empty() {
			continue
		}
		if all.Empty() {
			all = r
			continue
		}
		if r.Start.Before(all.Start) {
			all.Start = r.Start
		}
		if r.End.After(all.End) {
			all.End = r.End
		}
	}
	return all
}

func (s *usageStatement) part(in place, no int, r metering.Range, versions []int64) {
	if r.Empty() || len(versions) == 0 {
		return
	}
	p := &s.places[in]
	p.numbers, p.from, p.until = append(p.numbers, int32(no)), append(p.from, r.Start), append(p.until, r.End)
	p.versions, p.customers = append(p.versions, versions), append(p.customers, s.customers)
}

// rows is what was counted in the ranges, as a table of SQL: no (of the range),
// customer_id, meter_version_id, group_id (null of raw events, whose group only
// Go knows), start and tallyColumns. However many ranges there are, its text is
// one of a few. It reads the events that have to be measured through q, which is the
// repeatable-read transaction of the statement.
func (s *usageStatement) rows(ctx context.Context, q querier) (string, error) {
	places := s.wholeParts()
	if len(s.places[raw].from) > 0 {
		places = append(places, s.events())
	}
	if len(s.places[measured].from) > 0 {
		tallies, err := s.measure(ctx, q)
		if err != nil {
			return "", err
		}
		sql, args := measuredRows("measured", tallies)
		maps.Copy(s.args, args)
		places = append(places, sql)
	}
	return s.table(places), nil
}

// rowsInOrder is rows of whole hours and months alone, each part read by itself
// in the order of its index: by group and start. So the first of many rows are
// found without reading all.
func (s *usageStatement) rowsInOrder() string {
	var parts []string
	for _, p := range []place{monthly, hourly} {
		rollup, start := p.rollup()
		for i, from := range s.places[p].from {
			name := fmt.Sprintf("part%d", len(parts))
			s.args[name+"_from"], s.args[name+"_until"], s.args[name+"_versions"] = from, s.places[p].until[i], s.places[p].versions[i]
			for _, table := range []string{rollup, unfolded} {
				parts = append(parts, fmt.Sprintf(`
					select %d, %s
					from %s u
					where %s
					  and u.meter_version_id = any(@%[5]s_versions::bigint[])
					  and %[6]s >= @%[5]s_from
					  and %[6]s < @%[5]s_until`, s.places[p].numbers[i], rollupColumns(start), table, s.ofCustomer("u")+s.transactions(table), name, start))
			}
		}
	}
	return s.table(parts)
}

// wholeRows is rows of whole hours and months alone.
func (s *usageStatement) wholeRows() string { return s.table(s.wholeParts()) }

func (s *usageStatement) wholeParts() (parts []string) {
	for _, p := range []place{monthly, hourly} {
		if len(s.places[p].from) > 0 {
			parts = append(parts, s.joined(p)...)
		}
	}
	return parts
}

// table returns parts as a table of SQL, which is empty if there are none.
func (s *usageStatement) table(parts []string) string {
	if len(parts) == 0 {
		parts = s.joined(monthly)
	}
	return "(" + strings.Join(parts, " union all ") +
		") counted (no, customer_id, meter_version_id, group_id, start, " + tallyColumns + ")"
}

func rollupColumns(start string) string {
	return "u.customer_id, u.meter_version_id, u.group_id, " + start + ", " + tallyColumns
}

// joined is a rollup's rows in its parts, and what is not in it yet. Each part of a
// rollup is looked up by itself ("offset 0" keeps it so): a join would read what lies
// between them as well, which is most of a long range.
func (s *usageStatement) joined(p place) []string {
	rollup, start := p.rollup()
	parts, bounds := s.unnest(p), s.bounds(p, start)
	inPart := `u.meter_version_id = any(x.versions) and ` + start + ` >= x.from_at and ` + start + ` < x.until_at`
	return []string{`
		select x.no, ` + rollupColumns(start) + `
		from ` + parts + `
		cross join lateral (
		  select * from ` + rollup + ` u
		  where ` + s.ofCustomer("u") + ` and ` + inPart + bounds + `
		  offset 0) u`, `
		select x.no, ` + rollupColumns(start) + `
		from ` + parts + `
		join ` + unfolded + ` u on ` + inPart + `
		where ` + s.ofCustomer("u") + s.transactions(unfolded) + bounds,
	}
}

// events are raw events where a range cuts an hour, by the same rule as ingest.
func (s *usageStatement) events() string {
	customer := "e.customer_id"
	switch {
	case s.all:
		customer = "unnest(array[e.customer_id, 0])"
	case s.whole:
		customer = "0"
	}
	return s.eventsIn(raw, `x.no, `+customer+`, g.id, null::uuid, x.from_at, `+eventTally)
}

// eventsIn selects columns of the events e in the parts x of a place and of the versions g that
// count their type. Like those of a rollup, each part is looked up separately.
func (s *usageStatement) eventsIn(p place, columns string) string {
	return `
		select ` + columns + `
		from ` + s.unnest(p) + `
		cross join lateral (
		  select * from events e
		  where ` + s.ofCustomer("e") + ` and e.ts >= x.from_at and e.ts < x.until_at` + s.bounds(p, "e.ts") + `
		  offset 0) e
		join meter_versions g on g.tenant_id = e.tenant_id and g.event_type = e.event_type and g.id = any(x.versions)
		  and (g.until_epoch is null or e.epoch < g.until_epoch)
		cross join lateral (select ` + isLate("g.meter_id") + ` as late) l`
}

// measuredKey identifies a tally of measured events.
type measuredKey struct {
	no       int32
	customer metering.CustomerID
	version  int64
	start    time.Time
	group    metering.GroupID // zero: it is not asked for
}

// measure streams the events of the place measured and returns their tallies.
func (s *usageStatement) measure(ctx context.Context, q querier) (map[measuredKey]*tally, error) {
	rows, err := q.Query(ctx, s.eventsIn(measured, `x.no, e.customer_id, g.id, x.from_at, e.value, e.properties, e.erased is not null, l.late`), s.args)
	if err != nil {
		return nil, fmt.Errorf("measure events: %w", err)
	}
	tallies := make(map[measuredKey]*tally)
	var (
		key  measuredKey
		sent metering.Event
		late bool
	)
	_, err = pgx.ForEachRow(rows, []any{&key.no, &key.customer, &key.version, &key.start, &sent.Value, &sent.Properties, &sent.Erased, &late}, func() error {
		e := sent
		m, err := s.selecting[key.version].Measure(&e)
		if err != nil || m.Verdict != metering.Counted {
			return err
		}
		for _, customer := range s.countedFor(key.customer) {
			of := key
			if s.grouped {
				of.group = m.Group.ID
			}
			if of.customer = customer; tallies[of] == nil {
				tallies[of] = new(tally)
			}
			tallies[of].add(m.Value, late)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("measure events: %w", err)
	}
	return tallies, nil
}

// countedFor returns the customers that a customer's events are shown for.
func (s *usageStatement) countedFor(customer metering.CustomerID) []metering.CustomerID {
	switch {
	case s.all:
		return []metering.CustomerID{customer, metering.WholeTenant}
	case s.whole:
		return []metering.CustomerID{metering.WholeTenant}
	}
	return []metering.CustomerID{customer}
}

// measuredRows returns tallies of measured events as a select with the columns of rows, and its
// arguments, which begin with a prefix.
func measuredRows(prefix string, of map[measuredKey]*tally) (sql string, args pgx.NamedArgs) {
	var numbers []int32
	var customers, versions []int64
	var starts []time.Time
	var groups []*[16]byte
	var tallies []*tally
	for key, t := range of {
		numbers, customers, versions = append(numbers, key.no), append(customers, int64(key.customer)), append(versions, key.version)
		starts, tallies = append(starts, key.start), append(tallies, t)
		if key.group == (metering.GroupID{}) {
			groups = append(groups, nil)
		} else {
			groups = append(groups, (*[16]byte)(&key.group))
		}
	}
	arrays := tallyArrays(tallies)
	args = pgx.NamedArgs{
		prefix + "_no": numbers, prefix + "_customers": customers, prefix + "_versions": versions, prefix + "_starts": starts, prefix + "_groups": groups,
		prefix + "_sums": arrays[0], prefix + "_counts": arrays[1], prefix + "_late_sums": arrays[2], prefix + "_late_counts": arrays[3],
	}
	return fmt.Sprintf(`
		select no, customer_id, version_id, group_id, start, sum, count, coalesce(late_sum, 0), coalesce(late_count, 0)
		from unnest(@%[1]s_no::int[], @%[1]s_customers::bigint[], @%[1]s_versions::bigint[], @%[1]s_groups::uuid[], @%[1]s_starts::timestamptz[],
		  @%[1]s_sums::text[]::numeric[], @%[1]s_counts::bigint[], @%[1]s_late_sums::text[]::numeric[], @%[1]s_late_counts::bigint[])
		  m (no, customer_id, version_id, group_id, start, sum, count, late_sum, late_count)`, prefix), args
}

// ofCustomer restricts rollups u or events e. Only rollups have rows of the
// whole tenant; its events are all.
func (s *usageStatement) ofCustomer(of string) string {
	if s.all || s.whole && of == "e" {
		return of + ".tenant_id = @tenant"
	}
	if s.some {
		return of + ".tenant_id = @tenant and " + of + ".customer_id = any(x.customers)"
	}
	return of + ".tenant_id = @tenant and " + of + ".customer_id = @customer"
}

// transactions leaves out what other customers' transactions have added, before it is
// taken apart: there may be thousands in the second before they are folded.
func (s *usageStatement) transactions(table string) string {
	switch {
	case table != unfolded || s.all || s.whole:
		return ""
	case s.some:
		return " and u.customer_ids && x.customers"
	default:
		return " and " + addedOf("u")
	}
}

// addedOf are the rows of usage_unfolded u that @customer's events have added, as SQL,
// in the words in which the database finds them soonest.
func addedOf(u string) string {
	return "@customer = any(" + u + ".customer_ids) and " + u + ".event_customer_id = @customer"
}

// unnest returns a place's parts as a table x. The arrays of a part are passed as texts, because SQL
// has no arrays of arrays that differ in length. "offset 0" parses each of them once, and not once
// for each row that is compared with it.
func (s *usageStatement) unnest(p place) string {
	parts, name := s.places[p], s.argument(p)
	s.args[name+"_no"], s.args[name+"_from"], s.args[name+"_until"], s.args[name+"_versions"] = parts.numbers, parts.from, parts.until, arrays(parts.versions)
	customers, column, parsed := "", "", ""
	if s.some {
		s.args[name+"_customers"] = arrays(parts.customers)
		customers, column, parsed = ", @"+name+"_customers::text[]", ", customers", ", customers::bigint[] as customers"
	}
	return fmt.Sprintf(`(
		  select no, from_at, until_at, versions::bigint[] as versions%[4]s
		  from unnest(@%[1]s_no::int[], @%[1]s_from::timestamptz[], @%[1]s_until::timestamptz[], @%[1]s_versions::text[]%[2]s) x (no, from_at, until_at, versions%[3]s)
		  offset 0) x`, name, customers, column, parsed)
}

// argument returns what the names of a place's arguments begin with. A statement of some
// customers has names of its own, so that it can be part of another statement.
func (s *usageStatement) argument(p place) string {
	if s.some {
		return fmt.Sprintf("some%d", p)
	}
	return fmt.Sprintf("place%d", p)
}

// arrays are arrays of SQL as texts.
func arrays(of [][]int64) []string {
	texts := make([]string, len(of))
	for i, numbers := range of {
		texts[i] = strings.NewReplacer("[", "{", "]", "}", " ", ",").Replace(fmt.Sprint(numbers))
	}
	return texts
}

// bounds are those of all of a place's parts: with them the database leaves
// out whole chunks.
func (s *usageStatement) bounds(p place, at string) string {
	var least, most time.Time
	if parts := s.places[p]; len(parts.from) > 0 {
		least, most = slices.MinFunc(parts.from, time.Time.Compare), slices.MaxFunc(parts.until, time.Time.Compare)
	}
	name := s.argument(p)
	s.args[name+"_least"], s.args[name+"_most"] = least, most
	return fmt.Sprintf(" and %s >= @%[2]s_least and %[1]s < @%[2]s_most", at, name)
}

// countedEvents is the number of a customer's events in the months that a
// range touches, and of the late ones of every month, as of the meter versions
// that billing uses, as SQL. Of those that are not folded yet it reads addedEvents,
// or what a statement has made of it.
func countedEvents(added, tenant, customer, start, end string) string {
	within := func(table string) string {
		return `(
	select coalesce(sum(case when u.month < ` + end + ` and u.month > ` + start + ` - interval '32 days'
	  then u.count + u.late_count else u.late_count end), 0)::bigint
	from ` + table + ` u
	where u.tenant_id = ` + tenant + `
	  and u.customer_id = ` + customer + `
	  and u.meter_version_id in (select m.meter_version_id from meters m where m.tenant_id = ` + tenant + `))`
	}
	return `(` + within("usage_monthly") + ` + case when ` + customer + ` in (select customer_id from ` + added + ` a) then ` + within(added) + ` else 0 end)`
}

// addedEvents are the tenant's events that are not folded yet, and addedEventsOf
// those of @customer, as SQL.
var (
	addedEvents   = selectAdded("")
	addedEventsOf = selectAdded(" and u.customer_id = @customer and " + addedOf("u"))
)

func selectAdded(of string) string {
	return `(
	select tenant_id, customer_id, meter_version_id, month, sum(count) as count, sum(late_count) as late_count
	from usage_unfolded u
	where tenant_id = @tenant` + of + `
	group by 1, 2, 3, 4)`
}

// groupsUsed are the meter versions and groups that customer $2 has usage in.
// groupUsedByOthers reports whether another customer has usage in group g, and groupUsedByAny
// whether any customer has, as SQL. All of the tenant's usage is folded.
const (
	groupsUsed        = `select u.meter_version_id, u.group_id from usage_monthly u where u.tenant_id = $1 and u.customer_id = $2`
	groupUsedByOthers = `exists (
		  select
		  from usage_monthly o
		  where o.tenant_id = $1
		    and o.customer_id not in (0, $2)
		    and o.meter_version_id = g.meter_version_id
		    and o.group_id = g.group_id)`
	groupUsedByAny = `exists (
		  select
		  from usage_monthly o
		  where o.tenant_id = g.tenant_id
		    and o.customer_id = 0 -- the whole tenant
		    and o.meter_version_id = g.meter_version_id
		    and o.group_id = g.group_id)`
)

// selectLateMonths reads the months in which anything of a customer's came for
// a closed period.
var selectLateMonths = `
	select distinct u.month
	from (
	  select tenant_id, meter_version_id, month
	  from usage_monthly
	  where tenant_id = @tenant
	    and customer_id = @customer
	    and late_count > 0
	  union all
	  select tenant_id, meter_version_id, month
	  from usage_unfolded a
	  where tenant_id = @tenant
	    and customer_id = @customer
	    and ` + addedOf("a") + `
	    and late_count > 0) u
	join meters m on m.tenant_id = u.tenant_id and m.meter_version_id = u.meter_version_id`

// dailyCount reads what the database itself has counted of each event type on
// a day of UTC that begins @from: not a rollup, but what those are compared with.
const dailyCount = `select customer_id, event_type, sum, count from usage_daily where tenant_id = @tenant and day = @from`
