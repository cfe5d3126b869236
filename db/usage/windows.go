package usage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// WindowRead reads the result of one WindowQuery.
type WindowRead struct {
	WindowQuery
	tenant  metering.TenantID
	Querier pg.Querier
	zone    *time.Location // time zone of the windows
	hours   *time.Location // time zone of the meter's hours
	ragged  []metering.Range
	most    int // maximum number of sums of raw events

	groups     map[metering.GroupID]metering.GroupID // the requested groups, each with the group under which the result shows it
	examples   map[metering.GroupID]metering.GroupID // for each shown group, one of the requested groups that it includes
	alike      bool                                  // whether a group has a value with the text of a requested value, but another JSON type
	registered map[metering.GroupID]bool             // groups in usage_groups, complete if the range has partial hours; raw events of other groups count in OtherGroup
	edges      []windowPart                          // raw events of partial hours, summed by shown group
	byCustomer bool                                  // edges are also summed by customer
	closed     closedStreams
}

// MaxWindows is the maximum number of windows in a range.
const MaxWindows = 10_000

var errManyWindows = metering.Invalid("query.granularity", "must divide the range into at most %d windows; request a shorter range or longer windows", MaxWindows)

// NewWindowRead returns the read of a query. It returns CodeInvalid if the windows in the query's zone do not start at
// full hours of the meter's zone. The caller sets Querier.
func NewWindowRead(tenant metering.TenantID, query WindowQuery) (*WindowRead, error) {
	r := &WindowRead{WindowQuery: query, tenant: tenant, hours: metering.Location(query.Meter.Version.Timezone), most: mostEdges}
	r.zone = cmp.Or(query.Zone, r.hours)
	r.ragged = metering.Split(query.Range, r.hours).Ragged
	if r.hasOwnWindows() {
		return r, nil
	}
	starts, err := r.windowStarts()
	if err != nil {
		return nil, err
	}
	for i, start := range starts {
		if i > 0 && !metering.WindowOf(start, metering.Hour, r.hours).Start.Equal(start) {
			return nil, metering.Invalid("query.timezone", "must have windows that start at full hours of the tenant's time zone, %s; request a time zone that differs from it by whole hours", r.hours)
		}
	}
	return r, nil
}

// hasOwnWindows reports whether the windows are in the time zone of the meter's hours.
func (r *WindowRead) hasOwnWindows() bool { return r.zone.String() == r.hours.String() }

// windowStarts returns the start of each window of the range.
func (r *WindowRead) windowStarts() (starts []time.Time, err error) {
	for at := r.Range.Start; at.Before(r.Range.End); at = metering.WindowOf(at, r.Granularity, r.zone).End {
		if len(starts) == MaxWindows {
			return nil, errManyWindows
		}
		starts = append(starts, at)
	}
	return starts, nil
}

// windowPart is the usage of a group in one rollup row, or in one partial hour at an end of the range. A window is
// the sum of its parts.
type windowPart struct {
	customer metering.CustomerID // 0 if not summed by customer
	group    metering.GroupID
	start    time.Time
	Tally
}

// page reads the page of windows, the totals and the gaps of the filter.
func (r *WindowRead) page(ctx context.Context) (WindowPage, error) {
	r.Limit = min(r.Limit, pg.PageBytes/pg.RowBytes)
	if err := r.LoadGroups(ctx); err != nil {
		return WindowPage{}, fmt.Errorf("read groups: %w", err)
	}
	if err := r.LoadEdges(ctx); err != nil {
		return WindowPage{}, fmt.Errorf("read edges: %w", err)
	}
	if err := r.loadClosed(ctx); err != nil {
		return WindowPage{}, fmt.Errorf("read closed periods: %w", err)
	}
	var page WindowPage
	var err error
	if page.Windows, page.More, err = r.Windows(ctx); err != nil {
		return WindowPage{}, fmt.Errorf("read windows: %w", err)
	}
	if page.Windows, page.More, err = r.withKeys(ctx, page.Windows, page.More); err != nil {
		return WindowPage{}, fmt.Errorf("read group keys: %w", err)
	}
	if page.Groups, page.Total, err = r.totals(ctx); err != nil {
		return WindowPage{}, fmt.Errorf("read subtotals: %w", err)
	}
	if page.FilterGaps, err = r.filterGaps(ctx); err != nil {
		return WindowPage{}, fmt.Errorf("read the other groups: %w", err)
	}
	return page, nil
}

