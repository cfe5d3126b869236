package db

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// EventFilter is which events to list. What is empty, or 0, holds for all.
type EventFilter struct {
	metering.Range
	Customer       metering.CustomerID
	EventType      string
	IdempotencyKey string
}

// ListedEvent is a stored event, and what has come of it.
type ListedEvent struct {
	metering.Event
	IngestedAt time.Time
	CountedBy  []Counting
}

// Counting is a meter in whose usage an event is.
type Counting struct {
	MeterSlug string          `json:"meter_slug"`
	Late      bool            `json:"late"`   // it came for a period that was closed
	Period    *CountingPeriod `json:"period"` // nil: none is stored yet
}

// CountingPeriod is the billing period that the time of an event is in.
type CountingPeriod struct {
	ID    metering.PeriodID `json:"id"`
	Start time.Time         `json:"start"`
	End   time.Time         `json:"end"`
}

// Search is for how long a page is looked for, by whose clock.
type Search struct {
	Now    func() time.Time
	Budget time.Duration
}

// EventPage is what a search has found until its page was full, its budget spent
// or nothing left.
type EventPage struct {
	Events        []ListedEvent // newest first
	Next          *EventCursor  // before which the next page begins; nil: this is the last one
	SearchedUntil time.Time     // all of the range that is later was searched
}

// KeptFrom returns the instant from which events are kept; zero: all are.
func (s Events) KeptFrom(ctx context.Context) (time.Time, error) { return keptFrom(ctx, s.pool) }

// List searches a range from its end, or from the cursor, back for up to limit
// events, fewer where they are large. It reads a window at a time, each twice as
// wide as the former, so that what it reads is in proportion to how far back it
// has to look, and a range in which little matches is searched page by page. It
// answers CodeInvalid where the range begins before events are kept.
func (s Events) List(ctx context.Context, tenant metering.TenantID, f EventFilter, before *EventCursor, limit int, by Search) (EventPage, error) {
	began := by.Now()
	search := eventSearch{pool: s.pool, tenant: tenant, filter: f, limit: limit, most: max(by.Budget, leastTime), room: *roomOf(ctx)}
	for w := f.firstWindow(before, began); ; w = f.nextWindow(w) {
		err := search.read(ctx, w)
		for tooMuch(ctx, err) && search.page.SearchedUntil.IsZero() && w.width > leastWindow {
			w = f.narrowed(w)
			err = search.read(ctx, w)
		}
		if tooMuch(ctx, err) && !search.page.SearchedUntil.IsZero() {
			break // at where the window before this one began
		}
		if err != nil {
			return EventPage{}, coded(err)
		}
		if search.ended || by.Now().Sub(began) >= by.Budget {
			break
		}
	}
	return search.page, requireKept(ctx, s.pool, f.Range, "query.start")
}

// tooMuch says whether a window held more than could be read in its time.
func tooMuch(ctx context.Context, err error) bool {
	return sqlState(err) == stateQueryCanceled && ctx.Err() == nil
}

// eventWindow is a part of a range: from an instant, before a cursor.
type eventWindow struct {
	from   time.Time
	before EventCursor
	width  time.Duration // of what is not ahead of now, where few events are
}

const (
	firstWindow  = time.Minute
	leastWindow  = time.Millisecond
	widestWindow = 1 << 62 // a century and a half, of which twice as much is no duration any more
)

// firstWindow is all of the range where the customer's index leads to as many
// events as a page holds, and otherwise its last minute.
func (f EventFilter) firstWindow(before *EventCursor, now time.Time) eventWindow {
	w := eventWindow{before: EventCursor{At: f.End}, width: firstWindow}
	if before != nil {
		w.before = *before
	}
	if f.Customer != 0 && f.EventType == "" && f.IdempotencyKey == "" {
		w.width, w.from = min(w.before.At.Sub(f.Start), widestWindow), f.Start
		return w
	}
	end := w.before.At
	if now.Before(end) {
		end = now
	}
	return f.since(w, end.Add(-w.width))
}

// nextWindow is before the former, and twice as wide.
func (f EventFilter) nextWindow(w eventWindow) eventWindow {
	w.before, w.width = EventCursor{At: w.from}, 2*min(w.width, widestWindow/2)
	return f.since(w, w.from.Add(-w.width))
}

// narrowed is the end of a window that holds too much.
func (f EventFilter) narrowed(w eventWindow) eventWindow {
	w.width /= 16
	return f.since(w, w.before.At.Add(-w.width))
}

func (f EventFilter) since(w eventWindow, from time.Time) eventWindow {
	w.from = from
	if from.Before(f.Start) {
		w.from = f.Start
	}
	return w
}

// eventSearch is a page on its way.
type eventSearch struct {
	pool   *pool
	tenant metering.TenantID
	filter EventFilter
	limit  int
	most   time.Duration // for a window
	page   EventPage
	room   pageRoom
	ended  bool // the page is full, or nothing is left
}

// leastTime is for a window, however small the budget: what is begun is to end.
const leastTime = time.Second

