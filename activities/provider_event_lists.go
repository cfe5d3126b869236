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

// ListEventsResult is what was found in a page of the provider's list of events.
type ListEventsResult struct {
	Missed []MissedEvent `json:"missed,omitempty"` // those that had not come
	More   bool          `json:"more"`             // there are older ones that may not be known
}

// MissedEvent is the row of an event that had not come, and whom it is about;
// 0: none of ours.
type MissedEvent struct {
	RowID      metering.ProviderEventID `json:"row_id"`
	CustomerID metering.CustomerID      `json:"customer_id"`
}

// ListEvents asks the provider, if it keeps a list of its events, for the next
// page of those that may never have come. What is found is kept as what is
// delivered, so that an event that does both is one row.
func (a *Activities) ListEvents(ctx context.Context, in TenantInput) (ListEventsResult, error) {
	defer alive(ctx)()
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
	p, err := a.open(in.TenantID, active)
	if err != nil {
		return ListEventsResult{}, err
	}
	walk, err := a.store.ProviderEvents.Walk(ctx, in.TenantID, active.ID)
	if err != nil {
		return ListEventsResult{}, err
	}
	if from := now.Add(-list.KeepsEvents()); walk.Missed(from) {
		activity.GetLogger(ctx).Warn("the provider no longer lists events of this time range; the worker lists invoices of open reconciliations instead",
			"tenant", in.TenantID.String(), "since", walk.Since.UTC().Format(time.RFC3339), "until", from.UTC().Format(time.RFC3339))
		a.metrics.gaps.Inc()
		if walk, err = a.store.ProviderEvents.Skip(ctx, in.TenantID, walk, from); err != nil {
			return ListEventsResult{}, err
		}
	}
	page, err := measured(a.metrics, p.Kind, func() (providers.EventPage, error) {
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