// filterGaps returns the usage that the filter Groups may have missed.
func (r *WindowRead) filterGaps(ctx context.Context) (FilterGaps, error) {
	other, err := r.otherTotal(ctx)
	return FilterGaps{Other: other, Alike: r.alike}, err
}

// otherTotal returns the usage in OtherGroup. Events in OtherGroup may have the requested values, because their values
// are unknown. It returns nil if OtherGroup has no usage or is itself requested, or if the query does not filter by
// group.
func (r *WindowRead) otherTotal(ctx context.Context) (*metering.Decimal, error) {
	if _, asked := r.groups[metering.OtherGroup.ID]; asked || len(r.Groups) == 0 {
		return nil, nil
	}
	other := &WindowRead{WindowQuery: r.WindowQuery, tenant: r.tenant, Querier: r.Querier, zone: r.zone, hours: r.hours, ragged: r.ragged, most: r.most}
	other.GroupBy, other.Groups = nil, map[string][]json.RawMessage{metering.OtherProperty: {json.RawMessage("true")}}
	if err := other.LoadGroups(ctx); err != nil || len(other.groups) == 0 {
		return nil, err
	}
	if err := other.LoadEdges(ctx); err != nil {
		return nil, err
	}
	used, total, err := other.totals(ctx)
	if err != nil || len(used) == 0 {
		return nil, err
	}
	return &total, nil
}