// read adds the events of a window to the page, as many as fit, and none where it
// takes too long.
func (s *eventSearch) read(ctx context.Context, w eventWindow) error {
	found, room, more := []ListedEvent(nil), s.room, false
	most := s.limit - len(s.page.Events)
	var batch pgx.Batch
	batch.Queue(`select set_config('statement_timeout', $1, true)`, strconv.FormatInt(s.most.Milliseconds(), 10))
	batch.Queue(selectEvents(s.filter), s.filter.arguments(s.tenant, w, most+1)).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if more = len(found) == most || !room.fits(bytesOf(rows)); more {
				return nil
			}
			e, err := scanListed(rows)
			if err != nil {
				return err
			}
			found = append(found, e)
		}
		return rows.Err()
	})
	if err := s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return conn.SendBatch(ctx, &batch).Close() }); err != nil {
		return err
	}
	s.page.Events, s.room = append(s.page.Events, found...), room
	if more {
		last := s.page.Events[len(s.page.Events)-1]
		s.page.Next, s.page.SearchedUntil, s.ended = &EventCursor{At: last.At, ID: last.ID}, last.At, true
		return nil
	}
	s.page.Next, s.page.SearchedUntil = &EventCursor{At: w.from}, w.from
	s.ended = len(s.page.Events) == s.limit
	if !w.from.After(s.filter.Start) {
		s.page.Next, s.ended = nil, true
	}
	return nil
}

// scanListed scans listedColumns, and further columns.
func scanListed(row pgx.CollectableRow, further ...any) (e ListedEvent, err error) {
	var possible []byte
	err = row.Scan(append([]any{(*[16]byte)(&e.ID), &e.CustomerID, &e.ExternalID, &e.EventType, &e.At, &e.Value, &e.Properties, &e.IdempotencyKey, &e.Erased, &e.IngestedAt, &possible}, further...)...)
	if err != nil {
		return e, err
	}
	e.At, e.IngestedAt = e.At.UTC(), e.IngestedAt.UTC()
	e.CountedBy, err = countingsOf(e.Event, possible)
	return e, err
}

// possibleCounting is a Counting unless the definition of the meter excludes the event.
type possibleCounting struct {
	Counting

	ValueProperty string            `json:"value_property"`
	Filters       []metering.Filter `json:"filters"`
}

// countingsOf returns the Countings of the meters that count an event, out of the possible ones.
func countingsOf(e metering.Event, possible []byte) ([]Counting, error) {
	var all []possibleCounting
	if err := json.Unmarshal(possible, &all); err != nil {
		return nil, err
	}
	countings := make([]Counting, 0, len(all))
	for _, c := range all {
		m, err := metering.MeterVersion{ValueProperty: c.ValueProperty, Filters: c.Filters}.Measure(&e)
		if err != nil {
			return nil, err
		}
		if m.Verdict == metering.Counted {
			countings = append(countings, c.Counting)
		}
	}
	return countings, nil
}

func (f EventFilter) arguments(tenant metering.TenantID, w eventWindow, limit int) pgx.NamedArgs {
	return pgx.NamedArgs{
		"tenant": tenant, "from": w.from, "before": w.before.At, "before_id": [16]byte(w.before.ID), "limit": limit,
		"customer": f.Customer, "event_type": f.EventType, "key": f.IdempotencyKey,
	}
}

// selectEvents names only what the filter does, so that its index is used. A key
// that was never claimed is none of an event's, and nothing is read for it.
func selectEvents(f EventFilter) string {
	where := ""
	if f.Customer != 0 {
		where += " and customer_id = @customer"
	}
	if f.EventType != "" {
		where += " and event_type = @event_type"
	}
	if f.IdempotencyKey != "" {
		column := "idempotency_key"
		if _, ok := uuidOf(f.IdempotencyKey); ok {
			column = "idempotency_uuid::text"
		}
		where += " and " + column + " = @key and exists (select from event_keys where tenant_id = @tenant and key = event_key(@key))"
	}
	return `
		select ` + listedColumns + `
		from (
		  select ` + storedColumns + `
		  from events
		  where tenant_id = @tenant
		    and ts >= @from
		    and ts <= @before
		    and (ts, id) < (@before, @before_id::uuid)` + where + `
		  order by ts desc, id desc
		  limit @limit) e
		join customers c on c.tenant_id = e.tenant_id and c.id = e.customer_id
		order by e.ts desc, e.id desc`
}

// storedColumns are the columns of events that listedColumns read.
const storedColumns = `tenant_id, id, customer_id, event_type, ts, value, properties, idempotency_key, idempotency_uuid, erased, ingested_at, epoch`

// listedColumns are a ListedEvent, of an event e and its customer c.
var listedColumns = `e.id, e.customer_id, c.external_id, e.event_type, e.ts, e.value, e.properties, coalesce(` + sentKey + `, ''), e.erased is not null, e.ingested_at, ` + countedBy

// countedBy are the possible Countings of an event e, by the rules of ingest and of
// backfills: of meters whose past is counted, by slug.
var countedBy = `(
		  select coalesce(jsonb_agg(jsonb_build_object(
		    'meter_slug', m.slug, 'value_property', g.value_property, 'filters', g.filters, 'late', ` + isLate("m.id") + `, 'period', (
		      select jsonb_build_object('id', p.id, 'start', p.starts_at, 'end', p.ends_at)
		      from billing_periods p
		      where p.tenant_id = e.tenant_id
		        and p.customer_id = e.customer_id
		        and p.starts_at <= e.ts
		        and e.ts < p.ends_at
		        and p.stream = ` + streamAt("e.tenant_id", "e.customer_id", "m.id", "e.ts") + `)
		    ) order by m.slug), '[]')
		  from meters m
		  join meter_versions g on g.tenant_id = m.tenant_id and g.id = m.meter_version_id
		  where m.tenant_id = e.tenant_id
		    and g.event_type = e.event_type
		    and ` + countsEvent + `)`

// countsEvent reports, as SQL, whether the totals of a meter version g include an event e of its
// type, unless the definition excludes the event.
const countsEvent = `g.status = 'complete'
		    and (g.until_epoch is null or e.epoch < g.until_epoch)
		    and (e.epoch >= g.epoch or g.counted_from is null or e.ts >= g.counted_from)`
