package db_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// lineTables inserts a line into each table that has lines of a closed period: with the tenant, the period, the
// component, the meter, and the version of the meter if the component is usage.
var lineTables = []struct {
	table      string
	references bool // a line of billing_period_totals
	insert     string
}{
	{"billing_period_totals", false, `
		insert into billing_period_totals
		  (tenant_id, period_id, component, meter_id, meter_version_id, usage, event_count, price_version, charge, currency, working, billed, test)
		values (@tenant, @period, @component, @meter, @version, 0, 0, 0, 5, 'USD', '[]', true, false)`},
	{"billing_adjustments", true, `
		insert into billing_adjustments
		  (tenant_id, customer_id, period_id, component, meter_id, event_count, units_before, units, charge_before, charge, currency, billed, recorded_at)
		select tenant_id, customer_id, id, @component, @meter, 1, 0, 0, 5, 7, 'USD', true, ends_at
		from billing_periods
		where tenant_id = @tenant and id = @period`},
	{"billing_reconciliations", true, `
		insert into billing_reconciliations
		  (tenant_id, customer_id, period_id, component, meter_id, units, reported, invoiced, unexplained, elsewhere, billed, state, reason, recorded_at)
		select tenant_id, customer_id, id, @component, @meter, 5, 5, 0, 0, 0, 0, 'disputed', '', ends_at
		from billing_periods
		where tenant_id = @tenant and id = @period`},
	{"billing_series", false, `
		insert into billing_series (tenant_id, destination_id, kind, target, counting, component, meter_id, period_id, window_start, window_end)
		select p.tenant_id, d.id, 'charge', 'sub_1', 'replaces', @component, @meter, p.id, p.starts_at, p.ends_at
		from billing_periods p
		join billing_destinations d on d.tenant_id = p.tenant_id and d.customer_id = p.customer_id
		where p.tenant_id = @tenant and p.id = @period`},
	{"billing_report_lines", false, `
		insert into billing_report_lines
		  (tenant_id, report_id, line, component, meter_id, period_id, usage, event_count, quantity, price_version, unit_price, charge, amount, currency)
		select l.tenant_id, l.report_id, max(l.line) + 1, @component, @meter, l.period_id, 0, 0, 0, 0, 0, 5, 5, 'USD'
		from billing_report_lines l
		where l.tenant_id = @tenant and l.period_id = @period
		group by 1, 2, l.period_id`},
}

// TestTablesAcceptLinesWithoutAMeter adds a component, as a later version does. Its lines need no meter. No
// other part of the tables has to change.
func TestTablesAcceptLinesWithoutAMeter(t *testing.T) {
	t.Parallel()
	b, period := newUnmetered(t)
	other := dbtest.Meter(t, b.store, b.tenant, "mails", "mail")
	insert := func(sql, component string, meter any) error {
		args := pgx.NamedArgs{"tenant": b.tenant, "period": period, "component": component, "meter": meter, "version": nil}
		if component == "usage" {
			args["version"] = other.Version.ID
		}
		_, err := b.conn.Exec(t.Context(), sql, args)
		return err
	}
	refused := func(err error, code, table string) {
		t.Helper()
		var refusal *pgconn.PgError
		require.ErrorAs(t, err, &refusal, table)
		require.Equal(t, code, refusal.Code, "%s: %s", table, refusal.Message)
	}
	const check, unique, foreign = "23514", "23505", "23503" // SQLSTATEs of the violated constraints

	for _, l := range lineTables {
		refused(insert(l.insert, "fee", nil), check, l.table)
	}
	b.addComponents()
	for _, l := range lineTables {
		if l.references {
			refused(insert(l.insert, "fee", nil), foreign, l.table)
			refused(insert(l.insert, "fee", b.meter.ID), foreign, l.table)
		}
	}
	for _, l := range lineTables {
		for _, meter := range []any{nil, b.meter.ID} {
			require.NoError(t, insert(l.insert, "fee", meter), l.table)
			require.NoError(t, insert(l.insert, "credit", meter), l.table)
		}
		require.NoError(t, insert(l.insert, "usage", other.ID), l.table)
		if l.references {
			refused(insert(l.insert, "usage", nil), foreign, l.table)
		} else {
			refused(insert(l.insert, "usage", nil), check, l.table)
		}
		if l.table == "billing_reconciliations" {
			continue // the last one applies
		}
		for _, component := range []string{"fee", "credit"} {
			for _, meter := range []any{nil, b.meter.ID} {
				refused(insert(l.insert, component, meter), unique, l.table)
			}
		}
	}
}

