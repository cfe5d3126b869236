package api

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// earlyWarnings returns one warning per meter for events that are not billed, because they are older than their
// customer's first billing period.
func (s *server) earlyWarnings(ctx context.Context, events []metering.Event, indexes []int, outcomes []usage.Outcome) (warnings []string) {
	early := make(map[string]bool)
	for i, outcome := range outcomes {
		if len(outcome.Early) > 0 {
			early[events[i].ExternalID] = true
		}
	}
	if len(early) == 0 {
		return nil
	}
	starts, err := s.firstKept.get(ctx, principalOf(ctx).Tenant.ID, slices.Sorted(maps.Keys(early))...)
	if err != nil { // the events are stored, and GET /v1/billing/unrated lists them
		s.Log.WarnContext(ctx, "cannot compare events with the first billing periods of their customers", "error", err)
	}
	warned := make(map[string]bool)
	for i, outcome := range outcomes {
		start, found := starts[events[i].ExternalID]
		if !found || !events[i].At.Before(start) {
			continue
		}
		for _, slug := range outcome.Early {
			if !warned[slug] {
				warned[slug] = true
				warnings = append(warnings, fmt.Sprintf("events[%d] is older than its customer's first billing period: meter %q counts it, but it is never billed; "+
					"GET /v1/billing/unrated lists such usage", indexes[i], slug))
			}
		}
	}
	return warnings
}
