package usage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// usageStatement reads usage of ranges in one SQL statement, from the cheapest sources that are exact. It
// splits each range into parts, one or more per source. No other code reads usage from the rollups, so that
// their schema can change. The SQL that other statements contain is in usage_sql.go.
type usageStatement struct {
	Args    pgx.NamedArgs
	all     bool               // read each customer's usage, and the whole tenant's
	some    bool               // read each customer's usage in the ranges of that customer
	whole   bool               // read the whole tenant's usage
	zones   map[string][]int64 // the meter versions of each time zone
	sources [4]rangeParts

	Selecting map[int64]metering.MeterVersion // the versions with filters or a value property, and the versions that are read by group
	grouped   bool                            // whether rows of measured events have their group

	Customers []int64 // the customers of parts that are added from now on
}

// rangeParts holds parts of ranges as columns: element i of each column belongs to part i.
type rangeParts struct {
	numbers     []int32
	from, until []time.Time
	versions    [][]int64 // the meter versions to read
	customers   [][]int64 // the customers to read, if usageStatement.some is set
}

// usageSource is where a statement reads usage from.
type usageSource int

const (
	monthly usageSource = iota
	hourly
	raw      // events of versions that count each event with its value
	Measured // events that MeterVersion.Measure has to measure
)

// rollup returns the rollup table of the monthly or hourly source, and the column with the start of a row's month or
// hour. The other sources have no rollup.
func (p usageSource) rollup() (table, start string) {
	if p == monthly {
		return "usage_monthly", "u.month"
	}
	return "usage_hourly", "u.hour"
}

// unfolded is the view of the usage that is not merged into the rollups yet. UnfoldedTransactions is the table of
// that usage. Each of its rows has up to addedAtOnce tallies of one transaction.
const (
	unfolded             = "usage_unfolded"
	UnfoldedTransactions = "usage_added"
)

// newUsageStatement returns a statement that reads usage of one customer, or of the whole tenant.
func newUsageStatement(tenant metering.TenantID, customer metering.CustomerID, meters []metering.Meter) *usageStatement {
	s := &usageStatement{
		Args:  pgx.NamedArgs{"tenant": tenant, "customer": customer},
		whole: customer == metering.WholeTenant, zones: make(map[string][]int64), Selecting: make(map[int64]metering.MeterVersion),
	}
	for _, m := range meters {
		if m.Version.Selects() {
			s.Selecting[int64(m.Version.ID)] = m.Version
		}
		s.zones[m.Version.Timezone] = append(s.zones[m.Version.Timezone], int64(m.Version.ID))
	}
	return s
}

// NewStatementOfAll returns a statement that reads the usage of each customer and of the whole tenant.
func NewStatementOfAll(tenant metering.TenantID, meters []metering.Meter) *usageStatement {
	s := newUsageStatement(tenant, metering.WholeTenant, meters)
	s.all, s.whole = true, false
	return s
}

// NewStatementOfSome returns a statement that reads the usage of some customers. Each range is added for certain
// customers.
func NewStatementOfSome(tenant metering.TenantID, meters []metering.Meter) *usageStatement {
	s := newUsageStatement(tenant, metering.WholeTenant, meters)
	s.some, s.whole = true, false
	return s
}

// AddOf adds a range for some customers. The range is exact to the microsecond.
func (s *usageStatement) AddOf(no int, r metering.Range, customers []int64) {
	s.Customers = customers
	s.Add(no, r, false)
}

// Add adds a range, which is exact to the microsecond. With byHour, the statement reads no monthly rollups.
func (s *usageStatement) Add(no int, r metering.Range, byHour bool) {
	for zone, versions := range s.zones {
		s.addIn(zone, versions, no, r, byHour)
	}
}

// AddMeter adds a range for some customers and one meter. The range is exact to the microsecond. With grouped, the
// rows of raw events have their group. With byHour, the statement reads no monthly rollups.
func (s *usageStatement) AddMeter(no int, r metering.Range, customers []int64, v metering.MeterVersion, grouped, byHour bool) {
	if grouped {
		s.grouped, s.Selecting[int64(v.ID)] = true, v
	}
	s.Customers = customers
	s.addIn(v.Timezone, []int64{int64(v.ID)}, no, r, byHour)
}

// addIn adds a range for meter versions of one time zone, with its partial hours.
func (s *usageStatement) addIn(zone string, versions []int64, no int, r metering.Range, byHour bool) {
	s.addWholeIn(zone, versions, no, r, byHour)
	for _, edge := range metering.Split(r, metering.Location(zone)).Ragged {
		s.Part(raw, no, edge, slices.DeleteFunc(slices.Clone(versions), s.selects))
		s.Part(Measured, no, edge, slices.DeleteFunc(slices.Clone(versions), func(id int64) bool { return !s.selects(id) }))
	}
}

// selects reports whether MeterVersion.Measure has to measure the events of the version.
func (s *usageStatement) selects(version int64) bool {
	_, selects := s.Selecting[version]
	return selects
}

