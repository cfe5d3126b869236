package access

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Maximum deliveries per second for all webhooks of a tenant, and for all webhooks at a host. All workers
// share these budgets. After an idle time, a burst of one second's deliveries is sent at once.
const (
	deliveriesOfTenant = 20
	deliveriesToHost   = 50
)

// budgetAhead is the longest time that a claimed delivery may wait for the budget. If the wait is longer,
// the message stays due.
const budgetAhead = 5 * time.Second

var errNoBudget = metering.Errorf(metering.CodeRateLimited, "the tenant or the host has reached its maximum rate of deliveries")

// spendDelivery takes one delivery from both budgets at an instant of the database's clock. It returns the
// time that the delivery must wait. Every transaction takes from the tenant's budget first, to avoid
// deadlocks.
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
