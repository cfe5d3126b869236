-- +goose Up
create table billing_providers (
  tenant_id                bigint not null references tenants,
  id                       bigint generated always as identity,
  kind                     text not null,
  statements               boolean not null, -- it takes the bill of a period in one report
  account                  text not null, -- what makes two settings the same destination: a URL, or whom the secret belongs to
  secret                   bytea not null, -- sealed
  secret_last_four         text not null,
  webhook_secret           bytea, -- sealed; what the provider signs its events with
  webhook_secret_last_four text not null default '',
  mapping                  jsonb not null default '{}', -- meter slug to the provider's price
  validated_at             timestamptz not null,
  created_at               timestamptz not null default now(),
  created_by               text not null,
  retired_at               timestamptz,
  primary key (tenant_id, id)
);
comment on table billing_providers is 'Where a tenant''s usage is billed: one active row a tenant.';
create unique index billing_providers_active on billing_providers (tenant_id) where retired_at is null;

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
comment on table billing_links is 'What a customer is at the provider and where each meter''s usage goes, as last read there.';

create table billing_periods (
  tenant_id          bigint not null,
  id                 bigint generated always as identity,
  customer_id        bigint not null,
  starts_at          timestamptz not null,
  ends_at            timestamptz not null check (starts_at < ends_at),
  -- The subscription's period that it lies in: what is sent of it has to be
  -- sent with a time in both.
  subscription       text not null default '',
  subscription_start timestamptz,
  subscription_end   timestamptz,
  watermark_events     bigint,
  watermark_configuration    text,
  closed_at          timestamptz,
  closed_epoch       bigint, -- the tenant's when it was closed: events from it on are late
  primary key (tenant_id, id),
  unique (tenant_id, customer_id, starts_at),
  unique (tenant_id, customer_id, ends_at),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);
comment on table billing_periods is 'A customer''s billing periods: each begins where the former ended.';
create index billing_periods_open on billing_periods (tenant_id, customer_id) where closed_at is null;

-- Usage that arrives later is kept apart from it, and billed, if at all, as an
-- adjustment in another period.
create table billing_period_totals (
  tenant_id      bigint not null,
  period_id      bigint not null,
  meter_id       bigint not null,
  usage          numeric not null,
  event_count    bigint not null,
  price_version  integer not null, -- 0: the meter had no price
  charge         numeric not null, -- for usage, rounded to the currency's minor unit
  currency       text not null,
  billed         boolean not null, -- whether a provider has it: only then is there something to adjust
  -- What the provider has of usage and what the charge is for; null: all of it, exactly.
  reported       numeric,
  reported_scale smallint not null default 0, -- the decimals that reported is rounded to
  late_usage     numeric, -- what had arrived late when the period's events went; null: they are kept
  late_count     bigint,
  primary key (tenant_id, period_id, meter_id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id)
);
comment on table billing_period_totals is 'What a billing period came to for each meter when it was closed.';

-- A change of any of these columns ends the series at that instant; the next
-- one carries only what the others of the same window have not billed. Late
-- usage has series of its own ('adjustment', 'invoice_item'): they belong to the
-- closed period, and their window is the open period that they are billed in.
create table billing_series (
  tenant_id         bigint not null,
  id                bigint generated always as identity,
  customer_id       bigint not null,
  meter_id          bigint not null,
  provider_account  text not null,
  provider_customer text not null default '',
  item              text not null default '',
  mechanism         text not null, -- 'snapshot', 'adjustment', 'invoice_item' or the provider's word for how a quantity is reported
  kind              text not null check (kind in ('statement', 'quantity', 'charge')),
  counting          text not null check (counting in ('replaces', 'adds', 'latest')),
  late              boolean not null, -- it carries what late usage adds to its period
  period_id         bigint not null,
  window_start      timestamptz not null,
  window_end        timestamptz not null,
  created_at        timestamptz not null default now(),
  primary key (tenant_id, id),
  unique (tenant_id, customer_id, meter_id, period_id, provider_account, provider_customer, item, mechanism, window_start),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id)
);
comment on table billing_series is 'What a provider adds up, or overwrites, on its side.';

create table billing_snapshots (
  tenant_id       bigint not null,
  id              uuid not null, -- the webhook-id
  customer_id     bigint not null,
  sequence        bigint not null check (sequence > 0),
  provider_id     bigint not null,
  period_id       bigint not null,
  body            bytea not null,
  watermark_events  bigint,
  watermark_configuration text, -- a hash of the meters, prices and account
  status          text not null default 'prepared' check (status in ('prepared', 'sent', 'acknowledged', 'rejected')),
  lease_until     timestamptz, -- nobody else sends it before
  attempts        integer not null default 0,
  answer          text not null default '', -- what came of the last attempt, without the receiver's words
  prepared_at     timestamptz not null default now(),
  settled_at      timestamptz,
  primary key (tenant_id, id),
  unique (tenant_id, customer_id, sequence),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, provider_id) references billing_providers (tenant_id, id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id)
);
comment on table billing_snapshots is 'The numbered messages to a webhook, with their bytes: one number always carries the same bytes.';
create unique index billing_snapshots_unsettled on billing_snapshots (tenant_id, customer_id)
  where status in ('prepared', 'sent');
create index on billing_snapshots (tenant_id, period_id, sequence);

