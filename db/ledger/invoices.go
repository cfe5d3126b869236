package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Invoices stores the providers' invoices as they were last read. An invoice gets a new version, with
// its own lines, each time that its content has changed.
type Invoices struct{ pool *pg.Pool }

// Save stores a customer's invoice as it was read at readAt, unless a later state is already stored. If the
// content has changed, Save stores a new version. A new version of a final invoice makes the next sync
// re-evaluate the customer.
func (s Invoices) Save(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, in metering.Invoice, readAt time.Time) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := TakeTurn(ctx, tx, tenant, customer); err != nil {
			return err
		}
		w := invoiceWriter{ctx: ctx, tx: tx, tenant: tenant, customer: customer, Invoice: in, readAt: metering.Instant(readAt)}
		return w.save()
	})
	if err != nil {
		return fmt.Errorf("save invoice: %w", err)
	}
	return nil
}

// invoiceWriter stores one invoice.
type invoiceWriter struct {
	ctx      context.Context
	tx       pgx.Tx
	tenant   metering.TenantID
	customer metering.CustomerID
	metering.Invoice
	readAt time.Time

	version int // of the stored invoice; 0: it is not stored yet
}

// save stores the invoice as described for Invoices.Save. The caller has taken the customer's turn.
func (w *invoiceWriter) save() error {
	before, readAt, err := w.stored()
	if err != nil || readAt.After(w.readAt) {
		return err
	}
	w.keepMeters(before)
	if w.version > 0 && w.Same(before) {
		_, err := w.tx.Exec(w.ctx, `update billing_invoices set read_at = $4 where `+thisInvoice, w.tenant, w.Connection, w.ID, w.readAt)
		return err
	}
	w.version++
	if err := w.write(); err != nil {
		return err
	}
	if w.FinalizedAt.IsZero() {
		return nil
	}
	_, err = w.tx.Exec(w.ctx, `update customers set look_again_at = $3 where tenant_id = $1 and id = $2`, w.tenant, w.customer, w.readAt)
	return err
}

const thisInvoice = `tenant_id = $1 and connection_id = $2 and invoice_id = $3`

// stored returns the last stored version of the invoice and the time at which it was read, and sets w.version.
// All are zero if the invoice is not stored.
func (w *invoiceWriter) stored() (in metering.Invoice, readAt time.Time, err error) {
	var finalized *time.Time
	err = w.tx.QueryRow(w.ctx, `select version, status, void, total, finalized_at, read_at from billing_invoices where `+thisInvoice,
		w.tenant, w.Connection, w.ID).Scan(&w.version, &in.Status, &in.Void, &in.Total, &finalized, &readAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return in, readAt, nil
	}
	if err != nil {
		return in, readAt, err
	}
	if finalized != nil {
		in.FinalizedAt = *finalized
	}
	rows, err := w.tx.Query(w.ctx, `
		select line_id, coalesce(meter_id, 0), item, price, report_id, proration, quantity, amount, period_start, period_end
		from billing_invoice_lines
		where `+thisInvoice+`
		  and version = $4
		order by line`, w.tenant, w.Connection, w.ID, w.version)
	if err != nil {
		return in, readAt, err
	}
	in.Lines, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l metering.InvoiceLine, err error) {
		return l, row.Scan(&l.ID, &l.MeterID, &l.Item, &l.Price, &l.ReportID, &l.Proration, &l.Quantity, &l.Amount, &l.Period.Start, &l.Period.End)
	})
	return in, readAt, err
}

// keepMeters copies the meters of a stored final invoice's lines to the same lines of w. A later change of the
// provider's mapping of meters to prices therefore does not move billed usage to another meter.
func (w *invoiceWriter) keepMeters(before metering.Invoice) {
	if before.FinalizedAt.IsZero() {
		return
	}
	for i := range w.Lines {
		was := slices.IndexFunc(before.Lines, func(l metering.InvoiceLine) bool { return l.ID == w.Lines[i].ID })
		if was >= 0 && before.Lines[was].MeterID != 0 {
			w.Lines[i].MeterID = before.Lines[was].MeterID
		}
	}
}

// write stores the invoice and its lines as version w.version.
func (w *invoiceWriter) write() error {
	var finalized *time.Time
	if !w.FinalizedAt.IsZero() {
		finalized = &w.FinalizedAt
	}
	var batch pgx.Batch
	batch.Queue(`
		insert into billing_invoices as i
		  (tenant_id, connection_id, invoice_id, customer_id, provider_customer, subscription, period_start, period_end, renewal, status, void, reason, currency, total,
		   version, decimals, created_at, finalized_at, read_at)
		select @tenant, @connection, @invoice, @customer, @at_provider, @subscription, @start, @end, @renewal, @status, @void, @reason, @currency, @total,
		  @version, case when @finalized::timestamptz is not null then (
		    select coalesce(jsonb_object_agg(m.id, m.usage_scale), '{}')
		    from meters m
		    where m.tenant_id = @tenant
		      and m.usage_scale > 0) end, @created, @finalized, @read_at
		on conflict (tenant_id, connection_id, invoice_id) do update
		set renewal = i.renewal or excluded.renewal, status = excluded.status, void = excluded.void, total = excluded.total, version = excluded.version, decimals = coalesce(i.decimals, excluded.decimals),
		  finalized_at = excluded.finalized_at, read_at = excluded.read_at, sequence = excluded.sequence`, pgx.NamedArgs{
		"tenant": w.tenant, "customer": w.customer, "connection": w.Connection, "invoice": w.ID, "at_provider": w.Invoice.Customer, "subscription": w.Subscription,
		"start": w.Period.Start, "end": w.Period.End, "renewal": w.Renewal, "status": w.Status, "void": w.Void, "reason": w.Reason,
		"currency": w.Currency, "total": w.Total, "version": w.version, "created": w.CreatedAt, "finalized": finalized, "read_at": w.readAt,
	})
	for i, l := range w.Lines {
		batch.Queue(`
			insert into billing_invoice_lines
			  (tenant_id, connection_id, invoice_id, version, line, line_id, meter_id, item, price, report_id, proration, quantity, amount,
			   period_start, period_end, recorded_at)
			values ($1, $2, $3, $4, $5, $6, nullif($7::bigint, 0), $8, $9, $10, $11, $12, $13, $14, $15, $16)`,
			w.tenant, w.Connection, w.ID, w.version, i+1, l.ID, l.MeterID, l.Item, l.Price, l.ReportID, l.Proration, l.Quantity, l.Amount,
			l.Period.Start, l.Period.End, w.readAt)
	}
	return w.tx.SendBatch(w.ctx, &batch).Close()
}
