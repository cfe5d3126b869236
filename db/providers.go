package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Providers are the billing providers of the tenants: one active at a time.
type Providers struct{ pool *pool }

// Save makes provider the tenant's active one and retires the one before it. The
// secret is sealed by the caller. The connection to the same account in the
// same mode goes on with its series. A receiver has no account: it is the one
// that was last at its address, and else the last one, which has moved there.
func (p Providers) Save(ctx context.Context, tenant metering.TenantID, actor metering.Actor, provider metering.Provider) (metering.Provider, error) {
	return p.save(ctx, tenant, actor, provider, false)
}

// Begin saves a receiver that has nothing of what others were reported: another
// connection, unless the present one is at its address, as when it is saved again.
func (p Providers) Begin(ctx context.Context, tenant metering.TenantID, actor metering.Actor, provider metering.Provider) (metering.Provider, error) {
	return p.save(ctx, tenant, actor, provider, true)
}

func (p Providers) save(ctx context.Context, tenant metering.TenantID, actor metering.Actor, provider metering.Provider, anew bool) (metering.Provider, error) {
	err := inTx(ctx, p.pool, func(tx pgx.Tx) (err error) {
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
		if provider.ID, err = knownConnection(ctx, tx, tenant, provider, anew); err != nil {
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
		if err := queueAlerts(ctx, tx, tenant, 0); err != nil {
			return err
		}
		return auditChange(ctx, tx, tenant, actor, "provider.save", provider.ID.String(), former, tellProvider(provider))
	})
	if err != nil {
		return metering.Provider{}, fmt.Errorf("save provider: %w", err)
	}
	return provider, nil
}

// knownConnection is the one that the provider is; 0: it is a new one.
func knownConnection(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, provider metering.Provider, anew bool) (id metering.ConnectionID, err error) {
	err = tx.QueryRow(ctx, `
		select id
		from billing_connections
		where tenant_id = $1
		  and kind = $2
		  and account = $5
		  and livemode is not distinct from $6
		  `+likeliest, tenant, provider.Kind, provider.Address, anew, provider.Account, provider.Livemode).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return id, err
}

// likeliest is, of some connections, the one at address $3, else the one that is
// or was active last; of a new receiver ($4) only the active one there, as SQL.
const likeliest = `and (not $4 or retired_at is null and address = $3)
		order by address = $3 desc, retired_at desc nulls first, id desc
		limit 1`

// storeConnection stores the active connection: a new one where it has no id.
// Where nothing says in what it bills, that stays as it was, and what its lines say.
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

// Delete retires the tenant's active provider without another in its place. What
// is on its way there is left as by another provider: withdrawn where it was
// never sent, else in doubt. CodeNoProvider where there is none, and CodeConflict
// while there is something that nobody would finish.
func (p Providers) Delete(ctx context.Context, tenant metering.TenantID, actor metering.Actor, now time.Time) error {
	err := inTx(ctx, p.pool, func(tx pgx.Tx) error {
		if err := oneAtATime(ctx, tx, tenant); err != nil {
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
		if err := leaveReports(ctx, tx, tenant, active.ID, now); err != nil {
			return err
		}
		if err := queueAlerts(ctx, tx, tenant, 0); err != nil {
			return err
		}
		return auditChange(ctx, tx, tenant, actor, "provider.delete", active.ID.String(), tellProvider(active), nil)
	})
	if err != nil {
		return fmt.Errorf("delete provider: %w", err)
	}
	return nil
}

// unfinishedKind is what somebody waits for, found by a statement, with what to do about it.
type unfinishedKind struct{ ids, advice string }

// unfinished is what somebody waits for at a connection.
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

// hasBilled says that a provider bills something of a closed period p, as SQL.
const hasBilled = `exists (
	select
	from billing_period_totals t
	where t.tenant_id = p.tenant_id
	  and t.period_id = p.id
	  and t.billed)`

// reportsTo are the reports to a connection, as SQL.
const reportsTo = `billing_reports r
	join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id
	join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
	where r.tenant_id = @tenant
	  and d.connection_id = @connection`

// refuseUnfinished names what somebody waits for.
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

// leaveReports records what becomes of reports on their way to a connection that
// nobody reports to any more.
func leaveReports(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, connection metering.ConnectionID, now time.Time) error {
	for _, left := range []struct {
		from, to billing.State
		response string
	}{
		{billing.Planned, billing.Rejected, "withdrawn: the provider was deleted before the report was sent"},
		{billing.Sending, billing.InDoubt, "the provider was deleted before it answered"},
	} {
		rows, err := tx.Query(ctx, `select r.id from `+reportsTo+` and r.state = @state`,
			pgx.NamedArgs{"tenant": tenant, "connection": connection, "state": left.from})
		if err != nil {
			return err
		}
		reports, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, completeReports, tenant, reports, left.to, left.response, now); err != nil {
			return err
		}
	}
	return nil
}

// firstBills is in what a new connection bills, and returned what is known of a
// stored one, as SQL.
const (
	firstBills = `case @bills when '' then 'quantities' else @bills end`
	returned   = `returning id, created_at, bills, bills_before, bills_since, invoice_text`
)

// Active returns the provider that the tenant's usage is billed with, or
// CodeNoProvider.
func (p Providers) Active(ctx context.Context, tenant metering.TenantID) (metering.Provider, error) {
	return activeProvider(ctx, p.pool, tenant)
}

// formerProvider is what is told of the provider before another is saved; nil: there is none.
func formerProvider(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) (told, error) {
	p, err := activeProvider(ctx, tx, tenant)
	if errors.Is(err, errNoProvider) {
		return nil, nil
	}
	return tellProvider(p), err
}

func activeProvider(ctx context.Context, q querier, tenant metering.TenantID) (metering.Provider, error) {
	p, err := providerWhere(ctx, q, `retired_at is null`, tenant)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Provider{}, errNoProvider
	}
	if err != nil {
		return metering.Provider{}, fmt.Errorf("read provider: %w", coded(err))
	}
	return p, nil
}

