-- +goose Up
alter table billing_providers
  add column webhook_secret           bytea, -- sealed; what the provider signs its events with
  add column webhook_secret_last_four text not null default '',
  add column mapping                  jsonb not null default '{}'; -- meter slug to the provider's price

-- What a customer is at the provider and where the usage of each meter goes, as
-- it was last read there.
create table billing_links (
  tenant_id         bigint not null,
  customer_id       bigint not null,
  provider_account  text not null,
  provider_customer text not null, -- '': the customer is linked to none
  subscription      text not null, -- whose periods the customer's are; '': none
  period_start      timestamptz,
  period_end        timestamptz,
  items             jsonb not null,
  read_at           timestamptz not null,
  primary key (tenant_id, customer_id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);

-- The subscription's period that a period of ours lies in: what is told of it
-- has to be told with a time in both.
alter table billing_periods
  add column subscription       text not null default '',
  add column subscription_start timestamptz,
  add column subscription_end   timestamptz;

alter table billing_entries
  add column number        bigint generated always as identity, -- in the order in which a customer's were made
  add column quantity      numeric, -- the number that is told: value, less what was acknowledged where the provider adds up
  add column call          jsonb,   -- what is told, to whom and with which time
  add column key_revision  integer not null default 0, -- of the idempotency key
  add column first_sent_at timestamptz,
  add column lease_until   timestamptz, -- nobody else sends it before
  add column attempts      integer not null default 0,
  add column answer        text not null default ''; -- what came of the last attempt, without the provider's words

-- Events that the provider sent: each once, with what it takes to look up the rest.
create table provider_events (
  tenant_id         bigint not null references tenants,
  id                bigint generated always as identity,
  provider_account  text not null,
  event_id          text not null,
  kind              text not null,
  object_id         text not null,
  provider_customer text not null,
  made_at           timestamptz not null, -- at the provider
  received_at       timestamptz not null,
  handled_at        timestamptz,
  outcome           text not null default '',
  primary key (tenant_id, id),
  unique (tenant_id, provider_account, event_id)
);
create index provider_events_open on provider_events (received_at) where handled_at is null;

-- Invoices of the provider's, and what they should have come to.
create table billing_invoices (
  tenant_id        bigint not null,
  provider_account text not null,
  invoice_id       text not null,
  customer_id      bigint not null,
  period_id        bigint, -- that it bills; null: it bills none of ours
  status           text not null,
  reason           text not null,
  currency         text not null,
  total            numeric not null,
  usage_amount     numeric not null, -- of the lines that usage made
  estimate         numeric, -- of the same, at our prices, when it was finalized
  created_at       timestamptz not null, -- at the provider
  finalized_at     timestamptz, -- at the provider
  read_at          timestamptz not null,
  primary key (tenant_id, provider_account, invoice_id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id)
);
create index on billing_invoices (tenant_id, period_id);

-- +goose Down
drop table billing_invoices;
drop table provider_events;
alter table billing_entries
  drop column answer,
  drop column attempts,
  drop column lease_until,
  drop column first_sent_at,
  drop column key_revision,
  drop column call,
  drop column quantity,
  drop column number;
alter table billing_periods
  drop column subscription_end,
  drop column subscription_start,
  drop column subscription;
drop table billing_links;
alter table billing_providers
  drop column mapping,
  drop column webhook_secret_last_four,
  drop column webhook_secret;