// addWhole adds the whole hours and months of a range, without its partial hours. With byHour, the statement reads no
// monthly rollups.
func (s *usageStatement) addWhole(r metering.Range, byHour bool) {
	for zone, versions := range s.zones {
		s.addWholeIn(zone, versions, 0, r, byHour)
	}
}

// addWholeIn is addWhole for range no and meter versions of one time zone.
func (s *usageStatement) addWholeIn(zone string, versions []int64, no int, r metering.Range, byHour bool) {
	span := metering.Split(r, metering.Location(zone))
	if byHour {
		s.Part(hourly, no, wholeHours(span), versions)
		return
	}
	s.Part(monthly, no, span.Months, versions)
	for _, hours := range span.Hours {
		s.Part(hourly, no, hours, versions)
	}
}

// wholeHours joins the contiguous hours and months of a span into one range.
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

// Part adds a part of range no that is read from one source. It adds nothing if the part is empty.
func (s *usageStatement) Part(in usageSource, no int, r metering.Range, versions []int64) {
	if r.Empty() || len(versions) == 0 {
		return
	}
	p := &s.sources[in]
	p.numbers, p.from, p.until = append(p.numbers, int32(no)), append(p.from, r.Start), append(p.until, r.End)
	p.versions, p.customers = append(p.versions, versions), append(p.customers, s.Customers)
}

// Rows returns a SQL table expression with the usage of the ranges. Its columns are no (number of the range),
// customer_id, meter_version_id, group_id, start and tallyColumns. group_id is null for raw events that are not read by
// group, because only Go code computes the group of an event. The SQL has few variants, however many ranges there are.
// Rows reads the events in Measured through q. The caller executes the SQL in q too, which must be a repeatable-read
// transaction.
func (s *usageStatement) Rows(ctx context.Context, q pg.Querier) (string, error) {
	tables := s.wholeParts()
	if len(s.sources[raw].from) > 0 {
		tables = append(tables, s.events())
	}
	if len(s.sources[Measured].from) > 0 {
		tallies, err := s.Measure(ctx, q)
		if err != nil {
			return "", err
		}
		sql, args := MeasuredRows("measured", tallies)
		maps.Copy(s.Args, args)
		tables = append(tables, sql)
	}
	return s.Table(tables), nil
}

// rowsInOrder returns a SQL table expression with the same rows as wholeRows, for queries of the first rows by group
// and start. It reads each part separately, so that the database reads rows in the order of the index and stops early.
func (s *usageStatement) rowsInOrder() string {
	var parts []string
	for _, p := range []usageSource{monthly, hourly} {
		rollup, start := p.rollup()
		for i, from := range s.sources[p].from {
			name := fmt.Sprintf("part%d", len(parts))
			s.Args[name+"_from"], s.Args[name+"_until"], s.Args[name+"_versions"] = from, s.sources[p].until[i], s.sources[p].versions[i]
			for _, table := range []string{rollup, unfolded} {
				parts = append(parts, fmt.Sprintf(`
					select %d, %s
					from %s u
					where %s
					  and u.meter_version_id = any(@%[5]s_versions::bigint[])
					  and %[6]s >= @%[5]s_from
					  and %[6]s < @%[5]s_until`, s.sources[p].numbers[i], rollupColumns(start), table, s.customerCondition("u")+s.transactionCondition(table), name, start))
			}
		}
	}
	return s.Table(parts)
}

// wholeRows returns a SQL table expression with the usage of whole hours and months, without raw events.
func (s *usageStatement) wholeRows() string { return s.Table(s.wholeParts()) }

// wholeParts returns the SQL of the parts of wholeRows.
func (s *usageStatement) wholeParts() (parts []string) {
	for _, p := range []usageSource{monthly, hourly} {
		if len(s.sources[p].from) > 0 {
			parts = append(parts, s.joined(p)...)
		}
	}
	return parts
}

// Table returns a SQL table expression with the union of parts. The table is empty if there are no parts.
func (s *usageStatement) Table(parts []string) string {
	if len(parts) == 0 {
		parts = s.joined(monthly)
	}
	return "(" + strings.Join(parts, " union all ") +
		") counted (no, customer_id, meter_version_id, group_id, start, " + tallyColumns + ")"
}

func rollupColumns(start string) string {
	return "u.customer_id, u.meter_version_id, u.group_id, " + start + ", " + tallyColumns
}

// joined returns the SQL of a rollup's rows in its parts, and of the usage that is not merged into the
// rollup yet. "offset 0" makes the database read each part separately. A join would also read the rows
// between the parts, which are most of a long range.
func (s *usageStatement) joined(p usageSource) []string {
	rollup, start := p.rollup()
	parts, bounds := s.unnest(p), s.bounds(p, start)
	inPart := `u.meter_version_id = any(x.versions) and ` + start + ` >= x.from_at and ` + start + ` < x.until_at`
	return []string{`
		select x.no, ` + rollupColumns(start) + `
		from ` + parts + `
		cross join lateral (
		  select * from ` + rollup + ` u
		  where ` + s.customerCondition("u") + ` and ` + inPart + bounds + `
		  offset 0) u`, `
		select x.no, ` + rollupColumns(start) + `
		from ` + parts + `
		join ` + unfolded + ` u on ` + inPart + `
		where ` + s.customerCondition("u") + s.transactionCondition(unfolded) + bounds,
	}
}

