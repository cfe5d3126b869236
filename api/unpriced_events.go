package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// unpricedEvent is a counted event that at least one of the meter's prices does not charge, because no price
// by dimension matches it.
type unpricedEvent struct {
	*metering.Event
	index int
	meter catalog.DimensionMeter
	key   json.RawMessage // nil: the event counts in metering.OtherGroup
}

// unpricedWarnings returns at most one warning per meter, for the first event that no price by dimension
// charges.
func (s *server) unpricedWarnings(ctx context.Context, events []metering.Event, indexes []int, outcomes []usage.Outcome) (warnings []string) {
	var unpriced []unpricedEvent
	var customers []string
	for _, m := range s.dimensionMeters(ctx) {
		for i, outcome := range outcomes {
			e := unpricedEvent{Event: &events[i], index: indexes[i], meter: m}
			if e.isUnpriced(outcome) {
				unpriced, customers = append(unpriced, e), append(customers, e.ExternalID)
			}
		}
	}
	if len(unpriced) == 0 {
		return nil
	}
	ids := slices.Compact(slices.Sorted(slices.Values(customers)))
	terms, err := s.termsKept.get(ctx, principalOf(ctx).Tenant.ID, ids...)
	if err != nil { // the events are stored, and GET /v1/billing/unrated lists them
		s.Log.WarnContext(ctx, "cannot compare events with the prices by dimension of their customers", "error", err)
	}
	warned := make(map[metering.MeterID]bool)
	for _, e := range unpriced {
		if !warned[e.meter.ID] && slices.ContainsFunc(terms[e.ExternalID], e.isUnratedBy) {
			warned[e.meter.ID] = true
			warnings = append(warnings, fmt.Sprintf("events[%d] has no price: meter %q counts it, but no price in dimensions charges its values; GET /v1/billing/unrated lists such usage, late usage once it is booked",
				e.index, e.meter.Slug))
		}
	}
	return warnings
}

// isUnpriced reports whether the meter has counted the event and at least one of the meter's prices does not
// charge it. It also sets e.key.
func (e *unpricedEvent) isUnpriced(outcome usage.Outcome) bool {
	if e.EventType != e.meter.EventType || outcome.Duplicate || outcome.Forgotten || outcome.Refused || outcome.Unmetered {
		return false
	}
	measured, err := e.meter.Version.Measure(e.Event)
	if err != nil || measured.Verdict != metering.Counted {
		return false
	}
	if e.key = measured.Group.Key; len(e.key) > metering.MaxGroupKeyBytes || slices.Contains(outcome.Crowded, e.meter.Slug) {
		e.key = nil
	}
	return slices.ContainsFunc(e.meter.Terms, func(t billing.Terms) bool { return !t.Rates(e.key) })
}

// isUnratedBy reports whether the terms apply to the event, and none of their prices by dimension charges it.
func (e *unpricedEvent) isUnratedBy(t billing.DimensionTerms) bool {
	return t.MeterID == e.meter.ID && t.Period.Contains(e.At) && !t.Terms.Rates(e.key)
}

// dimensionMeters returns the tenant's meters with prices by dimension. The result is cached for cachedFor.
func (s *server) dimensionMeters(ctx context.Context) []catalog.DimensionMeter {
	meters, err := s.metersKept.get(ctx, principalOf(ctx).Tenant.ID, struct{}{})
	if err != nil {
		s.Log.WarnContext(ctx, "cannot read the prices by dimension", "error", err)
	}
	return meters[struct{}{}]
}

func (s *server) readDimensionMeters(ctx context.Context, tenant metering.TenantID, _ []struct{}, _ time.Time) (map[struct{}][]catalog.DimensionMeter, error) {
	meters, err := s.Store.Prices.DimensionMeters(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return map[struct{}][]catalog.DimensionMeter{{}: meters}, nil
}
