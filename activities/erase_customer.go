package activities

import (
	"context"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/db"
)

// eventsErased at once hold a transaction up for a second or so.
const eventsErased = 2000

// EraseGroupsResult says where the customer is shown.
type EraseGroupsResult struct {
	Page string `json:"page,omitempty"` // of the customer in the API
}

// EraseGroups replaces the keys of groups that only the customer has used.
func (a *Activities) EraseGroups(ctx context.Context, in CustomerInput) (EraseGroupsResult, error) {
	defer alive(ctx)()
	err := a.inTurn(ctx, in.TenantID, func() error { return a.store.Erasures.Groups(ctx, in.TenantID, in.CustomerID, a.now()) })
	return EraseGroupsResult{a.pageOf(in.CustomerID)}, err
}

// EraseEvents erases what the customer's events say. Where it is cut short, the
// next attempt goes on from the last events of which the server has heard.
func (a *Activities) EraseEvents(ctx context.Context, in CustomerInput) error {
	var after db.EventsAfter
	if activity.HasHeartbeatDetails(ctx) {
		_ = activity.GetHeartbeatDetails(ctx, &after) // else from the beginning: what is erased already is passed over
	}
	for !after.Done {
		stop := alive(ctx, after)
		err := a.inTurn(ctx, in.TenantID, func() (err error) {
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

// EraseMessages erases the customer's name from reports, messages and answers.
func (a *Activities) EraseMessages(ctx context.Context, in CustomerInput) error {
	defer alive(ctx)()
	return a.inTurn(ctx, in.TenantID, func() error { return a.store.Erasures.Messages(ctx, in.TenantID, in.CustomerID) })
}

// FinishErasure notes that nothing personal of the customer is left.
func (a *Activities) FinishErasure(ctx context.Context, in CustomerInput) error {
	defer alive(ctx)()
	return a.store.Erasures.Finish(ctx, in.TenantID, in.CustomerID, a.now())
}
