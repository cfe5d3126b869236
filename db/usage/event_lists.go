package usage

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// EventFilter selects the events to list. An empty or zero field matches every event.
type EventFilter struct {
	metering.Range
	Customer       metering.CustomerID
	EventType      string
	IdempotencyKey string
}

// ListedEvent is a stored event and the meters that count it.
type ListedEvent struct {
	metering.Event
	IngestedAt time.Time
	CountedBy  []Counting
}

// Counting is a meter that counts an event.
type Counting struct {
	MeterSlug string          `json:"meter_slug"`
	Late      bool            `json:"late"`   // the event arrived after its period was closed
	Period    *CountingPeriod `json:"period"` // nil if no period is stored yet
}

// CountingPeriod is the billing period that contains the time of an event.
type CountingPeriod struct {
	ID    metering.PeriodID `json:"id"`
	Start time.Time         `json:"start"`
	End   time.Time         `json:"end"`
}

// Search is the time budget of one page, and the clock that measures it.
type Search struct {
	Now    func() time.Time
	Budget time.Duration
}

// EventPage is the result of a search. The search stops when the page is full, the budget is spent, or the
// range is exhausted.
type EventPage struct {
	Events        []ListedEvent // newest first
	Next          *EventCursor  // the next page has the events before this cursor; nil on the last page
	SearchedUntil time.Time     // the part of the range after this instant was searched
}

// KeptFrom returns the instant from which events are kept, or the zero time if all events are kept.
func (s Events) KeptFrom(ctx context.Context) (time.Time, error) { return KeptFrom(ctx, s.pool) }

// List returns up to limit events, newest first, before the cursor or from the end of the range. It returns fewer
// events if they are large, or if the time budget is spent. It reads one window of time after another, each
// twice as wide as the previous window. A search that soon finds enough events therefore reads little of a wide
// range. It returns CodeInvalid if the range begins before the events that are kept.
func (s Events) List(ctx context.Context, tenant metering.TenantID, f EventFilter, before *EventCursor, limit int, by Search) (EventPage, error) {
	began := by.Now()
	search := eventSearch{pool: s.pool, tenant: tenant, filter: f, limit: limit, most: max(by.Budget, leastTime), room: *pg.RoomOf(ctx)}
	for w := f.firstWindow(before, began); ; w = f.nextWindow(w) {
		err := search.read(ctx, w)
		for TooMuch(ctx, err) && search.page.SearchedUntil.IsZero() && w.width > leastWindow {
			w = f.narrowed(w)
			err = search.read(ctx, w)
		}
		if TooMuch(ctx, err) && !search.page.SearchedUntil.IsZero() {
			break // the next page begins at the start of the previous window
		}
		if err != nil {
			return EventPage{}, pg.Coded(err)
		}
		if search.ended || by.Now().Sub(began) >= by.Budget {
			break
		}
	}
	return search.page, requireKept(ctx, s.pool, f.Range, "query.start")
}

// TooMuch reports whether err means that a statement exceeded its time limit, and ctx has not ended.
func TooMuch(ctx context.Context, err error) bool {
	return pg.SQLState(err) == pg.StateQueryCanceled && ctx.Err() == nil
}

// eventWindow is a part of a range. It starts at an instant and ends before a cursor.
type eventWindow struct {
	from   time.Time
	before EventCursor
	width  time.Duration // does not count time in the future, which has few events
}

const (
	firstWindow  = time.Minute
	leastWindow  = time.Millisecond
	widestWindow = 1 << 62 // 146 years; twice as much overflows time.Duration
)

// firstWindow returns the whole range up to the cursor if the filter has only a customer. The index by customer
// then finds a page of events directly. Otherwise the window starts one minute before the cursor, or one
// minute before now if the cursor is in the future.
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

// nextWindow returns the window before w, twice as wide.
func (f EventFilter) nextWindow(w eventWindow) eventWindow {
	w.before, w.width = EventCursor{At: w.from}, 2*min(w.width, widestWindow/2)
	return f.since(w, w.from.Add(-w.width))
}

// narrowed returns the last sixteenth of a window that has too many events to read at once.
func (f EventFilter) narrowed(w eventWindow) eventWindow {
	w.width /= 16
	return f.since(w, w.before.At.Add(-w.width))
}

