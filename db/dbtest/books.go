package dbtest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// Books inserts a tenant's billing periods, and the reports and invoices of a provider, directly into the tables. It
// applies no billing rule.
type Books struct {
	testing.TB
	conn       *pgx.Conn
	tenant     metering.TenantID
	Connection metering.ConnectionID
	number     int64 // number of the last report
}

// NewBooks returns Books for a tenant. It makes a Stripe account in live mode the tenant's provider.
func NewBooks(t testing.TB, store *db.DB, conn *pgx.Conn, tenant metering.TenantID) *Books {
	t.Helper()
	live := true
	connection := Provider(t, store, tenant, metering.Provider{
		Kind: metering.Stripe, Invoices: true, Account: "acct_1", Livemode: &live, SealedSecret: []byte("sealed"), LastFour: "abcd", ValidatedAt: clock.Now(),
	})
	return &Books{TB: t, conn: conn, tenant: tenant, Connection: connection.ID}
}

func (b *Books) scan(sql string, args pgx.NamedArgs, into ...any) {
	b.Helper()
	args["tenant"], args["connection"] = b.tenant, b.Connection
	require.NoError(b, b.conn.QueryRow(b.Context(), sql, args).Scan(into...))
}

func (b *Books) exec(sql string, args pgx.NamedArgs) {
	b.Helper()
	args["tenant"], args["connection"] = b.tenant, b.Connection
	_, err := b.conn.Exec(b.Context(), sql, args)
	require.NoError(b, err)
}

// Period stores a billing period of the subscription sub_1. If closed is true, the period was closed at its end.
func (b *Books) Period(customer metering.CustomerID, r metering.Range, closed bool) (id metering.PeriodID) {
	b.Helper()
	b.scan(`
		insert into billing_periods (tenant_id, customer_id, starts_at, ends_at, subscription, subscription_start, subscription_end, watermark_configuration, closed_at)
		values (@tenant, @customer, @start, @end, 'sub_1', @start, @end, 'reported', case when @closed then @end::timestamptz end)
		returning id`, pgx.NamedArgs{"customer": customer, "start": r.Start, "end": r.End, "closed": closed}, &id)
	return id
}

// Total stores the total of a closed period, billed by a provider at 2 USD a unit.
func (b *Books) Total(period metering.PeriodID, m metering.Meter, usage string) {
	b.Helper()
	b.exec(`
		insert into billing_period_totals
		  (tenant_id, period_id, meter_id, meter_version_id, usage, event_count, price_version, charge, currency, working, billed, test)
		values (@tenant, @period, @meter, @version, @usage, 1, 1, 2 * @usage::numeric, 'USD', '[]', true, false)`, pgx.NamedArgs{
		"period": period, "meter": m.ID, "version": m.Version.ID, "usage": usage,
	})
}

// Report stores a report that sets the quantity at a target to value.
func (b *Books) Report(period metering.PeriodID, meter metering.MeterID, target, value string, state billing.State) {
	b.Helper()
	b.number++
	args := pgx.NamedArgs{"period": period, "meter": meter, "target": target, "value": value, "state": state, "id": uuid.New(), "number": b.number}
	b.exec(`
		insert into billing_destinations (tenant_id, customer_id, connection_id, provider_customer)
		select tenant_id, customer_id, @connection, 'cus_1'
		from billing_periods
		where tenant_id = @tenant and id = @period
		on conflict do nothing`, args)
	b.exec(`
		insert into billing_series (tenant_id, destination_id, kind, target, counting, meter_id, period_id, window_start, window_end)
		select p.tenant_id, d.id, 'quantity', @target, 'replaces', @meter, p.id, p.starts_at, p.ends_at
		from billing_periods p
		join billing_destinations d on d.tenant_id = p.tenant_id and d.customer_id = p.customer_id and d.connection_id = @connection
		where p.tenant_id = @tenant and p.id = @period
		on conflict do nothing`, args)
	b.exec(`
		insert into billing_reports (tenant_id, id, customer_id, number, series_id, period_id, quantity, body, state, recorded_at)
		select p.tenant_id, @id, p.customer_id, @number, s.id, p.id, @value, '{}', @state, p.starts_at
		from billing_periods p
		join billing_series s on s.tenant_id = p.tenant_id and s.period_id = p.id and s.meter_id = @meter and s.target = @target
		join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id and d.connection_id = @connection
		where p.tenant_id = @tenant and p.id = @period`, args)
	b.exec(`
		insert into billing_report_lines (tenant_id, report_id, line, meter_id, period_id, usage, event_count, quantity, price_version, unit_price, charge, amount, currency)
		values (@tenant, @id, 1, @meter, @period, @value, 1, @value, 0, 0, 0, 0, 'USD')`, args)
	b.exec(`
		update billing_period_totals
		set unreconciled = true
		where tenant_id = @tenant and period_id = @period and meter_id = @meter`, args)
}

