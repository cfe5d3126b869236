package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// Prices by dimension are read at most once a minute, for each tenant, and for each customer with
// an event that one of them may not charge.
const (
	termsKeptFor  = time.Minute
	maxKeptMeters = 1000   // tenants
	maxKeptTerms  = 10_000 // customers
)

type keptMeters struct {
	meters []db.DimensionMeter
	readAt time.Time
}

type keptTerms struct {
	terms  []billing.DimensionTerms
	readAt time.Time
}

// unpricedEvent is a counted event that at least one of the meter's prices does not charge.
type unpricedEvent struct {
	*metering.Event
	index int
	meter db.DimensionMeter
	key   json.RawMessage // nil: the event counts in metering.OtherGroup
}

// unpricedWarnings warn once per meter of events that no price by dimension charges.
func (s *server) unpricedWarnings(ctx context.Context, events []metering.Event, indexes []int, outcomes []db.Outcome) (warnings []string) {
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
	terms := s.dimensionTerms(ctx, slices.Compact(slices.Sorted(slices.Values(customers))))
	warned := make(map[metering.MeterID]bool)
	for _, e := range unpriced {
		if !warned[e.meter.ID] && slices.ContainsFunc(terms[e.ExternalID], e.isUnratedBy) {
			warned[e.meter.ID] = true
			warnings = append(warnings, fmt.Sprintf("events[%d] has no price: meter %q counts it, but no price in dimensions charges its values; GET /v1/billing/unrated lists such usage",
				e.index, e.meter.Slug))
		}
	}
	return warnings
}

// isUnpriced reports whether the meter has counted the event and one of the meter's prices does not
// charge it, and sets the event's key.
func (e *unpricedEvent) isUnpriced(outcome db.Outcome) bool {
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

func (e *unpricedEvent) isUnratedBy(t billing.DimensionTerms) bool {
	return t.MeterID == e.meter.ID && t.Period.Contains(e.At) && !t.Terms.Rates(e.key)
}

// dimensionMeters returns the tenant's meters with prices by dimension, as they were at most
// termsKeptFor ago.
func (s *server) dimensionMeters(ctx context.Context) []db.DimensionMeter {
	tenant, now := principalOf(ctx).Tenant.ID, s.Now()
	if kept, found := s.metersKept.Get(tenant); found && now.Sub(kept.readAt) < termsKeptFor {
		return kept.meters
	}
	ctx, cancel := context.WithTimeout(ctx, firstStartWait)
	defer cancel()
	meters, err := s.Store.Prices.DimensionMeters(ctx, tenant)
	if err != nil {
		s.Log.WarnContext(ctx, "cannot read the prices by dimension", "error", err)
		return nil
	}
	s.metersKept.Add(tenant, keptMeters{meters, now})
	return meters
}

// dimensionTerms returns, by external id, the terms of the customers' prices by dimension, as they
// were at most termsKeptFor ago. It excludes customers that it cannot read in time: their events
// are stored, and GET /v1/billing/unrated lists them.
func (s *server) dimensionTerms(ctx context.Context, externalIDs []string) map[string][]billing.DimensionTerms {
	tenant, now := principalOf(ctx).Tenant.ID, s.Now()
	terms := make(map[string][]billing.DimensionTerms)
	var missing []string
	for _, id := range externalIDs {
		kept, found := s.termsKept.Get(customerName{tenant, id})
		if !found || now.Sub(kept.readAt) >= termsKeptFor {
			missing = append(missing, id)
			continue
		}
		terms[id] = kept.terms
	}
	if len(missing) == 0 {
		return terms
	}
	ctx, cancel := context.WithTimeout(ctx, firstStartWait)
	defer cancel()
	read, err := s.Store.Unrated.DimensionTerms(ctx, tenant, missing, now)
	if err != nil {
		s.Log.WarnContext(ctx, "cannot compare events with the prices by dimension of their customers", "error", err)
	}
	for id, of := range read {
		terms[id] = of
		s.termsKept.Add(customerName{tenant, id}, keptTerms{of, now})
	}
	return terms
}
