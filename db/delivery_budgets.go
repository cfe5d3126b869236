package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Deliveries a second: of a tenant, whatever its webhooks, and to a host, whatever the
// tenants. After a pause a second's deliveries are sent at once. All workers share them.
const (
	deliveriesOfTenant = 20
	deliveriesToHost   = 50
)

// budgetAhead is how long a claimed delivery may have to wait for the budget; without
// budget in that time a message stays due.
const budgetAhead = 5 * time.Second

var errNoBudget = metering.Errorf(metering.CodeRateLimited, "the tenant or the host has reached its maximum rate of deliveries")

// spendDelivery takes one delivery from both budgets at an instant of the database's clock,
// and returns how long the delivery waits for them. Every transaction takes from the tenant's
// first, so that no two wait for each other.
func spendDelivery(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, host string, at time.Time) (wait time.Duration, err error) {
	for _, budget := range []struct {
		target    string
		perSecond time.Duration
	}{{tenant.String(), deliveriesOfTenant}, {"host " + host, deliveriesToHost}} {
		var spent time.Time
		err := tx.QueryRow(ctx, `
			insert into webhook_budgets as b (target, spent)
			values (@target, @at::timestamptz + @each::interval)
			on conflict (target) do update
			set spent = greatest(b.spent, @at) + @each
			where b.spent < @latest
			returning spent`, pgx.NamedArgs{
			"target": budget.target, "at": at, "each": time.Second / budget.perSecond, "latest": at.Add(time.Second + budgetAhead),
		}).Scan(&spent)
		if errors.Is(err, pgx.ErrNoRows) {
			return 0, errNoBudget
		}
		if err != nil {
			return 0, err
		}
		wait = max(wait, spent.Sub(at)-time.Second/budget.perSecond-time.Second)
	}
	return wait, nil
}
