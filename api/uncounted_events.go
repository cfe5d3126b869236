package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// uncountedWindow is the default range of a list of uncounted events.
const uncountedWindow = 30 * 24 * time.Hour

// registerUncountedEvents registers the operation on events that a meter could not count.
func (s *server) registerUncountedEvents() {
	huma.Register(s.api, get("list-uncounted-events", "/v1/meters/{slug}/uncounted-events", EventsRead, "List events that a meter could not count",
		"Lists accepted events that passed the meter's filters without a usable value when they were received, the latest received first. "+
			"`GET /v1/events/counts` counts all such events.\n\n"+
			"- A meter keeps the first 1,000 events of each hour of receipt, in UTC, for 90 days. Deleted events and events of erased customers are not listed.\n"+
			"- Each API process saves these entries every five seconds. A process that stops can lose unsaved entries. A process holds at most 20,000 unsaved entries, at most half of them for one tenant.\n"+
			"- Events that a backfill could not count are not listed.\n"+
			"- An event stays listed when a changed definition of the meter counts it. `counted_by` then contains the meter.\n"+
			"- A strict tenant rejects such events, so none is listed.\n"+
			"- Listing is recorded in the audit log, at most once an hour for each customer."), s.listUncountedEvents)
}

// uncountedRule is a rule that the value of an accepted event breaks for a meter.
type uncountedRule metering.Verdict

// Values returns the rules.
func (uncountedRule) Values() []uncountedRule {
	return []uncountedRule{uncountedRule(metering.ValueMissing), uncountedRule(metering.ValueInvalid)}
}

type uncountedEvent struct {
	StoredEvent

	Rule uncountedRule `json:"rule" doc:"value_missing: the event has no value_property, or null. value_invalid: its value_property is not a number with an absolute value below 10^18"`
}

type listUncountedInput struct {
	Paging

	Slug     string        `path:"slug" maxLength:"64"`
	Rule     uncountedRule `query:"rule" doc:"The rule that the events break"`
	Customer string        `query:"customer" maxLength:"255" doc:"The customer's external ID"`
	Start    SentTime      `query:"start" doc:"Start of the range of ingested_at, inclusive. Default: 30 days before 'end'"`
	End      SentTime      `query:"end" doc:"End of the range of ingested_at, exclusive. Default: now"`
}

type uncountedCursor struct {
	Range  metering.Range
	Before *usage.UncountedCursor
}

type listUncountedOutput struct{ Body List[uncountedEvent] }

func (s *server) listUncountedEvents(ctx context.Context, in *listUncountedInput) (*listUncountedOutput, error) {
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	filter := usage.UncountedFilter{Meter: m.ID, Rule: metering.Verdict(in.Rule)}
	if in.Customer != "" {
		c, err := s.customer(ctx, in.Customer)
		if err != nil {
			return nil, err
		}
		filter.Customer = c.ID
	}
	var at uncountedCursor
	if at.Range, err = s.rangeBefore(Span{in.Start, in.End}, uncountedWindow, 0); err != nil {
		return nil, err
	}
	if err := s.readPageToken(ctx, in.PageToken, &at); err != nil {
		return nil, err
	}
	filter.Range = at.Range
	found, err := s.Store.UncountedEvents.List(ctx, principalOf(ctx).Tenant.ID, filter, at.Before, in.PageSize)
	if err != nil {
		return nil, err
	}
	if len(found.Items) > 0 {
		if err := s.auditListing(ctx, usage.EventFilter{Range: at.Range, Customer: filter.Customer}); err != nil {
			return nil, err
		}
	}
	cursorOf := func(e usage.UncountedEvent) uncountedCursor { return uncountedCursor{at.Range, new(e.Cursor())} }
	return &listUncountedOutput{listOf(ctx, s, found, showUncounted, cursorOf)}, nil
}

func showUncounted(e usage.UncountedEvent) uncountedEvent {
	return uncountedEvent{showStored(e.ListedEvent), uncountedRule(e.Rule)}
}
