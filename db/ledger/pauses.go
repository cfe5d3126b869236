package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// pauseOf returns the SQL query of the customer's current pause: the open pause of an operator, otherwise the pause of an
// erased customer.
func pauseOf(tenant, customer string) string {
	return operatorPause(tenant, customer) + `
	  union all` + erasedPause(tenant, customer) + `
	  limit 1`
}

// isPaused returns the SQL condition that the customer's reports are paused.
func isPaused(tenant, customer string) string {
	return `(exists (select from (` + operatorPause(tenant, customer) + `) o) or exists (select from (` + erasedPause(tenant, customer) + `) e))`
}

func operatorPause(tenant, customer string) string {
	return `
	  select b.began_at, b.began_by, b.reason
	  from billing_pauses b
	  where b.tenant_id = ` + tenant + `
	    and b.customer_id = ` + customer + `
	    and b.ended_at is null`
}

// erasedPause returns the SQL query of the pause of an erased customer that the current receiver of statements knows by
// its previous name. That receiver would take the new name for another customer.
func erasedPause(tenant, customer string) string {
	return `
	  select e.erased_at, '` + string(metering.Scheduler) + `', 'the customer is erased, and the receiver knows it by its previous name; cancel the sync'
	  from billing_destinations d
	  join billing_connections k on k.tenant_id = d.tenant_id and k.id = d.connection_id and k.statements and k.retired_at is null
	  join customers e on e.tenant_id = d.tenant_id and e.id = d.customer_id
	  where d.tenant_id = ` + tenant + `
	    and d.customer_id = ` + customer + `
	    and d.renamed`
}

// MarkRenamed records that the customer's destinations know the customer by its previous name.
func MarkRenamed(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) error {
	_, err := tx.Exec(ctx, `update billing_destinations set renamed = true where tenant_id = $1 and customer_id = $2`, tenant, customer)
	return err
}

// RefusePaused returns CodePaused if the customer is paused and the tenant has a provider. Without a provider, there is
// no usage to report, and no sync by which an operator could resume the customer.
func RefusePaused(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) error {
	var paused bool
	err := tx.QueryRow(ctx, `
		select `+isPaused("$1", "$2")+` and exists (
		  select
		  from billing_connections k
		  where k.tenant_id = $1
		    and k.retired_at is null)`, tenant, customer).Scan(&paused)
	if err == nil && paused {
		err = metering.Errorf(metering.CodePaused, "the customer is paused, so its usage is not reported; request a sync with POST /v1/billing/sync, and resume it with POST /v1/billing/syncs/{id}/resume")
	}
	return err
}

var errPaused = metering.Errorf(metering.CodePaused, "the customer is paused")

// Pause stops all reports of the customer until EndPause. Once Pause has returned, no further report is planned
// or leased. A report that is already leased may still be sent. If the customer is already paused, the first
// reason remains.
func (s Syncs) Pause(ctx context.Context, tenant metering.TenantID, by Steering, now time.Time) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := TakeTurn(ctx, tx, tenant, by.Customer); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			insert into billing_pauses (tenant_id, customer_id, began_at, began_by, reason)
			values ($1, $2, $3, $4, $5)
			on conflict (tenant_id, customer_id) where ended_at is null do nothing`,
			tenant, by.Customer, metering.Instant(now), by.Actor, by.Reason); err != nil {
			return err
		}
		return audit.RecordDecision(ctx, tx, tenant, by.decision("pause"), nil, audit.Fields{"customer_id": by.Customer.String(), "paused": true})
	})
	if err != nil {
		return fmt.Errorf("pause customer: %w", err)
	}
	return nil
}

// EndPause ends an operator's pause of the customer. The next sync reports the customer's usage again. ended is false if
// no operator has paused the customer.
func (s Syncs) EndPause(ctx context.Context, tenant metering.TenantID, by Steering, now time.Time) (ended bool, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if ended, err = endPause(ctx, tx, tenant, by, now); err != nil || !ended {
			return err
		}
		return audit.RecordDecision(ctx, tx, tenant, by.decision("resume"), nil, audit.Fields{"customer_id": by.Customer.String(), "paused": false})
	})
	if err != nil {
		return false, fmt.Errorf("end pause of customer: %w", err)
	}
	return ended, nil
}

// endPause ends an operator's pause of the customer.
func endPause(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, by Steering, now time.Time) (ended bool, err error) {
	tag, err := tx.Exec(ctx, `
		update billing_pauses
		set ended_at = $3, ended_by = $4, end_reason = $5
		where tenant_id = $1
		  and customer_id = $2
		  and ended_at is null`, tenant, by.Customer, metering.Instant(now), by.Actor, by.Reason)
	return tag.RowsAffected() > 0, err
}