// Last returns the provider of a kind that the tenant is, or was last, billed
// with, if there was one at the address, that; of a new receiver, the one that
// Begin goes on with. Its secrets are those that are kept where none are saved.
// CodeNotFound where there was none.
func (p Providers) Last(ctx context.Context, tenant metering.TenantID, kind metering.ProviderKind, address string, anew bool) (metering.Provider, error) {
	last, err := providerWhere(ctx, p.pool, `kind = $2 `+likeliest, tenant, kind, address, anew)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Provider{}, metering.Errorf(metering.CodeNotFound, "no provider of this type was saved yet")
	}
	if err != nil {
		return metering.Provider{}, fmt.Errorf("read provider: %w", coded(err))
	}
	return last, nil
}

func providerWhere(ctx context.Context, q querier, which string, args ...any) (p metering.Provider, err error) {
	err = q.QueryRow(ctx, `
		select id, kind, statements, invoices, account, livemode, address, secret, secret_last_four, webhook_secret, webhook_secret_last_four, mapping, bills, bills_before, bills_since, invoice_text, validated_at, created_at
		from billing_connections
		where tenant_id = $1
		  and `+which, args...,
	).Scan(&p.ID, &p.Kind, &p.Statements, &p.Invoices, &p.Account, &p.Livemode, &p.Address, &p.SealedSecret, &p.LastFour, &p.SealedWebhookSecret, &p.WebhookLastFour, &p.Mapping, &p.Bills, &p.BillsBefore, &p.BillsSince, &p.Text, &p.ValidatedAt, &p.CreatedAt)
	return p, err
}

var errNoProvider = metering.Errorf(metering.CodeNoProvider, "no billing provider is configured; save one with PUT /v1/billing/provider")