// events returns the SQL of the raw events of partial hours. It counts events by the same rules as ingest.
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

// eventsIn returns the SQL that selects columns of events. It joins the events e in the parts x of a source
// with the versions g that count their type. As in joined, the database reads each part separately.
func (s *usageStatement) eventsIn(p usageSource, columns string) string {
	return `
		select ` + columns + `
		from ` + s.unnest(p) + `
		cross join lateral (
		  select * from events e
		  where ` + s.customerCondition("e") + ` and e.ts >= x.from_at and e.ts < x.until_at` + s.bounds(p, "e.ts") + `
		  offset 0) e
		join meter_versions g on g.tenant_id = e.tenant_id and g.event_type = e.event_type and g.id = any(x.versions)
		  and (g.until_epoch is null or e.epoch < g.until_epoch)
		cross join lateral (select ` + isLate("g.meter_id") + ` as late) l`
}

// customerCondition returns the SQL condition that restricts rollups u or events e to the statement's customers. The
// rollups have rows of the whole tenant. The raw events of the whole tenant are the events of all customers.
func (s *usageStatement) customerCondition(of string) string {
	if s.all || s.whole && of == "e" {
		return of + ".tenant_id = @tenant"
	}
	if s.some {
		return of + ".tenant_id = @tenant and " + of + ".customer_id = any(x.customers)"
	}
	return of + ".tenant_id = @tenant and " + of + ".customer_id = @customer"
}

// transactionCondition returns the SQL condition that skips unfolded rows of other customers before their arrays
// are expanded. Thousands of such rows may be added in the second before they are folded.
func (s *usageStatement) transactionCondition(table string) string {
	switch {
	case table != unfolded || s.all || s.whole:
		return ""
	case s.some:
		return " and u.customer_ids && x.customers"
	default:
		return " and " + addedCondition("u")
	}
}

// addedCondition returns the SQL condition for the rows of usage_unfolded u that events of @customer added. Its
// form lets the database use an index.
func addedCondition(u string) string {
	return "@customer = any(" + u + ".customer_ids) and " + u + ".event_customer_id = @customer"
}

// unnest returns a source's parts as a table x. The arrays of a part are passed as texts, because SQL
// has no arrays of arrays that differ in length. "offset 0" makes the database parse each array once, and
// not once per row that is compared with it.
func (s *usageStatement) unnest(p usageSource) string {
	parts, name := s.sources[p], s.argument(p)
	s.Args[name+"_no"], s.Args[name+"_from"], s.Args[name+"_until"], s.Args[name+"_versions"] = parts.numbers, parts.from, parts.until, arrays(parts.versions)
	customers, column, parsed := "", "", ""
	if s.some {
		s.Args[name+"_customers"] = arrays(parts.customers)
		customers, column, parsed = ", @"+name+"_customers::text[]", ", customers", ", customers::bigint[] as customers"
	}
	return fmt.Sprintf(`(
		  select no, from_at, until_at, versions::bigint[] as versions%[4]s
		  from unnest(@%[1]s_no::int[], @%[1]s_from::timestamptz[], @%[1]s_until::timestamptz[], @%[1]s_versions::text[]%[2]s) x (no, from_at, until_at, versions%[3]s)
		  offset 0) x`, name, customers, column, parsed)
}

// argument returns the prefix of the names of a source's arguments. A statement of NewStatementOfSome has another
// prefix, so that its SQL and arguments can be part of another statement.
func (s *usageStatement) argument(p usageSource) string {
	if s.some {
		return fmt.Sprintf("some%d", p)
	}
	return fmt.Sprintf("source%d", p)
}

// arrays returns the text of each slice as a SQL array.
func arrays(of [][]int64) []string {
	texts := make([]string, len(of))
	for i, numbers := range of {
		texts[i] = strings.NewReplacer("[", "{", "]", "}", " ", ",").Replace(fmt.Sprint(numbers))
	}
	return texts
}

// bounds returns the SQL condition for the range from the first to the last part of a source. It lets the
// database skip chunks outside the range.
func (s *usageStatement) bounds(p usageSource, at string) string {
	var least, most time.Time
	if parts := s.sources[p]; len(parts.from) > 0 {
		least, most = slices.MinFunc(parts.from, time.Time.Compare), slices.MaxFunc(parts.until, time.Time.Compare)
	}
	name := s.argument(p)
	s.Args[name+"_least"], s.Args[name+"_most"] = least, most
	return fmt.Sprintf(" and %s >= @%[2]s_least and %[1]s < @%[2]s_most", at, name)
}
