package api

import (
	"context"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

const eventsWindow = 24 * time.Hour

type listEventsInput struct {
	Paging

	Customer       string   `query:"customer" maxLength:"255" doc:"The customer's external ID"`
	EventType      string   `query:"event_type" maxLength:"255"`
	IdempotencyKey string   `query:"idempotency_key" maxLength:"255" doc:"The complete idempotency key"`
	Start          SentTime `query:"start" doc:"Start of the range, inclusive. Default: 24 hours before 'end'. With idempotency_key, the default is the oldest stored event"`
	End            SentTime `query:"end" doc:"End of the range, exclusive. Default: one hour from now, the latest time that an event can have"`
}

// startsAtRetention reports whether the range starts at the instant from which events are stored. This is the
// default if the request has an idempotency_key.
func (in *listEventsInput) startsAtRetention() bool { return in.IdempotencyKey != "" && !in.Start.sent }

// StoredEvent is a stored event with the meters that count it.
type StoredEvent struct {
	ExportedEvent

	IngestedAt time.Time      `json:"ingested_at" doc:"Time at which the event was received"`
	CountedBy  []eventCounter `json:"counted_by" doc:"Meters that count the event. During its first backfill, a meter is not listed"`
}

type eventCounter struct {
	MeterSlug string `json:"meter_slug"`
	Late      bool   `json:"late" doc:"Whether the event arrived after its billing period was closed. Its usage is then late usage, which an open period bills as an adjustment, unless the tenant's late_policy is 'report'"`

	Period *eventPeriod `json:"period,omitempty"`
}

// eventPeriod is the billing period that contains an event's timestamp. The field period is absent until a sync
// or a background task has stored the billing period.
type eventPeriod struct {
	ID    string    `json:"id" example:"per_3"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

func showStored(e usage.ListedEvent) StoredEvent {
	shown := StoredEvent{ExportedEvent: showEvent(e.Event), IngestedAt: e.IngestedAt, CountedBy: []eventCounter{}}
	for _, c := range e.CountedBy {
		counter := eventCounter{MeterSlug: c.MeterSlug, Late: c.Late}
		if p := c.Period; p != nil {
			counter.Period = &eventPeriod{p.ID.String(), p.Start.UTC(), p.End.UTC()}
		}
		shown.CountedBy = append(shown.CountedBy, counter)
	}
	return shown
}

type eventPage struct {
	List[StoredEvent]

	SearchedUntil *time.Time `json:"searched_until" doc:"Every event of the range at or after this time was searched. Null: the whole range was searched"`
}

type listEventsOutput struct{ Body eventPage }

func (s *server) registerEventLists() {
	huma.Register(s.api, get("list-events", eventsPath, EventsRead, "List events",
		"Events are listed newest first by timestamp, each with the meters that count it. Rejected events are not stored and not listed.\n\n"+
			"- The default range is the last 24 hours. With `idempotency_key`, the default range covers all stored events.\n"+
			"- A call searches for about two seconds. A page may therefore have few events or none while `next_page_token` is set. Continue until `next_page_token` is "+
			"null. `searched_until` shows the progress.\n"+
			"- Listing is recorded in the audit log, at most once an hour for each customer."), s.listEvents)
}

func (s *server) listEvents(ctx context.Context, in *listEventsInput) (*listEventsOutput, error) {
	filter, err := s.eventFilter(ctx, in)
	if err != nil {
		return nil, err
	}
	at := exportCursor{Range: filter.Range}
	if err := s.readPageToken(ctx, in.PageToken, &at); err != nil {
		return nil, err
	}
	if in.startsAtRetention() {
		at.Range.Start = filter.Start // can be later than for the previous page, because old events are dropped
	}
	filter.Range = at.Range
	found, err := s.Store.Events.List(ctx, principalOf(ctx).Tenant.ID, filter, at.After, in.PageSize, usage.Search{Now: s.Now, Budget: s.SearchTime})
	if err != nil {
		return nil, err
	}
	if err := s.auditListing(ctx, filter); err != nil {
		return nil, err
	}
	page := eventPage{List: List[StoredEvent]{Data: make([]StoredEvent, 0, len(found.Events))}}
	if until := found.SearchedUntil.UTC(); !until.IsZero() {
		page.SearchedUntil = &until
	}
	for _, e := range found.Events {
		page.Data = append(page.Data, showStored(e))
	}
	if found.Next != nil {
		page.HasMore, page.NextPageToken = true, new(s.pageToken(ctx, exportCursor{filter.Range, found.Next}))
	}
	return &listEventsOutput{page}, nil
}

// listings caches the time at which each listing was last recorded in the audit log.
type listings struct {
	sync.Mutex

	recorded *simplelru.LRU[listing, time.Time]
}

// listing identifies lists of events that share one audit entry per hour: lists of the same actor and customer.
// Customer 0 means all customers.
type listing struct {
	tenant   metering.TenantID
	actor    metering.Actor
	customer metering.CustomerID
}

const (
	listingsPeriod = time.Hour
	maxListings    = 100_000 // cached; a listing that the cache has evicted is recorded again within the hour
)

// auditListing records that the caller lists events, at most once an hour for each listing.
func (s *server) auditListing(ctx context.Context, f usage.EventFilter) error {
	who := principalOf(ctx)
	of := listing{who.Tenant.ID, who.Actor, f.Customer}
	if !s.listings.due(of, s.Now()) {
		return nil
	}
	resource := who.Tenant.ID.String()
	if f.Customer != 0 {
		resource = f.Customer.String()
	}
	if err := s.auditAsked(ctx, "event.list", resource, map[string]any{"start": f.Start.UTC(), "end": f.End.UTC()}); err != nil {
		return err
	}
	s.listings.note(of, s.Now())
	return nil
}

// due reports whether a listing must be recorded: the cache has no record of it within the last listingsPeriod.
func (l *listings) due(of listing, now time.Time) bool {
	l.Lock()
	defer l.Unlock()
	recorded, known := l.recorded.Get(of)
	return !known || now.Sub(recorded) >= listingsPeriod
}

// note caches the time at which a listing was recorded in the audit log.
func (l *listings) note(of listing, now time.Time) {
	l.Lock()
	defer l.Unlock()
	l.recorded.Add(of, now)
}

func (s *server) eventFilter(ctx context.Context, in *listEventsInput) (f usage.EventFilter, err error) {
	for _, q := range []struct{ name, text string }{{"event_type", in.EventType}, {"idempotency_key", in.IdempotencyKey}} {
		if !storable(q.text) {
			return f, metering.Invalid("query."+q.name, "must be UTF-8 without NUL")
		}
	}
	f.EventType, f.IdempotencyKey = in.EventType, in.IdempotencyKey
	span := Span{in.Start, in.End}
	if in.startsAtRetention() {
		kept, err := s.Store.Events.KeptFrom(ctx)
		if err != nil {
			return f, err
		}
		span.Start = SentTime{Time: kept, sent: true}
	}
	if f.Range, err = s.rangeBefore(span, eventsWindow, exportLead); err != nil {
		return f, err
	}
	if in.Customer != "" {
		c, err := s.customer(ctx, in.Customer)
		if err != nil {
			return f, err
		}
		f.Customer = c.ID
	}
	return f, nil
}
