package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// SQL conditions that the tenant has an enabled alert, and that it has a quota with a limit.
const (
	hasAlertOfAny = `exists (select from alerts where tenant_id = @tenant and enabled)`
	hasLimitOfAny = `exists (select from quotas where tenant_id = @tenant and amount is not null)`
)

// HasAlerts returns the SQL that reports whether an enabled alert, or a quota with a limit, may apply to a
// customer of the tenant. If the tenant has neither, a statement needs only two lookups, for any number of
// customers.
func HasAlerts(customer string) string {
	return `(` + hasAlertOfAny + ` and (` + MayWatch(customer, "a.enabled") + `)
	  or ` + hasLimitOfAny + ` and (` + appliesToCustomerSQL("quotas", customer, "a.amount is not null") + `))`
}

// MayWatch returns the SQL that reports whether an alert that meets a condition may apply to a customer of the
// tenant. Such an alert applies to all customers, or appliesToCustomerSQL selects it. In the condition, a is the alert.
func MayWatch(customer, condition string) string {
	return `exists (select from alerts a where a.tenant_id = @tenant and ` + condition + ` and a.customer_id is null and a.plan_id is null)
	    or ` + appliesToCustomerSQL("alerts", customer, condition)
}

// appliesToCustomerSQL returns the SQL that reports whether a row of alerts or quotas meets a condition and applies to
// a customer of the tenant. In the condition, a is the row. The row names the customer, or a plan that the
// customer has at any time.
func appliesToCustomerSQL(table, customer, condition string) string {
	return `exists (
	      select
	      from ` + table + ` a
	      where a.tenant_id = @tenant
	        and a.customer_id = ` + customer + `
	        and ` + condition + `)
	    or exists (
	      select
	      from customer_plans h
	      join ` + table + ` a on a.tenant_id = h.tenant_id and a.plan_id = h.plan_id and ` + condition + `
	      where h.tenant_id = @tenant
	        and h.customer_id = ` + customer + `)`
}

// QueueAlerts queues a customer for the evaluation of alerts and quotas, after a change of a value that these
// read. It queues nothing if no enabled alert and no quota with a limit can apply. Customer 0 queues all
// customers in one row, which the evaluator expands later, because the caller may hold the tenant's lock.
func QueueAlerts(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) error {
	applies := HasAlerts("@customer")
	if customer == 0 {
		applies = hasAlertOfAny + ` or ` + hasLimitOfAny
	}
	_, err := tx.Exec(ctx, `
		insert into alert_due (tenant_id, customer_id)
		select @tenant::bigint, @customer::bigint
		where `+applies, pgx.NamedArgs{"tenant": tenant, "customer": customer})
	if err != nil {
		return fmt.Errorf("queue alerts: %w", err)
	}
	return nil
}