// Invoice is an invoice of a period of the subscription sub_1.
type Invoice struct {
	ID       string
	Period   metering.Range
	Status   string // draft: not final; void: not payable
	Renewal  bool
	Version  int    // 0 means 1
	Currency string // "" means USD
}

// Save stores the invoice, or its next version. billed is the quantity of each meter, at a price of 3 a
// unit.
func (b *Books) Save(customer metering.CustomerID, in Invoice, billed map[metering.MeterID]string) {
	b.Helper()
	args := pgx.NamedArgs{
		"customer": customer, "id": in.ID, "start": in.Period.Start, "end": in.Period.End, "status": in.Status, "void": in.Status == "void", "renewal": in.Renewal,
		"version": max(in.Version, 1), "currency": in.Currency, "finalized": nil,
	}
	if in.Status != "draft" {
		args["finalized"] = in.Period.End.Add(time.Hour)
	}
	if in.Currency == "" {
		args["currency"] = "USD"
	}
	b.exec(`
		insert into billing_invoices
		  (tenant_id, connection_id, invoice_id, customer_id, provider_customer, subscription, period_start, period_end, renewal, status, void, reason, currency, total, version, created_at, finalized_at, read_at)
		values (@tenant, @connection, @id, @customer, 'cus_1', 'sub_1', @start, @end, @renewal, @status, @void, 'subscription_cycle', @currency, 0, @version, @end, @finalized, @end)
		on conflict (tenant_id, connection_id, invoice_id) do update
		set status = excluded.status, void = excluded.void, version = excluded.version, finalized_at = excluded.finalized_at`, args)
	line := 0
	for meter, quantity := range billed {
		line++
		args["line"], args["meter"], args["quantity"] = line, meter, quantity
		b.exec(`
			insert into billing_invoice_lines
			  (tenant_id, connection_id, invoice_id, version, line, line_id, meter_id, proration, quantity, amount, period_start, period_end, recorded_at)
			values (@tenant, @connection, @id, @version, @line, 'il_1', @meter, false, @quantity, 3 * @quantity::numeric, @start, @end, @end)`, args)
	}
}

// Reconcile stores a reconciliation of a closed period's meter.
func (b *Books) Reconcile(period metering.PeriodID, r billing.Reconciliation) {
	b.Helper()
	b.exec(`
		update billing_period_totals
		set unreconciled = false
		where tenant_id = @tenant and period_id = @period and meter_id = @meter`, pgx.NamedArgs{"period": period, "meter": r.MeterID})
	b.exec(`
		insert into billing_reconciliations (tenant_id, customer_id, period_id, meter_id, units, reported, invoiced, unexplained, elsewhere, billed, state, reason, recorded_at)
		select tenant_id, customer_id, id, @meter, @units, @reported, @invoiced, @unexplained, @elsewhere, @billed, @state, @reason, ends_at
		from billing_periods
		where tenant_id = @tenant and id = @period`, pgx.NamedArgs{
		"period": period, "meter": r.MeterID, "units": r.Units, "reported": r.Reported, "invoiced": r.Invoiced, "unexplained": r.Unexplained, "elsewhere": r.Elsewhere, "billed": r.Billed,
		"state": r.State, "reason": r.Reason,
	})
}