// since returns w with the start from, or with the start of the filter's range if from is earlier.
func (f EventFilter) since(w eventWindow, from time.Time) eventWindow {
	w.from = from
	if from.Before(f.Start) {
		w.from = f.Start
	}
	return w
}

// eventSearch is a search that fills one page.
type eventSearch struct {
	pool   *pg.Pool
	tenant metering.TenantID
	filter EventFilter
	limit  int
	most   time.Duration // time limit of one window
	page   EventPage
	room   pg.PageRoom
	ended  bool // the page is full, or the range is exhausted
}

// leastTime is the minimum time limit of a window, so that a search with a small budget still makes
// progress.
const leastTime = time.Second

// read adds the events of a window to the page until the page is full. If the query exceeds its time limit, read
// adds no event and returns the error.
func (s *eventSearch) read(ctx context.Context, w eventWindow) error {
	found, room, more := []ListedEvent(nil), s.room, false
	most := s.limit - len(s.page.Events)
	var batch pgx.Batch
	batch.Queue(`select set_config('statement_timeout', $1, true)`, strconv.FormatInt(s.most.Milliseconds(), 10))
	batch.Queue(selectEvents(s.filter), s.filter.arguments(s.tenant, w, most+1)).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if more = len(found) == most || !room.Fits(pg.BytesOf(rows)); more {
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

// scanListed scans listedColumns into a ListedEvent, and further columns into further.
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

// possibleCounting is a meter that counts an event, unless the filters or the value property of the meter
// exclude the event.
type possibleCounting struct {
	Counting

	MeterNumber   int64             `json:"meter_number"`
	ValueProperty string            `json:"value_property"`
	Filters       []metering.Filter `json:"filters"`
}

// countingsOf decodes the JSON array possible, and returns the Countings of the meters that count the event.
func countingsOf(e metering.Event, possible []byte) ([]Counting, error) {
	var all []possibleCounting
	if err := json.Unmarshal(possible, &all); err != nil {
		return nil, err
	}
	countings := make([]Counting, 0, len(all))
	for _, c := range all {
		m, err := metering.MeterVersion{MeterID: metering.MeterID(c.MeterNumber), ValueProperty: c.ValueProperty, Filters: c.Filters}.Measure(&e)
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

// selectEvents returns the SQL that reads a window. The condition has only the columns that the filter sets, so
// that the database uses the matching index. If the idempotency key is not in event_keys, the SQL reads no event.
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

// storedColumns are the columns of the table events that listedColumns needs.
const storedColumns = `tenant_id, id, customer_id, event_type, ts, value, properties, idempotency_key, idempotency_uuid, erased, ingested_at, epoch`

// listedColumns are the columns of a ListedEvent, for an event e and its customer c.
var listedColumns = `e.id, e.customer_id, c.external_id, e.event_type, e.ts, e.value, e.properties, coalesce(` + SentKey + `, ''), e.erased is not null, e.ingested_at, ` + countedBy

// countedBy is the SQL of a JSON array with the possibleCountings of an event e, ordered by meter slug. It
// applies the same rules as ingest and backfills (see countsEvent).
var countedBy = `(
		  select coalesce(jsonb_agg(jsonb_build_object(
		    'meter_number', m.id, 'meter_slug', m.slug, 'value_property', g.value_property, 'filters', g.filters, 'late', ` + isLate("m.id") + `, 'period', (
		      select jsonb_build_object('id', p.id, 'start', p.starts_at, 'end', p.ends_at)
		      from billing_periods p
		      where p.tenant_id = e.tenant_id
		        and p.customer_id = e.customer_id
		        and p.starts_at <= e.ts
		        and e.ts < p.ends_at
		        and p.stream = ` + StreamAt("e.tenant_id", "e.customer_id", "m.id", "e.ts") + `)
		    ) order by m.slug), '[]')
		  from meters m
		  join meter_versions g on g.tenant_id = m.tenant_id and g.id = m.meter_version_id
		  where m.tenant_id = e.tenant_id
		    and g.event_type = e.event_type
		    and ` + countsEvent + `)`

// countsEvent is the SQL condition that the totals of a meter version g include an event e. The caller also
// checks that the event type is equal, and that the filters and the value property of g accept the event.
const countsEvent = `g.status = 'complete'
		    and (g.until_epoch is null or e.epoch < g.until_epoch)
		    and (e.epoch >= g.epoch or g.counted_from is null or e.ts >= g.counted_from)`
