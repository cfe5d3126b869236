package pg

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Roles are the PostgreSQL roles of the API and the worker, created by the database administrator. Migrate
// grants them the privileges that they need, and revokes all others. An empty name means that the process
// connects as the owner.
type Roles struct{ API, Worker string }

// Privileges of a role on every table, and on the tables with fewer privileges.
const (
	onEveryTable = "select, insert, update"
	onAuditLog   = "select, insert" // audit entries are immutable
	onMigrations = "select"
)

// Tables from which each role may delete rows. They include events and usage_hourly, because the creation of a
// chunk inserts a row and deletes it again.
var (
	deletedByAPI    = []string{"events", "usage_hourly", "usage_added", "people", "oidc_issuers", "oidc_identities", "oidc_sign_ins", "request_ids", "webhook_endpoints", "billing_syncs", "event_conflicts", "alert_due", "quotas"}
	deletedByWorker = []string{"events", "usage_hourly", "usage_monthly", "usage_added", "backfill_days", "backfill_hours", "event_keys", "usage_groups", "forgotten_days", "usage_discrepancies", "event_counts", "uncounted_events", "event_conflicts", "outbox", "webhook_budgets", "request_ids", "alert_due", "alert_firings", "alerts", "exceeded_quotas", "quota_reservations", "quotas", "sessions", "invitations", "billing_syncs", "provider_events"}
)

// grant gives the roles exactly the privileges that they need.
func (p *Pool) grant(ctx context.Context, roles Roles) error {
	return InTx(ctx, p, func(tx pgx.Tx) error {
		if err := LockTenant(ctx, tx, 0); err != nil { // tenant 0 does not exist; concurrent migrations wait for its lock
			return err
		}
		for _, of := range []struct {
			setting, role string
			deletes       []string
		}{{"API_ROLE", roles.API, deletedByAPI}, {"WORKER_ROLE", roles.Worker, deletedByWorker}} {
			if of.role == "" {
				continue
			}
			if err := mayBeGranted(ctx, tx, of.setting, of.role); err != nil {
				return err
			}
			if err := grantTo(ctx, tx, of.role, of.deletes); err != nil {
				return fmt.Errorf("grant to %s: %w", of.setting, err)
			}
			if err := keepValuesOutOfLog(ctx, tx, of.role); err != nil {
				return fmt.Errorf("set up %s: %w", of.setting, err)
			}
		}
		return nil
	})
}

// mayBeGranted returns CodeInvalid if the role does not exist, is a superuser, or is the owner of the tables.
// Grants do not restrict superusers and owners.
func mayBeGranted(ctx context.Context, tx pgx.Tx, setting, role string) error {
	var found, owns bool
	err := tx.QueryRow(ctx, `
		select count(*) > 0, coalesce(bool_or(rolsuper or rolname = current_user), false)
		from pg_roles
		where rolname = $1`, role).Scan(&found, &owns)
	switch {
	case err != nil:
		return err
	case !found:
		return metering.Invalid(setting, "names a role that does not exist; create it first with: create role … login password '…'")
	case owns:
		return metering.Invalid(setting, "must not name the tables' owner or a superuser")
	}
	return nil
}

func grantTo(ctx context.Context, tx pgx.Tx, role string, deletes []string) error {
	var schema string
	var tables []string
	err := tx.QueryRow(ctx, `
		select current_schema, array_agg(relname::text)
		from pg_class
		where relnamespace = current_schema::regnamespace
		  and relkind in ('r', 'p', 'v')`).Scan(&schema, &tables)
	if err != nil {
		return err
	}
	to, in := pgx.Identifier{role}.Sanitize(), pgx.Identifier{schema}.Sanitize()
	statements := []string{
		fmt.Sprintf(`grant usage on schema %s to %s`, in, to),
		fmt.Sprintf(`grant usage, select on all sequences in schema %s to %s`, in, to),
	}
	for _, table := range tables {
		may := onEveryTable
		switch {
		case table == "audit_log":
			may = onAuditLog
		case strings.HasPrefix(table, "goose_"):
			may = onMigrations
		case slices.Contains(deletes, table):
			may += ", delete"
		}
		name := pgx.Identifier{schema, table}.Sanitize()
		statements = append(statements,
			fmt.Sprintf(`revoke all on %s from %s`, name, to),
			fmt.Sprintf(`grant %s on %s to %s`, may, name, to))
	}
	// TimescaleDB adds a hypertable's chunks to the parsed statement. Executing a prepared grant twice
	// crashes the server (2.19.3).
	_, err = tx.Exec(ctx, strings.Join(statements, ";\n"), pgx.QueryExecModeSimpleProtocol)
	return err
}

// keepValuesOutOfLog makes PostgreSQL log a role's errors without values, such as the e-mail of an existing
// member. If the owner lacks the privilege for that, an administrator must do it
// (docs/operating/database.md).
func keepValuesOutOfLog(ctx context.Context, tx pgx.Tx, role string) error {
	var database string
	if err := tx.QueryRow(ctx, `select current_database()`).Scan(&database); err != nil {
		return err
	}
	set := `alter role ` + pgx.Identifier{role}.Sanitize() + ` in database ` + pgx.Identifier{database}.Sanitize() + ` set log_error_verbosity = terse`
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, set)
		return err
	})
	if SQLState(err) == stateInsufficientPrivilege {
		return nil
	}
	return err
}

// RunAsOwner runs fn as the owner of the tables. Only maintenance needs that: to drop and compress chunks, and
// to refresh the daily aggregate.
func RunAsOwner(ctx context.Context, conn Querier, fn func() error) (err error) {
	var owner string
	if err := conn.QueryRow(ctx, `select tableowner from pg_tables where schemaname = current_schema and tablename = 'events'`).Scan(&owner); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `set role `+pgx.Identifier{owner}.Sanitize()); err != nil {
		return fmt.Errorf("maintenance runs as the tables' owner; grant that role to the worker's role: %w", err)
	}
	defer func() {
		if _, failed := conn.Exec(context.WithoutCancel(ctx), `reset role`); err == nil {
			err = failed
		}
	}()
	return fn()
}
