package activities

import (
	"context"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// readAddedUp reads the provider's counts and charges of the customer's open periods after the
// ledger was restored from a backup. The restored ledger lacks the reports that were made after the
// backup. No report was sent since the restore. Therefore, the provider's counts are complete once
// CountsWithin has passed since the restore.
func (a *Activities) readAddedUp(ctx context.Context, in CustomerInput) error {
	now := a.now()
	reading, unread, err := a.store.Restores.Unread(ctx, in.TenantID, in.CustomerID, now)
	if err != nil || !unread {
		return err
	}
	active, err := a.store.Providers.Active(ctx, in.TenantID)
	if err != nil {
		return err
	}
	p, err := a.openProvider(in.TenantID, active)
	if err != nil {
		return err
	}
	if len(reading.Places) > 0 && now.Before(reading.RaisedAt.Add(p.CountsWithin)) {
		return nil
	}
	seen := ledger.Seen{Customer: reading.Customer}
	if lists, ok := p.Provider.(providers.Charges); ok && reading.Customer != "" {
		seen.Charges, err = measureCall(a.metrics, p.Kind, func() ([]billing.FoundCharge, error) {
			return lists.Charges(ctx, p.credentials, reading.Customer, reading.Since)
		})
		if err != nil {
			return err
		}
	}
	for _, at := range reading.Places {
		counted, err := measureCall(a.metrics, p.Kind, func() (metering.Decimal, error) {
			return p.Count(ctx, p.credentials, providers.Place{Method: at.Method, Target: at.Target, Customer: at.Customer, Range: at.Window})
		})
		if err != nil {
			return err
		}
		seen.Added = append(seen.Added, billing.Found{AddedUp: at, Counted: counted})
	}
	return a.store.Restores.Read(ctx, in.TenantID, in.CustomerID, seen, a.providers.Frame, now)
}