// TestNoLineWithoutAMeterIsSkipped checks that no amount disappears: a total includes the line, or the read fails.
func TestNoLineWithoutAMeterIsSkipped(t *testing.T) {
	t.Parallel()
	b, period := newUnmetered(t)
	ctx := t.Context()
	b.storeReconciliation(period, billing.ReconciliationAgreed)
	for _, read := range unmeteredReads {
		require.NoError(t, read.read(b.books), read.name)
	}
	b.addComponents()
	for _, l := range lineTables {
		_, err := b.conn.Exec(ctx, l.insert, pgx.NamedArgs{"tenant": b.tenant, "period": period, "component": "fee", "meter": nil, "version": nil})
		require.NoError(t, err, l.table)
	}
	for _, read := range unmeteredReads {
		require.ErrorContains(t, read.read(b.books), "cannot scan NULL", read.name)
	}
	months, err := b.store.Ledger.Revenue(ctx, b.tenant, b.month.Start, clock.Now())
	require.NoError(t, err)
	var billed metering.Decimal
	for _, m := range months {
		billed = billed.Add(m.Billed)
	}
	require.Equal(t, "27", billed.String(), "20 of the usage, 5 of the fee, and its adjustment of 2")

	made, err := b.store.Ledger.DigestClosed(ctx, 10)
	require.NoError(t, err)
	require.Equal(t, 1, made)
	made, err = b.store.Ledger.DigestClosed(ctx, 10)
	require.NoError(t, err)
	require.Zero(t, made, "a line without usage needs no digest")
}

// unmeteredReads are the reads of lines that cannot show a line without a meter.
var unmeteredReads = []struct {
	name string
	read func(*books) error
}{
	{"plan", func(b *books) error {
		_, err := b.store.Ledger.Books(b.Context(), b.tenant, b.customer.ID, clock.Now())
		return err
	}},
	{"list of reconciliations", func(b *books) error {
		_, err := b.store.Reconciliations.List(b.Context(), b.tenant, ledger.ReconciliationFilter{}, 100)
		return err
	}},
	{"list of disputed reconciliations", func(b *books) error {
		_, err := b.store.Reconciliations.List(b.Context(), b.tenant, ledger.ReconciliationFilter{State: billing.ReconciliationDisputed}, 100)
		return err
	}},
	{"unresolved reconciliations", func(b *books) error {
		_, err := b.store.Reconciliations.Unresolved(b.Context(), b.tenant, b.customer.ID, 100)
		return err
	}},
	{"attention", func(b *books) error {
		_, err := b.store.Attention.List(b.Context(), b.tenant, db.AttentionFilter{}, nil, clock.Now(), 100)
		return err
	}},
}

// unmetered is a tenant with books in a database of its own.
type unmetered struct{ *books }

func newUnmetered(t *testing.T) (b *unmetered, period metering.PeriodID) {
	t.Helper()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	b = &unmetered{newBooksAt(t, store, conn)}
	return b, b.closed(b.month)
}

// addComponents makes the database accept every component.
func (b *unmetered) addComponents() {
	b.Helper()
	_, err := b.conn.Exec(b.Context(), `alter domain billing_component drop constraint billing_component_check`)
	require.NoError(b, err)
}
