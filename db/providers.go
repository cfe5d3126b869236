package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// Providers are the billing providers of the tenants: one active at a time.
type Providers struct{ pool *pgxpool.Pool }

// Save makes p the tenant's active provider and retires the one before it.
// The secret is sealed by the caller. The same account with another secret
// is the same connection and goes on with its series; another account begins
// new ones.
func (p Providers) Save(ctx context.Context, tenant metering.TenantID, actor metering.Actor, provider metering.Provider) (metering.Provider, error) {
	mapping := provider.Mapping
	if mapping == nil {
		mapping = map[string]string{}
	}
	err := inTx(ctx, p.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `
			select 1
			from tenants
			where id = $1
			for no key update`, tenant); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			update billing_connections
			set retired_at = now()
			where tenant_id = $1
			  and retired_at is null
			  and (kind, account) <> ($2, $3)`, tenant, provider.Kind, provider.Account); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `
			insert into billing_connections
			  (tenant_id, kind, statements, account, livemode, secret, secret_last_four, webhook_secret, webhook_secret_last_four, mapping, validated_at, created_by)
			values (@tenant, @kind, @statements, @account, @livemode, @secret, @last_four, @webhook_secret, @webhook_last_four, @mapping, @validated_at, @actor)
			on conflict (tenant_id, kind, account) do update
			set statements = excluded.statements, livemode = excluded.livemode, secret = excluded.secret, secret_last_four = excluded.secret_last_four,
			  webhook_secret = excluded.webhook_secret, webhook_secret_last_four = excluded.webhook_secret_last_four, mapping = excluded.mapping,
			  validated_at = excluded.validated_at, created_by = excluded.created_by, retired_at = null
			returning id, created_at`, pgx.NamedArgs{
			"tenant": tenant, "kind": provider.Kind, "statements": provider.Statements, "account": provider.Account, "livemode": provider.Livemode, "secret": provider.SealedSecret,
			"last_four": provider.LastFour, "webhook_secret": provider.SealedWebhookSecret, "webhook_last_four": provider.WebhookLastFour,
			"mapping": mapping, "validated_at": provider.ValidatedAt, "actor": actor,
		}).Scan(&provider.ID, &provider.CreatedAt)
		if err != nil {
			return err
		}
		return audit(ctx, tx, tenant, actor, "provider.save", provider.ID.String())
	})
	if err != nil {
		return metering.Provider{}, fmt.Errorf("save provider: %w", err)
	}
	return provider, nil
}

// Active returns the provider that the tenant's usage is billed with, or
// CodeNoProvider.
func (p Providers) Active(ctx context.Context, tenant metering.TenantID) (metering.Provider, error) {
	return activeProvider(ctx, p.pool, tenant)
}

func activeProvider(ctx context.Context, q querier, tenant metering.TenantID) (metering.Provider, error) {
	var p metering.Provider
	err := q.QueryRow(ctx, `
		select id, kind, statements, account, livemode, secret, secret_last_four, webhook_secret, webhook_secret_last_four, mapping, validated_at, created_at
		from billing_connections
		where tenant_id = $1
		  and retired_at is null`, tenant,
	).Scan(&p.ID, &p.Kind, &p.Statements, &p.Account, &p.Livemode, &p.SealedSecret, &p.LastFour, &p.SealedWebhookSecret, &p.WebhookLastFour, &p.Mapping, &p.ValidatedAt, &p.CreatedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Provider{}, errNoProvider
	}
	if err != nil {
		return metering.Provider{}, fmt.Errorf("read provider: %w", coded(err))
	}
	return p, nil
}

var errNoProvider = metering.Errorf(metering.CodeNoProvider, "no billing provider is configured; PUT /v1/billing/provider first")
