package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// registerConflicts registers the operations on event conflicts. In a conflict, the idempotency key of an event
// was already used for another event.
func (s *server) registerConflicts() {
	const path = eventsPath + "/conflicts"
	huma.Register(s.api, get("list-event-conflicts", path, EventsRead, "List events that were not counted because of their idempotency key",
		"Lists accepted events whose `idempotency_key` was already used for another customer or other content, newest first. Only the first event with the key "+
			"is counted. `GET /v1/events?idempotency_key=` finds that event.\n\n"+
			"- To count the event of a conflict, send the event again with a new key, then dismiss the conflict.\n"+
			"- A repeated conflict is listed once.\n"+
			"- A conflict is kept until it is dismissed, at most as long as events. A tenant has at most 10,000 conflicts.\n"+
			"- Listing is recorded in the audit log, at most once an hour."), s.listConflicts)
	huma.Register(s.api, post("dismiss-event-conflict", path+"/{id}/dismiss", BillingWrite, "Dismiss an event conflict",
		"Removes the conflict from the list. The audit log keeps the reason. If the same event is sent again, it is listed again."), s.dismissConflict)
}

// eventConflict is an accepted event that was not counted, with the fields of its request.
type eventConflict struct {
	ExportedEvent

	ReceivedAt time.Time `json:"received_at" doc:"Time at which the event was first received"`
}

type listConflictsInput struct{ Paging }

type listConflictsOutput struct{ Body List[eventConflict] }

func (s *server) listConflicts(ctx context.Context, in *listConflictsInput) (*listConflictsOutput, error) {
	var before uuid.UUID
	if err := s.readPageToken(ctx, in.PageToken, &before); err != nil {
		return nil, err
	}
	found, err := s.Store.Conflicts.List(ctx, principalOf(ctx).Tenant.ID, before, in.PageSize)
	if err != nil {
		return nil, err
	}
	if len(found.Items) > 0 {
		listed := metering.Range{Start: found.Items[len(found.Items)-1].ReceivedAt, End: found.Items[0].ReceivedAt}
		if err := s.auditListing(ctx, usage.EventFilter{Range: listed}); err != nil {
			return nil, err
		}
	}
	return &listConflictsOutput{listOf(ctx, s, found, showConflict, func(e metering.Event) uuid.UUID { return e.ID })}, nil
}

func showConflict(e metering.Event) eventConflict {
	return eventConflict{showEvent(e), e.ReceivedAt.UTC()}
}

type dismissConflictInput struct {
	ID   string `path:"id" maxLength:"64"`
	Body Because
}

func (s *server) dismissConflict(ctx context.Context, in *dismissConflictInput) (*struct{}, error) {
	reason, err := in.Body.reason()
	if err != nil {
		return nil, err
	}
	id, _ := uuid.Parse(in.ID) // the zero UUID on error; no conflict has this id
	who := principalOf(ctx)
	return nil, withLocation("path.id", s.Store.Conflicts.Dismiss(ctx, who.Tenant.ID, who.Actor, id, reason))
}
