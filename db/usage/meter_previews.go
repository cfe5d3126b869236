package usage

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// PreviewQuery selects stored events, and contains the definition that measures them.
type PreviewQuery struct {
	Definition metering.MeterVersion
	Current    *metering.Meter // meter with the current definition, for comparison; nil for no comparison
	Range      metering.Range
	Latest     bool   // read only the latest events before the end of Range
	Search     Search // Budget bounds the time of reading, without the time of waiting for other requests
	Bounds     PreviewBounds
}

// PreviewBounds are the bounds of a preview. Zero is the default.
type PreviewBounds struct {
	Events    int // events that a preview of a range reads
	Customers int // customers that have these events; each takes about 300 bytes of memory
	Listed    int // customers in the result
	Sample    int // events in the result; also the number of events that a preview of the latest events reads
}

func (b PreviewBounds) orDefault() PreviewBounds {
	return PreviewBounds{cmp.Or(b.Events, 1_000_000), cmp.Or(b.Customers, 20_000), cmp.Or(b.Listed, 1_000), cmp.Or(b.Sample, 100)}
}

// MeterPreview is the usage that a definition counts for stored events, including late usage.
type MeterPreview struct {
	PreviewedUsage
	Range     metering.Range // range of the events that were read
	Uncounted map[metering.Verdict]int
	Customers []CustomerPreview // largest difference first; largest usage if there is no current definition
	Others    int               // number of customers that are not in Customers
	Sample    []PreviewedEvent  // the latest events, newest first
}

// PreviewedUsage is the usage of some events.
type PreviewedUsage struct {
	Events  int // number of events that were read
	Counted int // number of events that the definition counts
	Usage   metering.Decimal
	Current metering.Decimal // usage by the current definition
}

// CustomerPreview is the part of a preview for one customer.
type CustomerPreview struct {
	PreviewedUsage
	Customer   metering.CustomerID
	ExternalID string
}

// PreviewedEvent is an event and its measurement.
type PreviewedEvent struct {
	metering.Measurement
	ID         uuid.UUID
	Customer   metering.CustomerID
	ExternalID string
	At         time.Time
}

// Preview measures stored events by a definition, and stores nothing. It returns CodeInvalid if
// the range exceeds a bound.
func (s Events) Preview(ctx context.Context, tenant metering.TenantID, query PreviewQuery) (p MeterPreview, err error) {
	query.Bounds = query.Bounds.orDefault()
	r := &previewRead{
		PreviewQuery: query, tenant: tenant, customers: make(map[metering.CustomerID]*previewTally), uncounted: make(map[metering.Verdict]int),
	}
	if query.Latest {
		err = r.readLatest(ctx, s)
	} else {
		err = r.readRange(ctx, s)
	}
	if err != nil {
		return MeterPreview{}, err
	}
	return r.preview(ctx, s.pool)
}

// previewRead answers one PreviewQuery.
type previewRead struct {
	PreviewQuery
	tenant    metering.TenantID
	whole     previewTally
	customers map[metering.CustomerID]*previewTally
	uncounted map[metering.Verdict]int
	sample    []PreviewedEvent
}

// previewTally sums up the events of one customer, or of all customers.
type previewTally struct {
	events           int
	counted, current Tally // by the previewed definition, and by the current definition
}

// readLatest reads the latest events with Events.List. It sets the start of Range to the time of the oldest
// event that it reads.
func (r *previewRead) readLatest(ctx context.Context, s Events) error {
	var known bool
	err := s.pool.QueryRow(ctx, `select exists (select from event_types where tenant_id = $1 and event_type = $2)`, r.tenant, r.Definition.EventType).Scan(&known)
	if err != nil {
		return pg.Coded(err)
	}
	filter := EventFilter{EventType: r.Definition.EventType}
	if filter.Start, err = s.KeptFrom(ctx); err != nil {
		return pg.Coded(err)
	}
	filter.End, r.Range.Start = r.Range.End, r.Range.End
	if !known || filter.Empty() {
		return nil
	}
	page, err := s.List(ctx, r.tenant, filter, nil, r.Bounds.Sample, r.Search)
	if err != nil {
		return err
	}
	isCurrent := func(c Counting) bool { return r.Current != nil && c.MeterSlug == r.Current.Slug }
	for _, e := range page.Events {
		if err := r.add(&e.Event, slices.ContainsFunc(e.CountedBy, isCurrent)); err != nil {
			return err
		}
		r.Range.Start = e.At
	}
	return r.requireSameDefinition(ctx, s.pool)
}

