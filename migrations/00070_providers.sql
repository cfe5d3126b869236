-- +goose Up

-- What a provider is like is stored with it, so that its name decides nothing.
alter table billing_providers
  drop constraint billing_providers_kind_check,
  add column statements boolean;
update billing_providers set statements = kind = 'webhook';
alter table billing_providers alter column statements set not null;

-- Likewise what its methods do with the quantities that it is reported.
alter table billing_series
  drop constraint billing_series_mechanism_check,
  add column kind text check (kind in ('statement', 'quantity', 'charge')),
  add column counting text check (counting in ('replaces', 'adds', 'latest')),
  add column late boolean; -- it carries what late usage adds to its period
update billing_series
set kind = case when mechanism in ('snapshot', 'adjustment') then 'statement' when mechanism = 'invoice_item' then 'charge' else 'quantity' end,
  counting = case when mechanism in ('meter_delta', 'invoice_item') then 'adds' when mechanism = 'meter_last' then 'latest' else 'replaces' end,
  late = mechanism in ('adjustment', 'invoice_item');
alter table billing_series
  alter column kind set not null,
  alter column counting set not null,
  alter column late set not null;

-- A call is what the provider made of a report: only its timestamp is read here.
alter table billing_entries add column provider_time timestamptz;
update billing_entries set provider_time = (call ->> 'timestamp')::timestamptz where call is not null;

alter table provider_events add column invoice boolean;
update provider_events set invoice = kind <> 'customer.subscription.updated';
alter table provider_events alter column invoice set not null;

-- Where usage goes is read again before anything is reported.
delete from billing_links;

-- +goose Down
alter table provider_events drop column invoice;
alter table billing_entries drop column provider_time;
alter table billing_series
  drop column kind,
  drop column counting,
  drop column late,
  add constraint billing_series_mechanism_check
    check (mechanism in ('snapshot', 'adjustment', 'usage_record', 'meter_window', 'meter_delta', 'meter_last', 'invoice_item'));
alter table billing_providers
  drop column statements,
  add constraint billing_providers_kind_check check (kind in ('webhook', 'stripe'));
delete from billing_links;