create table billing_entries (
  tenant_id        bigint not null,
  id               uuid not null,
  number           bigint generated always as identity, -- in the order in which a customer's were made
  series_id        bigint not null,
  version          integer not null,
  cumulative_total numeric not null, -- usage of the window when it was read
  event_count      bigint not null,  -- events behind it
  value            numeric not null, -- what goes out: cumulative_total less what other series of the window have billed
  quantity         numeric, -- the number that is sent: value, less what was acknowledged where the provider adds up
  price_version    integer not null default 0, -- 0: the meter has no price
  unit_price       numeric not null,
  charge           numeric not null, -- for cumulative_total, rounded to the currency's minor unit
  amount           numeric not null, -- what goes out: charge less what other series of the window have billed
  currency         text not null,
  call             jsonb,            -- what is sent, as the provider's own code has made it
  provider_time    timestamptz,      -- that the provider is told with it
  identifier       text not null,    -- the idempotency key at the provider
  key_revision     integer not null default 0, -- of the idempotency key
  snapshot_id      uuid,
  status           text not null check (status in ('prepared', 'sent', 'acknowledged', 'confirmed', 'rejected', 'ambiguous')),
  first_sent_at    timestamptz,
  lease_until      timestamptz, -- nobody else sends it before
  attempts         integer not null default 0,
  answer           text not null default '', -- what came of the last attempt, without the provider's words
  prepared_at      timestamptz not null default now(),
  settled_at       timestamptz,
  primary key (tenant_id, id),
  unique (tenant_id, series_id, version),
  foreign key (tenant_id, series_id) references billing_series (tenant_id, id),
  foreign key (tenant_id, snapshot_id) references billing_snapshots (tenant_id, id)
);
comment on table billing_entries is 'What was, or is about to be, sent to a provider of one meter''s usage, stored before the call.';
create unique index billing_entries_unsettled on billing_entries (tenant_id, series_id)
  where status in ('prepared', 'sent', 'ambiguous');
create index on billing_entries (tenant_id, snapshot_id);

-- A pass that begins after the request completes it.
create table billing_syncs (
  tenant_id    bigint not null,
  id           uuid not null,
  customer_id  bigint not null,
  trigger      text not null check (trigger in ('manual', 'schedule', 'provider')),
  actor        text not null,
  status       text not null default 'requested' check (status in ('requested', 'running', 'succeeded', 'failed')),
  problem      text not null default '', -- what the operator should do
  requested_at timestamptz not null,
  started_at   timestamptz,
  finished_at  timestamptz,
  primary key (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);
comment on table billing_syncs is 'Requests to sync a customer, one row each.';
create index on billing_syncs (tenant_id, customer_id, requested_at) where status in ('requested', 'running');
create index billing_syncs_newest on billing_syncs (tenant_id, id);

create table billing_sync_entries (
  tenant_id bigint not null,
  sync_id   uuid not null,
  entry_id  uuid not null,
  primary key (tenant_id, sync_id, entry_id),
  foreign key (tenant_id, sync_id) references billing_syncs (tenant_id, id),
  foreign key (tenant_id, entry_id) references billing_entries (tenant_id, id)
);
comment on table billing_sync_entries is 'What answers a sync: what it sent and what it found up to date.';

create table billing_sync_skips (
  tenant_id bigint not null,
  sync_id   uuid not null,
  meter_id  bigint not null,
  reason    text not null,
  primary key (tenant_id, sync_id, meter_id),
  foreign key (tenant_id, sync_id) references billing_syncs (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id)
);
comment on table billing_sync_skips is 'The meters that a sync left out, and why.';

-- The schedules in Temporal follow. One that has not followed yet has
-- applied_at before updated_at, or none.
create table auto_syncs (
  tenant_id  bigint primary key references tenants,
  enabled    boolean not null,
  schedule   text not null, -- hourly, daily, or a cron expression in the tenant's time zone
  paused     boolean not null default false,
  updated_at timestamptz not null,
  updated_by text not null,
  applied_at timestamptz
);
comment on table auto_syncs is 'When the customers of a tenant are synced by themselves.';

create table provider_events (
  tenant_id         bigint not null references tenants,
  id                bigint generated always as identity,
  provider_account  text not null,
  event_id          text not null,
  kind              text not null,
  invoice           boolean not null, -- it is about an invoice, else about a subscription
  object_id         text not null,
  provider_customer text not null,
  made_at           timestamptz not null, -- at the provider
  received_at       timestamptz not null,
  handled_at        timestamptz,
  outcome           text not null default '',
  primary key (tenant_id, id),
  unique (tenant_id, provider_account, event_id)
);
comment on table provider_events is 'Events that a provider sent: each once, with what it takes to look up the rest.';
create index provider_events_open on provider_events (received_at) where handled_at is null;

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
  -- The decimals of the tenant's meters when it became final, by meter; of
  -- those that are missing none. null: it is a draft.
  decimals         jsonb,
  created_at       timestamptz not null, -- at the provider
  finalized_at     timestamptz, -- at the provider
  read_at          timestamptz not null,
  primary key (tenant_id, provider_account, invoice_id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id)
);
comment on table billing_invoices is 'Invoices of the provider''s, and what they should have come to.';
create index on billing_invoices (tenant_id, period_id);

-- +goose Down
drop table billing_invoices;
drop table provider_events;
drop table auto_syncs;
drop table billing_sync_skips;
drop table billing_sync_entries;
drop table billing_syncs;
drop table billing_entries;
drop table billing_snapshots;
drop table billing_series;
drop table billing_period_totals;
drop table billing_periods;
drop table billing_links;
drop table billing_providers;
