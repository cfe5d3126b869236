package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

const (
	// firstStartKept is how long the start of a customer's first billing period is kept:
	// to find it again reads all events from before the customer was created.
	firstStartKept = time.Minute
	maxFirstStarts = 10_000 // customers with a kept start
)

type customerName struct {
	tenant     metering.TenantID
	externalID string
}

type firstStart struct{ start, readAt time.Time }

// earlyWarnings warn once per meter of events from before their customer's first billing
// period, which nothing bills.
func (s *server) earlyWarnings(ctx context.Context, events []metering.Event, indexes []int, outcomes []db.Outcome) (warnings []string) {
	early := make(map[string]bool)
	for i, outcome := range outcomes {
		if len(outcome.Early) > 0 {
			early[events[i].ExternalID] = true
		}
	}
	if len(early) == 0 {
		return nil
	}
	starts := s.firstStarts(ctx, slices.Sorted(maps.Keys(early)))
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

// firstStarts returns, by external id, where the first billing periods of customers begin,
// as it was at most firstStartKept ago. It leaves out those that it cannot find in time: their
// events are stored, and GET /v1/billing/unrated lists them.
func (s *server) firstStarts(ctx context.Context, externalIDs []string) map[string]time.Time {
	tenant, now := principalOf(ctx).Tenant.ID, s.Now()
	starts := make(map[string]time.Time)
	var missing []string
	for _, id := range externalIDs {
		kept, found := s.firstKept.Get(customerName{tenant, id})
		if !found || now.Sub(kept.readAt) >= firstStartKept {
			missing = append(missing, id)
			continue
		}
		starts[id] = kept.start
	}
	if len(missing) == 0 {
		return starts
	}
	ctx, cancel := context.WithTimeout(ctx, firstStartWait)
	defer cancel()
	read, err := s.Store.Unrated.FirstStarts(ctx, tenant, missing, now)
	if err != nil {
		s.Log.WarnContext(ctx, "cannot compare events with the first billing periods of their customers", "error", err)
	}
	for id, start := range read {
		starts[id] = start
		s.firstKept.Add(customerName{tenant, id}, firstStart{start, now})
	}
	return starts
}
