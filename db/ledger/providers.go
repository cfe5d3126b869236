package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Providers stores the tenants' billing providers. Each tenant has at most one active provider.
type Providers struct{ pool *pg.Pool }

// Save makes provider the tenant's active provider and retires the previous one. The caller has sealed the
// secrets. If the tenant was connected to the same account in the same mode before, Save reuses that connection
// and its series. A receiver of statements has no account, so Save reuses the last connection at its address.
// If there is none, Save reuses the last receiver, and treats it as moved to the new address.
func (p Providers) Save(ctx context.Context, tenant metering.TenantID, actor metering.Actor, provider metering.Provider) (metering.Provider, error) {
	return p.save(ctx, tenant, actor, provider, false)
}

// Begin saves a receiver as a new connection, without the reports of earlier connections. If the
// active connection has the receiver's address already, Begin updates it, so a retry is safe.
func (p Providers) Begin(ctx context.Context, tenant metering.TenantID, actor metering.Actor, provider metering.Provider) (metering.Provider, error) {
	return p.save(ctx, tenant, actor, provider, true)
}

func (p Providers) save(ctx context.Context, tenant metering.TenantID, actor metering.Actor, provider metering.Provider, begin bool) (metering.Provider, error) {
	err := pg.InTx(ctx, p.pool, func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, `
			select 1
			from tenants
			where id = $1
			for no key update`, tenant); err != nil {
			return err
		}
		former, err := formerProvider(ctx, tx, tenant)
		if err != nil {
			return err
		}
		if provider.ID, err = knownConnection(ctx, tx, tenant, provider, begin); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			update billing_connections
			set retired_at = now()
			where tenant_id = $1
			  and retired_at is null
			  and id <> $2`, tenant, provider.ID); err != nil {
			return err
		}
		if err := storeConnection(ctx, tx, tenant, actor, &provider); err != nil {
			return err
		}
		if err := refuseQuantities(ctx, tx, tenant, provider, provider.ValidatedAt); err != nil {
			return err
		}
		if err := catalog.QueueAlerts(ctx, tx, tenant, 0); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "provider.save", provider.ID.String(), former, auditedProvider(provider))
	})
	if err != nil {
		return metering.Provider{}, fmt.Errorf("save provider: %w", err)
	}
	return provider, nil
}

// knownConnection returns the id of the stored connection that the provider continues, or 0 if the
// provider is a new connection. If begin is true, only the active connection at the provider's
// address is continued.
func knownConnection(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, provider metering.Provider, begin bool) (id metering.ConnectionID, err error) {
	err = tx.QueryRow(ctx, `
		select id
		from billing_connections
		where tenant_id = $1
		  and kind = $2
		  and account = $5
		  and livemode is not distinct from $6
		  `+likeliest, tenant, provider.Kind, provider.Address, begin, provider.Account, provider.Livemode).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return id, err
}

// likeliest is the SQL that selects one connection: the one at address $3, otherwise the active one, otherwise the one
// that was retired last. If $4 is true (a new receiver), only the active connection at the address qualifies.
const likeliest = `and (not $4 or retired_at is null and address = $3)
		order by address = $3 desc, retired_at desc nulls first, id desc
		limit 1`

// storeConnection inserts the active connection, or updates it if it has an id. If provider.Bills is
// empty, an update keeps the stored unit of billing (quantities or amounts) and the invoice text.
func storeConnection(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, provider *metering.Provider) error {
	mapping := provider.Mapping
	if mapping == nil {
		mapping = map[string]string{}
	}
	args := pgx.NamedArgs{
		"tenant": tenant, "id": provider.ID, "kind": provider.Kind, "statements": provider.Statements, "invoices": provider.Invoices, "account": provider.Account,
		"livemode": provider.Livemode, "address": provider.Address, "secret": provider.SealedSecret, "last_four": provider.LastFour,
		"webhook_secret": provider.SealedWebhookSecret, "webhook_last_four": provider.WebhookLastFour, "mapping": mapping,
		"validated_at": provider.ValidatedAt, "actor": actor, "bills": provider.Bills, "text": provider.Text,
	}
	stored := `
		insert into billing_connections
		  (tenant_id, kind, statements, invoices, account, livemode, address, secret, secret_last_four, webhook_secret, webhook_secret_last_four, mapping, bills, bills_before, bills_since, invoice_text, validated_at, created_by)
		values (@tenant, @kind, @statements, @invoices, @account, @livemode, @address, @secret, @last_four, @webhook_secret, @webhook_last_four, @mapping, ` + firstBills + `, ` + firstBills + `, @validated_at, @text, @validated_at, @actor)
		` + returned
	if provider.ID != 0 {
		stored = `
			update billing_connections
			set statements = @statements, invoices = @invoices, address = @address, secret = @secret, secret_last_four = @last_four, webhook_secret = @webhook_secret,
			  webhook_secret_last_four = @webhook_last_four, mapping = @mapping, validated_at = @validated_at, created_by = @actor, retired_at = null,
			  bills = case @bills when '' then bills else @bills end, bills_before = case when @bills in ('', bills) then bills_before else bills end,
			  bills_since = case when @bills in ('', bills) then bills_since else @validated_at end,
			  invoice_text = case @bills when '' then invoice_text else @text end
			where tenant_id = @tenant
			  and id = @id
			` + returned
	}
	return tx.QueryRow(ctx, stored, args).Scan(
		&provider.ID, &provider.CreatedAt, &provider.Bills, &provider.BillsBefore, &provider.BillsSince, &provider.Text)
}

// Delete retires the tenant's active provider without a replacement. It rejects the planned reports.
// Reports that were sent and not answered get an unknown outcome (billing.InDoubt). Delete returns
// CodeNoProvider if there is no active provider. It returns CodeConflict while the provider has
// unfinished work: reports being sent, closed periods that are not billed in full, or open holds.
func (p Providers) Delete(ctx context.Context, tenant metering.TenantID, actor metering.Actor, now time.Time) error {
	err := pg.InTx(ctx, p.pool, func(tx pgx.Tx) error {
		if err := pg.LockAccess(ctx, tx, tenant); err != nil {
			return err
		}
		active, err := activeProvider(ctx, tx, tenant)
		if err != nil {
			return err
		}
		if err := refuseUnfinished(ctx, tx, unfinished, pgx.NamedArgs{"tenant": tenant, "connection": active.ID, "now": now}); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `update billing_connections set retired_at = $3 where tenant_id = $1 and id = $2`, tenant, active.ID, now); err != nil {
			return err
		}
		if err := endReports(ctx, tx, tenant, active.ID, now); err != nil {
			return err
		}
		if err := catalog.QueueAlerts(ctx, tx, tenant, 0); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "provider.delete", active.ID.String(), auditedProvider(active), nil)
	})
	if err != nil {
		return fmt.Errorf("delete provider: %w", err)
	}
	return nil
}

// hasBilled is the SQL condition that a provider bills at least one meter's total of the closed period p.
const hasBilled = `exists (
	select
	from billing_period_totals t
	where t.tenant_id = p.tenant_id
	  and t.period_id = p.id
	  and t.billed)`

// reportsTo is the SQL of the FROM and WHERE clauses that select the reports r to @connection.
const reportsTo = `billing_reports r
	join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id
	join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
	where r.tenant_id = @tenant
	  and d.connection_id = @connection`

// endReports completes the planned and the sent reports to a connection that was deleted: planned
// ones as rejected, sent ones with an unknown outcome. It locks the reports as it reads their state,
// because an attempt may begin at any time before the transaction commits.
func endReports(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, connection metering.ConnectionID, now time.Time) error {
	for _, left := range []struct {
		from, to billing.State
		response string
	}{
		{billing.Planned, billing.Rejected, "withdrawn: the provider was deleted before the report was sent"},
		{billing.Sending, billing.InDoubt, "the provider was deleted before it answered"},
	} {
		rows, err := tx.Query(ctx, `select r.id from `+reportsTo+` and r.state = @state for update of r`,
			pgx.NamedArgs{"tenant": tenant, "connection": connection, "state": left.from})
		if err != nil {
			return err
		}
		reports, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, completeReports, tenant, reports, left.to, left.response, now, anyAttempt); err != nil {
			return err
		}
	}
	return nil
}

// firstBills is the unit in which a new connection bills: quantities by default. returned is the
// RETURNING clause of a stored connection. Both are SQL.
const (
	firstBills = `case @bills when '' then 'quantities' else @bills end`
	returned   = `returning id, created_at, bills, bills_before, bills_since, invoice_text`
)

// Active returns the tenant's active provider, or CodeNoProvider.
func (p Providers) Active(ctx context.Context, tenant metering.TenantID) (metering.Provider, error) {
	return activeProvider(ctx, p.pool, tenant)
}

// formerProvider returns the audited fields of the active provider before a change; nil if there is none.
func formerProvider(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) (audit.Fields, error) {
	p, err := activeProvider(ctx, tx, tenant)
	if errors.Is(err, errNoProvider) {
		return nil, nil
	}
	return auditedProvider(p), err
}

func activeProvider(ctx context.Context, q pg.Querier, tenant metering.TenantID) (metering.Provider, error) {
	p, err := providerWhere(ctx, q, `retired_at is null`, tenant)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Provider{}, errNoProvider
	}
	if err != nil {
		return metering.Provider{}, fmt.Errorf("read provider: %w", pg.Coded(err))
	}
	return p, nil
}

// Last returns the tenant's provider of a kind: the one at the address, otherwise the active or the
// last retired one. If begin is true, it returns only the active one at the address, which Begin would
// continue. A save without secrets keeps the secrets of this provider. Last returns CodeNotFound if
// there is none.
func (p Providers) Last(ctx context.Context, tenant metering.TenantID, kind metering.ProviderKind, address string, begin bool) (metering.Provider, error) {
	last, err := providerWhere(ctx, p.pool, `kind = $2 `+likeliest, tenant, kind, address, begin)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Provider{}, metering.Errorf(metering.CodeNotFound, "no provider of this type was saved yet")
	}
	if err != nil {
		return metering.Provider{}, fmt.Errorf("read provider: %w", pg.Coded(err))
	}
	return last, nil
}

func providerWhere(ctx context.Context, q pg.Querier, which string, args ...any) (p metering.Provider, err error) {
	err = q.QueryRow(ctx, `
		select id, kind, statements, invoices, account, livemode, address, secret, secret_last_four, webhook_secret, webhook_secret_last_four, mapping, bills, bills_before, bills_since, invoice_text, validated_at, created_at
		from billing_connections
		where tenant_id = $1
		  and `+which, args...,
	).Scan(&p.ID, &p.Kind, &p.Statements, &p.Invoices, &p.Account, &p.Livemode, &p.Address, &p.SealedSecret, &p.LastFour, &p.SealedWebhookSecret, &p.WebhookLastFour, &p.Mapping, &p.Bills, &p.BillsBefore, &p.BillsSince, &p.Text, &p.ValidatedAt, &p.CreatedAt)
	return p, err
}

var errNoProvider = metering.Errorf(metering.CodeNoProvider, "no billing provider is configured; save one with PUT /v1/billing/provider")

func auditedProvider(p metering.Provider) audit.Fields {
	return audit.Fields{
		"kind": p.Kind, "account": p.Account, "livemode": p.Livemode, "address": audit.Personal(p.Address), "bills": p.Bills, "prices": p.Mapping,
		"secret": audit.Secret(p.SealedSecret != nil), "secret_last_four": p.LastFour,
		"webhook_secret": audit.Secret(p.SealedWebhookSecret != nil), "webhook_secret_last_four": p.WebhookLastFour,
	}
}