// requireSameDefinition returns an error if the meter's definition has changed since the preview began. The code is
// CodeOverloaded, so that the caller tries again.
func (r *previewRead) requireSameDefinition(ctx context.Context, q pg.Querier) error {
	if r.Current == nil {
		return nil
	}
	var version metering.MeterVersionID
	err := q.QueryRow(ctx, `select meter_version_id from meters where tenant_id = $1 and id = $2`, r.tenant, r.Current.ID).Scan(&version)
	if err == nil && version != r.Current.Version.ID {
		err = metering.Errorf(metering.CodeOverloaded, "the definition of the meter changed during the preview; try again")
	}
	return pg.Coded(err)
}

var errLongPreview = metering.Invalid("body.start", "must be closer to end, because reading the events of the range takes too long")

// longestTurn is the time of reading after which a preview lets other requests read.
const longestTurn = 250 * time.Millisecond

// readRange reads all events of the range from one snapshot. After each longestTurn of reading, it lets other
// requests read.
func (r *previewRead) readRange(ctx context.Context, s Events) error {
	err := Usage{s.pool}.consistent(ctx, func(q pg.Querier) error {
		if err := r.requireSameDefinition(ctx, q); err != nil {
			return err
		}
		if err := r.open(ctx, q); err != nil {
			return err
		}
		turns, cancel := context.WithTimeout(ctx, longestWithTurns)
		defer cancel()
		var spent, turn time.Duration
		for more := true; more; {
			if spent > r.Search.Budget {
				return errLongPreview
			}
			began := r.Search.Now()
			var err error
			if more, err = fetchPast(ctx, q, r.add); err != nil {
				return err
			}
			took := r.Search.Now().Sub(began)
			if spent, turn = spent+took, turn+took; turn < longestTurn {
				continue
			}
			if err := pg.Yield(turns); err != nil {
				return err
			}
			turn = 0
		}
		return nil
	})
	if TooMuch(ctx, err) {
		return errLongPreview.Because(err)
	}
	if err != nil {
		return fmt.Errorf("preview a meter: %w", err)
	}
	return requireKept(ctx, s.pool, r.Range, "body.start")
}

// open opens the SQL cursor that fetchPast reads. The last column reports whether the current meter version is
// complete and its totals cover the time and the epoch of the event. The column ignores the version's definition,
// which add applies.
func (r *previewRead) open(ctx context.Context, q pg.Querier) error {
	var current metering.MeterVersionID
	if r.Current != nil {
		current = r.Current.Version.ID
	}
	_, err := q.Exec(ctx, `
		declare past no scroll cursor for
		select e.id, e.customer_id, e.ts, e.value, e.properties, e.erased is not null, coalesce(`+countsEvent+`, false)
		from events e
		left join meter_versions g on g.tenant_id = e.tenant_id and g.id = $5
		where e.tenant_id = $1 and e.ts >= $2 and e.ts < $3 and e.event_type = $4
		limit $6`, r.tenant, r.Range.Start, r.Range.End, r.Definition.EventType, current, r.Bounds.Events+1)
	return err
}

// add measures an event by the previewed definition and, if isCurrent, by the current definition.
func (r *previewRead) add(e *metering.Event, isCurrent bool) error {
	t, known := r.customers[e.CustomerID]
	switch {
	case r.whole.events == r.Bounds.Events:
		return metering.Invalid("body.start", "must be closer to end, because the range has more than %d events, the maximum", r.Bounds.Events)
	case !known && len(r.customers) == r.Bounds.Customers:
		return metering.Invalid("body.start", "must be closer to end, because the range has events of more than %d customers, the maximum", r.Bounds.Customers)
	case !known:
		t = new(previewTally)
		r.customers[e.CustomerID] = t
	}
	m, err := r.Definition.Measure(e)
	if err != nil {
		return err
	}
	current := metering.Measurement{Verdict: metering.FilteredOut}
	if isCurrent {
		if current, err = r.Current.Version.Measure(e); err != nil {
			return err
		}
	}
	for _, t := range []*previewTally{t, &r.whole} {
		t.events++
		if m.Verdict == metering.Counted {
			t.counted.add(m.Value, false)
		}
		if current.Verdict == metering.Counted {
			t.current.add(current.Value, false)
		}
	}
	if m.Verdict != metering.Counted {
		r.uncounted[m.Verdict]++
	}
	r.addToSample(PreviewedEvent{Measurement: m, ID: e.ID, Customer: e.CustomerID, At: e.At.UTC()})
	return nil
}

