package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// TenantInput names a tenant.
type TenantInput struct {
	TenantID metering.TenantID `json:"tenant_id"`
}

// ListEventsResult is the result of reading one page of the provider's list of events.
type ListEventsResult struct {
	Missed []MissedEvent `json:"missed,omitempty"` // events that had not arrived
	More   bool          `json:"more"`             // there are further pages
}

// MissedEvent names the row and the customer of an event that had not arrived. CustomerID is 0 if
// the event concerns no customer in Odometer.
type MissedEvent struct {
	RowID      metering.ProviderEventID `json:"row_id"`
	CustomerID metering.CustomerID      `json:"customer_id"`
}

// ListEvents reads the next page of the provider's list of events, if the provider has such a list.
// It stores events in the same way as delivered events, so that an event that is both listed and
// delivered has one row.
func (a *Activities) ListEvents(ctx context.Context, in TenantInput) (ListEventsResult, error) {
	defer sendHeartbeats(ctx)()
	now := a.now()
	active, err := a.store.Providers.Active(ctx, in.TenantID)
	if err != nil {
		return ListEventsResult{}, err
	}
	kind, err := a.providers.Of(active.Kind)
	if err != nil {
		return ListEventsResult{}, err
	}
	list, keeps := kind.(providers.EventList)
	if !keeps {
		return ListEventsResult{}, nil
	}
	p, err := a.openProvider(in.TenantID, active)
	if err != nil {
		return ListEventsResult{}, err
	}
	walk, err := a.store.ProviderEvents.Walk(ctx, in.TenantID, active.ID)
	if err != nil {
		return ListEventsResult{}, err
	}
	if from := now.Add(-list.KeepsEvents()); walk.HasGap(from) {
		activity.GetLogger(ctx).Warn("the provider no longer lists events of this time range; the worker lists invoices of open reconciliations instead",
			"tenant", in.TenantID.String(), "since", walk.Since.UTC().Format(time.RFC3339), "until", from.UTC().Format(time.RFC3339))
		a.metrics.gaps.Inc()
		if walk, err = a.store.ProviderEvents.Skip(ctx, in.TenantID, walk, from); err != nil {
			return ListEventsResult{}, err
		}
	}
	page, err := measureCall(a.metrics, p.Kind, func() (providers.EventPage, error) {
		return list.ListEvents(ctx, p.credentials, providers.EventQuestion{Since: walk.Since, After: walk.After})
	})
	if err != nil {
		return ListEventsResult{}, err
	}
	if !page.More {
		page.Last = ""
	}
	kept, err := a.store.ProviderEvents.StoreListed(ctx, in.TenantID, walk, page.Events, page.Last, now)
	a.metrics.missed.Add(float64(len(kept)))
	result := ListEventsResult{More: page.More}
	for _, e := range kept {
		result.Missed = append(result.Missed, MissedEvent{e.Row, e.Customer})
	}
	return result, err
}
