package ledger

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// unfinishedKind is a kind of work that blocks the deletion of a provider or the erasure of a customer:
// a statement that selects its ids, and a format of the advice for the caller.
type unfinishedKind struct{ ids, advice string }

// unfinished lists the kinds of work at a connection that block its deletion.
var unfinished = []unfinishedKind{
	{
		`select r.id::text from ` + reportsTo + ` and r.state = 'sending' and r.lease_until > @now order by r.id`,
		"%s: these reports are being sent; try again in a minute",
	},
	{
		`select 'per_' || p.id from billing_periods p where p.tenant_id = @tenant and ` + closedIncomplete + ` and ` + hasBilled + ` order by p.id`,
		"%s: these billing periods are closed but not billed in full, and the rest would never be billed; wait until they are complete, or save the provider that replaces this one",
	},
	{
		`select 'hld_' || id from billing_holds where tenant_id = @tenant and connection_id = @connection and ended_at is null order by id`,
		"%s: these holds would never be released; release them first",
	},
}

// openBilling lists the kinds of unfinished billing of a customer that block its erasure.
var openBilling = []unfinishedKind{
	{
		`select id::text from billing_reports where tenant_id = @tenant and customer_id = @customer and state in ('planned', 'sending', 'in_doubt') order by id`,
		"%s: these reports have no known outcome; sync the customer, or resolve the reports in state in_doubt",
	},
	{
		`select id::text from billing_syncs where tenant_id = @tenant and customer_id = @customer and status in ('requested', 'running') order by id`,
		"%s: these syncs have not finished; wait, or cancel them",
	},
	{
		`select 'per_' || p.id from billing_periods p where p.tenant_id = @tenant and p.customer_id = @customer and ` + closedIncomplete + ` and ` + hasBilled + ` order by p.id`,
		"%s: these billing periods are closed but not billed in full; wait until they are complete",
	},
	{
		`select 'hld_' || id from billing_holds where tenant_id = @tenant and customer_id = @customer and ended_at is null order by id`,
		"%s: these holds are not released; release them first",
	},
}

// RefuseOpenBilling returns CodeConflict if billing of the customer is unfinished.
func RefuseOpenBilling(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) error {
	return refuseUnfinished(ctx, tx, openBilling, pgx.NamedArgs{"tenant": tenant, "customer": customer})
}

// refuseUnfinished returns CodeConflict if there is unfinished work. The message lists at most five
// ids of each kind.
func refuseUnfinished(ctx context.Context, tx pgx.Tx, kinds []unfinishedKind, args pgx.NamedArgs) error {
	const named = 5
	var problems []string
	for _, u := range kinds {
		rows, err := tx.Query(ctx, u.ids, args)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		if len(ids) > 0 {
			shown := strings.Join(ids[:min(named, len(ids))], ", ")
			if len(ids) > named {
				shown += fmt.Sprintf(" and %d more", len(ids)-named)
			}
			problems = append(problems, fmt.Sprintf(u.advice, shown))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return metering.Errorf(metering.CodeConflict, "%s", strings.Join(problems, ". "))
}