// addToSample adds an event to the sample. If the sample reaches twice its maximum size, addToSample cuts it.
func (r *previewRead) addToSample(e PreviewedEvent) {
	if len(e.Group.Key) > metering.MaxGroupKeyBytes {
		e.Group = metering.OtherGroup
	}
	r.sample = append(r.sample, e)
	if len(r.sample) == 2*r.Bounds.Sample {
		r.cutSample()
	}
}

// cutSample reduces the sample to its maximum size. It keeps the latest events, newest first.
func (r *previewRead) cutSample() {
	slices.SortFunc(r.sample, func(a, b PreviewedEvent) int { return cmp.Or(b.At.Compare(a.At), bytes.Compare(b.ID[:], a.ID[:])) })
	r.sample = r.sample[:min(len(r.sample), r.Bounds.Sample)]
}

func (r *previewRead) preview(ctx context.Context, q pg.Querier) (MeterPreview, error) {
	r.cutSample()
	p := MeterPreview{PreviewedUsage: r.usage(&r.whole), Range: r.Range, Uncounted: r.uncounted, Sample: r.sample}
	p.Customers = make([]CustomerPreview, 0, len(r.customers))
	for id, t := range r.customers {
		delete(r.customers, id)
		p.Customers = append(p.Customers, CustomerPreview{PreviewedUsage: r.usage(t), Customer: id})
	}
	slices.SortFunc(p.Customers, func(a, b CustomerPreview) int {
		return cmp.Or(b.difference().Cmp(a.difference()), cmp.Compare(a.Customer, b.Customer))
	})
	if p.Others = len(p.Customers) - r.Bounds.Listed; p.Others > 0 {
		p.Customers = slices.Clone(p.Customers[:r.Bounds.Listed])
	}
	p.Others = max(p.Others, 0)
	return p, p.nameCustomers(ctx, q, r.tenant)
}

func (r *previewRead) usage(t *previewTally) PreviewedUsage {
	u := PreviewedUsage{Events: t.events, Counted: int(t.counted.Count), Usage: t.counted.usage(r.Definition.Aggregation)}
	if r.Current != nil {
		u.Current = t.current.usage(r.Current.Version.Aggregation)
	}
	return u
}

// difference returns the absolute difference of the usage.
func (u PreviewedUsage) difference() metering.Decimal {
	if u.Usage.Cmp(u.Current) < 0 {
		return u.Current.Sub(u.Usage)
	}
	return u.Usage.Sub(u.Current)
}

// nameCustomers sets ExternalID in Customers and Sample.
func (p *MeterPreview) nameCustomers(ctx context.Context, q pg.Querier, tenant metering.TenantID) error {
	var ids []int64
	for _, c := range p.Customers {
		ids = append(ids, int64(c.Customer))
	}
	for _, e := range p.Sample {
		ids = append(ids, int64(e.Customer))
	}
	rows, err := q.Query(ctx, `select id, external_id from customers where tenant_id = $1 and id = any($2)`, tenant, ids)
	if err != nil {
		return pg.Coded(err)
	}
	names := make(map[metering.CustomerID]string)
	var id metering.CustomerID
	var name string
	_, err = pgx.ForEachRow(rows, []any{&id, &name}, func() error { names[id] = name; return nil })
	for i := range p.Customers {
		p.Customers[i].ExternalID = names[p.Customers[i].Customer]
	}
	for i := range p.Sample {
		p.Sample[i].ExternalID = names[p.Sample[i].Customer]
	}
	return pg.Coded(err)
}
