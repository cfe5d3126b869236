package api

import (
	"context"
	"fmt"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// rejectBeforeStoring returns the rejections of events, by their index. It must run before the events are stored,
// because storing an event creates the event's customer if it is unknown.
//
// For a strict tenant, it rejects unknown fields, customers and event types, and values that a meter cannot
// count. For a tenant that rejects key conflicts, it rejects events that conflict with a stored event.
// Conflicts between events of one request are found later, when the events are stored. It accepts every event
// that repeats a stored event. For other tenants, it does nothing.
func (s *server) rejectBeforeStoring(ctx context.Context, events []metering.Event, sent []sentEvent) (map[int]*metering.Rejection, error) {
	tenant := principalOf(ctx).Tenant
	rejectsConflicts := tenant.KeyConflicts == metering.RejectConflicts
	if !tenant.Strict && !rejectsConflicts || len(events) == 0 {
		return nil, nil
	}
	unknown, err := s.Writer.Unknown(ctx, tenant.ID, events)
	if err != nil {
		return nil, err
	}
	rejected := make(map[int]*metering.Rejection)
	for i, e := range events {
		unusable, isUnusable, err := unknown.Unusable(&events[i])
		if err != nil {
			return nil, err
		}
		switch {
		case unknown.Repeats(e):
		case rejectsConflicts && unknown.Conflicts(e):
			rejected[i] = metering.KeyConflict()
		case !tenant.Strict:
		case len(sent[i].ignored) > 0:
			rejected[i] = unknownField(sent[i].ignored[0])
		case unknown.EventTypes[e.EventType]:
			rejected[i] = &metering.Rejection{Code: "unknown_event_type", Field: "event_type", Message: "is not counted by any meter, and the tenant is strict"}
		case unknown.Customers[e.ExternalID]:
			rejected[i] = &metering.Rejection{Code: "unknown_customer_id", Field: "customer_id", Message: "is not the external_id of a customer, and the tenant is strict"}
		case isUnusable:
			rejected[i] = &metering.Rejection{Code: string(unusable.Rule), Field: "properties", Message: valueProblem(unusable) + ", and the tenant is strict"}
		}
	}
	return rejected, nil
}

// valueProblem returns the rule that the value of an event breaks. The text completes a sentence that begins
// with "properties".
func valueProblem(u usage.UnusableValue) string {
	if u.Rule == metering.ValueMissing {
		return fmt.Sprintf("must have %q, the value of meter %q", u.Property, u.MeterSlug)
	}
	return fmt.Sprintf("must have a number with an absolute value below 10^%d as %q, the value of meter %q", metering.MaxIntegerDigits, u.Property, u.MeterSlug)
}

// withoutRejected returns the events without those that rejectBeforeStoring rejects, their indexes in the request, and
// the rejections with the new ones added.
func (s *server) withoutRejected(ctx context.Context, all []sentEvent, events []metering.Event, indexes []int, rejections []metering.Rejection) ([]metering.Event, []int, []metering.Rejection, error) {
	sent := make([]sentEvent, len(indexes))
	for i, index := range indexes {
		sent[i] = all[index]
	}
	rejected, err := s.rejectBeforeStoring(ctx, events, sent)
	if err != nil || len(rejected) == 0 {
		return events, indexes, rejections, err
	}
	var known []metering.Event
	var places []int
	for i, e := range events {
		if rejected[i] == nil {
			known, places = append(known, e), append(places, indexes[i])
			continue
		}
		rejected[i].Index = indexes[i]
		rejections = append(rejections, *rejected[i])
	}
	return known, places, rejections, nil
}
