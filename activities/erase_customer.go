package activities

import (
	"context"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/db"
)

// eventsErased is the maximum number of events that one transaction erases, which takes about a second.
const eventsErased = 2000

// EraseGroupsResult contains the customer's URL for the details of the run.
type EraseGroupsResult struct {
	Page string `json:"page,omitempty"` // the customer's URL in the API
}

// EraseGroups replaces the keys of groups that only the customer has used.
func (a *Activities) EraseGroups(ctx context.Context, in CustomerInput) (EraseGroupsResult, error) {
	defer sendHeartbeats(ctx)()
	err := a.runInTurn(ctx, in.TenantID, func() error { return a.store.Erasures.Groups(ctx, in.TenantID, in.CustomerID, a.now()) })
	return EraseGroupsResult{a.pageOf(in.CustomerID)}, err
}

// EraseEvents erases the content of the customer's events. A retry continues after the last events
// in the heartbeat.
func (a *Activities) EraseEvents(ctx context.Context, in CustomerInput) error {
	var after db.EventsAfter
	if activity.HasHeartbeatDetails(ctx) {
		_ = activity.GetHeartbeatDetails(ctx, &after) // after an error, start from the beginning: erased events are skipped
	}
	for !after.Done {
		stop := sendHeartbeats(ctx, after)
		err := a.runInTurn(ctx, in.TenantID, func() (err error) {
			after, err = a.store.Erasures.Events(ctx, in.TenantID, in.CustomerID, after, eventsErased)
			return err
		})
		stop()
		if err != nil {
			return err
		}
		activity.RecordHeartbeat(ctx, after)
	}
	return nil
}

// EraseMessages erases the customer's name from reports, messages and stored responses.
func (a *Activities) EraseMessages(ctx context.Context, in CustomerInput) error {
	defer sendHeartbeats(ctx)()
	return a.runInTurn(ctx, in.TenantID, func() error { return a.store.Erasures.Messages(ctx, in.TenantID, in.CustomerID) })
}

// FinishErasure records that the database contains no more personal data of the customer.
func (a *Activities) FinishErasure(ctx context.Context, in CustomerInput) error {
	defer sendHeartbeats(ctx)()
	return a.store.Erasures.Finish(ctx, in.TenantID, in.CustomerID, a.now())
}
