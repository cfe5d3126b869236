-- +goose Up
create table billing_providers (
  tenant_id        bigint not null references tenants,
  id               bigint generated always as identity,
  kind             text not null check (kind in ('webhook', 'stripe')),
  account          text not null, -- what makes two settings the same destination: the URL, the Stripe account
  secret           bytea not null, -- sealed
  secret_last_four text not null,
  validated_at     timestamptz not null,
  created_at       timestamptz not null default now(),
  created_by       text not null,
  retired_at       timestamptz,
  primary key (tenant_id, id)
);
create unique index billing_providers_active on billing_providers (tenant_id) where retired_at is null;

-- A customer's chain: each period begins where the former ended.
create table billing_periods (
  tenant_id   bigint not null,
  id          bigint generated always as identity,
  customer_id bigint not null,
  starts_at   timestamptz not null,
  ends_at     timestamptz not null check (starts_at < ends_at),
  closed_at   timestamptz,
  closed_epoch bigint, -- the tenant's when it was closed: events from it on are late
  primary key (tenant_id, id),
  unique (tenant_id, customer_id, starts_at),
  unique (tenant_id, customer_id, ends_at),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);

-- What a provider adds up on its side. A change of any of these columns ends
-- the series at that instant; the next one carries only what the others of the
-- same window have not billed.
create table billing_series (
  tenant_id         bigint not null,
  id                bigint generated always as identity,
  customer_id       bigint not null,
  meter_id          bigint not null,
  provider_account  text not null,
  provider_customer text not null default '',
  item              text not null default '',
  mechanism         text not null check (mechanism in ('snapshot', 'usage_record', 'meter_window', 'meter_delta', 'meter_last')),
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

-- One stored message per (customer, sequence), with its bytes: the same
-- sequence always carries the same bytes.
create table billing_snapshots (
  tenant_id   bigint not null,
  id          uuid not null, -- the webhook-id
  customer_id bigint not null,
  sequence    bigint not null check (sequence > 0),
  provider_id bigint not null,
  period_id   bigint not null,
  body        bytea not null,
  status      text not null default 'prepared' check (status in ('prepared', 'sent', 'acknowledged', 'rejected')),
  lease_until timestamptz, -- nobody else sends it before
  attempts    integer not null default 0,
  answer      text not null default '', -- what came of the last attempt, without the receiver's words
  prepared_at timestamptz not null default now(),
  settled_at  timestamptz,
  primary key (tenant_id, id),
  unique (tenant_id, customer_id, sequence),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, provider_id) references billing_providers (tenant_id, id),
  foreign key (tenant_id, period_id) references billing_periods (tenant_id, id)
);
create unique index billing_snapshots_unsettled on billing_snapshots (tenant_id, customer_id)
  where status in ('prepared', 'sent');
create index on billing_snapshots (tenant_id, period_id, sequence);

-- What was, or is about to be, told to the provider; stored before the call.
create table billing_entries (
  tenant_id        bigint not null,
  id               uuid not null,
  series_id        bigint not null,
  version          integer not null,
  cumulative_total numeric not null, -- usage of the window when it was read
  event_count      bigint not null,  -- events behind it
  value            numeric not null, -- what goes out: cumulative_total less what other series of the window have billed
  price_version    integer not null default 0, -- 0: the meter has no price
  unit_price       numeric not null,
  charge           numeric not null, -- for cumulative_total, rounded to the currency's minor unit
  amount           numeric not null, -- what goes out: charge less what other series of the window have billed
  currency         text not null,
  identifier       text not null, -- the idempotency key at the provider
  snapshot_id      uuid,
  status           text not null check (status in ('prepared', 'sent', 'acknowledged', 'confirmed', 'rejected', 'ambiguous')),
  prepared_at      timestamptz not null default now(),
  settled_at       timestamptz,
  primary key (tenant_id, id),
  unique (tenant_id, series_id, version),
  foreign key (tenant_id, series_id) references billing_series (tenant_id, id),
  foreign key (tenant_id, snapshot_id) references billing_snapshots (tenant_id, id)
);
create unique index billing_entries_unsettled on billing_entries (tenant_id, series_id)
  where status in ('prepared', 'sent', 'ambiguous');
create index on billing_entries (tenant_id, snapshot_id);

-- One row per request to sync a customer; a pass that begins after the request
-- settles it.
create table billing_syncs (
  tenant_id    bigint not null,
  id           uuid not null,
  customer_id  bigint not null,
  trigger      text not null check (trigger in ('manual', 'schedule', 'provider')),
  actor        text not null,
  status       text not null default 'requested' check (status in ('requested', 'running', 'succeeded', 'failed')),
  problem      text not null default '', -- what the operator should do
  requested_at timestamptz not null default now(),
  started_at   timestamptz,
  finished_at  timestamptz,
  primary key (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);
create index on billing_syncs (tenant_id, customer_id, requested_at) where status in ('requested', 'running');

-- The entries that answer a sync: those it sent and those it found up to date.
create table billing_sync_entries (
  tenant_id bigint not null,
  sync_id   uuid not null,
  entry_id  uuid not null,
  primary key (tenant_id, sync_id, entry_id),
  foreign key (tenant_id, sync_id) references billing_syncs (tenant_id, id),
  foreign key (tenant_id, entry_id) references billing_entries (tenant_id, id)
);

-- The meters that a sync left out, and why.
create table billing_sync_skips (
  tenant_id bigint not null,
  sync_id   uuid not null,
  meter_id  bigint not null,
  reason    text not null,
  primary key (tenant_id, sync_id, meter_id),
  foreign key (tenant_id, sync_id) references billing_syncs (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id)
);

-- What other systems are to be told, written in the transaction that made it so.
create table outbox (
  tenant_id    bigint not null references tenants,
  id           uuid not null,
  kind         text not null,
  payload      jsonb not null, -- internal ids only
  created_at   timestamptz not null default now(),
  delivered_at timestamptz,
  primary key (tenant_id, id)
);
create index on outbox (tenant_id, created_at) where delivered_at is null;

-- +goose Down
drop table outbox;
drop table billing_sync_skips;
drop table billing_sync_entries;
drop table billing_syncs;
drop table billing_entries;
drop table billing_snapshots;
drop table billing_series;
drop table billing_periods;
drop table billing_providers;