// loadClosed reads the closed periods of the customer. The whole tenant has none.
func (r *WindowRead) loadClosed(ctx context.Context) error {
	var id metering.CustomerID
	closed, err := scanClosedStreams(r.Querier.QueryRow(ctx, `
		select c.id, coalesce(c.closed_from, timestamptz '0001-01-01'), coalesce(c.closed_until, timestamptz '0001-01-01'), `+FeedsOfCustomer+`, `+closedOfCustomer+`
		from customers c
		where c.tenant_id = $1
		  and c.id = $2`, r.tenant, r.Customer), &id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	r.closed = closed
	return err
}

// withKeys sets the group keys of windows, and returns the windows that fit on a page. It reads only the
// keys of the page, because the keys of all groups are megabytes.
func (r *WindowRead) withKeys(ctx context.Context, windows []Window, more bool) ([]Window, bool, error) {
	var examples [][16]byte
	for i, w := range windows {
		if i == 0 || w.GroupID != windows[i-1].GroupID {
			examples = append(examples, r.examples[w.GroupID])
		}
	}
	rows, err := r.Querier.Query(ctx, `
		select group_id, group_key
		from unnest($3::uuid[]) with ordinality as e (example, place)
		join usage_groups on group_id = example
		where tenant_id = $1
		  and meter_version_id = $2
		order by place`, r.tenant, r.Meter.Version.ID, examples)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	room := pg.RoomOf(ctx)
	for i := range windows {
		if i > 0 && windows[i].GroupID == windows[i-1].GroupID {
			if !room.Fits(0) {
				return windows[:i], true, nil
			}
			windows[i].GroupKey = windows[i-1].GroupKey
			continue
		}
		if !rows.Next() {
			return nil, false, cmp.Or(rows.Err(), errNoGroup)
		}
		if !room.Fits(keyCopies * pg.BytesOf(rows)) {
			return windows[:i], true, nil
		}
		if windows[i].GroupKey, err = r.shownKey(rows); err != nil {
			return nil, false, err
		}
	}
	return windows, more, rows.Err()
}

// keyCopies is the number of copies of a group's key on a page: one in the group, and one in the filter that
// selects the group.
const keyCopies = 2

// errNoGroup reports a group with usage that has no entry in the dictionary.
var errNoGroup = errors.New("a group is not registered")

// shownKey returns the key of a group as the result shows it: with the properties in GroupBy only.
func (r *WindowRead) shownKey(row pgx.CollectableRow) (json.RawMessage, error) {
	var group metering.Group
	if err := row.Scan((*[16]byte)(&group.ID), &group.Key); err != nil || r.GroupBy == nil {
		return group.Key, err
	}
	shown, err := group.By(r.GroupBy)
	return shown.Key, err
}

// Windows returns at most Limit windows. It reads two windows more: the window of the cursor, which precedes the
// page, and the first window of the next page. Usage that is not folded into the rollups yet adds rows to a
// window. Windows therefore repeats the read with a higher limit until the page is complete.
func (r *WindowRead) Windows(ctx context.Context) (windows []Window, more bool, err error) {
	for most := (r.Limit + 2) * mostRows(r.Granularity); ; most *= 8 {
		windows, more, cut, err := r.windowsOf(ctx, most)
		if err != nil || more || !cut {
			return windows, more, err
		}
	}
}

// windowsOf reads at most limit rows, ordered by group and time, and merges them into windows. more reports whether
// there are more windows than r.Limit. cut reports whether there may be more rows. In this case, windowsOf returns no
// windows.
func (r *WindowRead) windowsOf(ctx context.Context, limit int) (windows []Window, more, cut bool, err error) {
	rows, err := r.rows(ctx, limit)
	if err != nil {
		return nil, false, false, err
	}
	defer rows.Close()
	edges, aggregation := r.edges, r.Meter.Version.Aggregation
	var held Tally // tally of the last window
	add := func(part windowPart) (full bool) {
		span := r.windowOf(part.start)
		if r.After != nil && !isAfter(*r.After, part.group, span.Start) {
			return false
		}
		last := len(windows) - 1
		if last < 0 || windows[last].GroupID != part.group || !windows[last].Start.Equal(span.Start) {
			if len(windows) == r.Limit {
				return true
			}
			windows = append(windows, Window{
				GroupID: part.group, Start: span.Start, End: span.End,
				Final: r.closed.final(r.Meter.ID, span),
			})
			last, held = last+1, Tally{}
		}
		held.merge(&part.Tally)
		windows[last].Value, windows[last].LateValue = held.usage(aggregation), held.Late(aggregation)
		return false
	}
	read := 0
	for ; rows.Next(); read++ {
		var part windowPart
		if err := rows.Scan(append([]any{(*[16]byte)(&part.group), &part.start}, part.Fields()...)...); err != nil {
			return nil, false, false, err
		}
		for len(edges) > 0 && isBefore(edges[0], part) {
			if add(edges[0]) {
				return windows, true, false, nil
			}
			edges = edges[1:]
		}
		if add(part) {
			return windows, true, false, nil
		}
	}
	if err := rows.Err(); err != nil || read == limit {
		return nil, false, true, err
	}
	return windows, slices.ContainsFunc(edges, add), false, nil
}

// isBefore reports whether a precedes b in the order by group and start.
func isBefore(a, b windowPart) bool {
	return cmp.Or(bytes.Compare(a.group[:], b.group[:]), a.start.Compare(b.start)) < 0
}

// isAfter reports whether the window of a group with this start follows the cursor.
func isAfter(cursor WindowCursor, group metering.GroupID, start time.Time) bool {
	return cmp.Or(bytes.Compare(group[:], cursor.GroupID[:]), start.Compare(cursor.Start)) > 0
}

// windowOf returns the window that contains t, limited to the requested range.
func (r *WindowRead) windowOf(t time.Time) metering.Range {
	w := metering.WindowOf(t, r.Granularity, r.zone)
	if w.Start.Before(r.Range.Start) {
		w.Start = r.Range.Start
	}
	if w.End.After(r.Range.End) {
		w.End = r.Range.End
	}
	return w
}

// rows reads up to most rows of whole hours and months in the requested groups, ordered by group and start.
func (r *WindowRead) rows(ctx context.Context, most int) (pgx.Rows, error) {
	statement := newUsageStatement(r.tenant, r.Customer, []metering.Meter{r.Meter})
	statement.addWhole(r.Range, r.Granularity != metering.Month || !r.hasOwnWindows())
	var from, where string
	if r.GroupBy == nil {
		from, where = statement.rowsInOrder(), r.restrict(statement.Args)
	} else {
		from, where = r.rowsAsShown(statement), "true"
	}
	if r.After != nil {
		where += " and (group_id, start) >= (@after_group, @after_start)"
		statement.Args["after_group"], statement.Args["after_start"] = [16]byte(r.After.GroupID), r.After.Start
	}
	statement.Args["most"] = most
	return r.Querier.Query(ctx, `
		select group_id, start, `+tallyColumns+`
		from `+from+`
		where `+where+`
		order by group_id, start
		limit @most`, statement.Args)
}

// rowsAsShown returns the SQL of the requested groups' usage, merged by shown group. No index has this
// order, so each page reads the whole range.
func (r *WindowRead) rowsAsShown(statement *usageStatement) string {
	statement.Args["counted_in"], statement.Args["shown_in"] = r.shownGroups()
	return `(
		select shown_in, start, ` + MergedTally + `
		from ` + statement.wholeRows() + `
		join unnest(@counted_in::uuid[], @shown_in::uuid[]) as s (counted_in, shown_in) on counted_in = group_id
		group by 1, 2) shown (group_id, start, ` + tallyColumns + `)`
}

// shownGroups returns the requested groups, and for each the group under which the result shows it.
func (r *WindowRead) shownGroups() (groups, shown [][16]byte) {
	groups, shown = make([][16]byte, 0, len(r.groups)), make([][16]byte, 0, len(r.groups))
	for id, as := range r.groups {
		groups, shown = append(groups, id), append(shown, as)
	}
	return groups, shown
}

// mostRows returns the maximum number of rollup rows of one window. Days, weeks and months that the range covers in
// part are read by the hour. A change of the clock can add hours.
func mostRows(g metering.Granularity) int {
	switch g {
	case metering.Day:
		return 28
	case metering.Week:
		return 28 * 7
	case metering.Month:
		return 28 * 31
	}
	return 1
}

// restrict returns the SQL condition that limits rows to the requested groups.
func (r *WindowRead) restrict(args pgx.NamedArgs) string {
	if len(r.Groups) == 0 {
		return "true"
	}
	wanted := make([][16]byte, 0, len(r.groups))
	for id := range r.groups {
		wanted = append(wanted, id)
	}
	args["groups"] = wanted
	return "group_id = any(@groups)"
}

// totals returns the usage of the whole range, by group and in total.
func (r *WindowRead) totals(ctx context.Context) ([]GroupTotal, metering.Decimal, error) {
	statement := newUsageStatement(r.tenant, r.Customer, []metering.Meter{r.Meter})
	statement.addWhole(r.Range, false)
	rows, err := r.Querier.Query(ctx, `
		select group_id, `+MergedTally+`
		from `+statement.wholeRows()+`
		where `+r.restrict(statement.Args)+`
		group by 1`, statement.Args)
	if err != nil {
		return nil, metering.Decimal{}, err
	}
	defer rows.Close()
	tallies := make(map[metering.GroupID]*Tally)
	for rows.Next() {
		var id metering.GroupID
		t := new(Tally)
		if err := rows.Scan(append([]any{(*[16]byte)(&id)}, t.Fields()...)...); err != nil {
			return nil, metering.Decimal{}, err
		}
		if shown := r.groups[id]; tallies[shown] == nil {
			tallies[shown] = t
		} else {
			tallies[shown].merge(t)
		}
	}
	for _, edge := range r.edges {
		if tallies[edge.group] == nil {
			tallies[edge.group] = new(Tally)
		}
		tallies[edge.group].merge(&edge.Tally)
	}
	var whole Tally
	groups, aggregation := make([]GroupTotal, 0, len(tallies)), r.Meter.Version.Aggregation
	for id, t := range tallies {
		groups = append(groups, GroupTotal{id, t.Total(aggregation)})
		whole.merge(t)
	}
	slices.SortFunc(groups, func(a, b GroupTotal) int { return bytes.Compare(a.GroupID[:], b.GroupID[:]) })
	return groups, whole.Total(aggregation), rows.Err()
}
