-- +goose Up

-- With how many decimals of a meter's usage a provider is told that adds up
-- units. Whoever does not know of them tells whole units.
alter table meters add column usage_scale smallint not null default 0 check (usage_scale between 0 and 6);

-- What a closed period's told is rounded to.
alter table billing_period_totals add column reported_scale smallint not null default 0;

-- The decimals of the tenant's meters when the provider's invoice became final,
-- by meter; of those that are missing none. null: it is a draft, or older.
alter table billing_invoices add column decimals jsonb;

-- +goose Down
alter table billing_invoices drop column decimals;
alter table billing_period_totals drop column reported_scale;
alter table meters drop column usage_scale;
