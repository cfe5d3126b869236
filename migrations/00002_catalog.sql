-- +goose Up
create table customers (
  tenant_id           bigint not null references tenants,
  id                  bigint generated always as identity, -- 0 is never given out: it stands for the whole tenant
  external_id         text collate "C" not null,
  name                text not null default '',
  billing_provider_id text,
  metadata            jsonb not null default '{}',
  created_at          timestamptz not null default now(),
  billing_starts_at   timestamptz, -- where the chain of billing periods begins, if an operator said so
  closed_from         timestamptz, -- the span of its closed billing periods:
  closed_until        timestamptz, -- usage that arrives within it is late
  primary key (tenant_id, id),
  unique (tenant_id, external_id)
);

create table meters (
  tenant_id     bigint not null references tenants,
  id            bigint generated always as identity,
  slug          text collate "C" not null,
  event_type    text collate "C" not null,
  name          text not null default '',
  meter_version_id bigint not null, -- what reads and billing use
  created_at    timestamptz not null default now(),
  primary key (tenant_id, id),
  unique (tenant_id, slug)
);

-- One way of counting a meter. Rollups belong to a meter version.
create table meter_versions (
  tenant_id      bigint not null references tenants,
  id             bigint generated always as identity,
  meter_id       bigint not null,
  event_type     text collate "C" not null,
  aggregation    text not null,
  group_by       text[] not null default '{}',
  timezone       text not null,
  epoch          bigint not null, -- events with a lower epoch are the backfill's to count
  status         text not null check (status in ('backfilling', 'complete', 'retired')),
  created_at     timestamptz not null default now(),
  completed_at   timestamptz,
  primary key (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id) deferrable initially deferred
);
create index on meter_versions (tenant_id, event_type) where status <> 'retired';

alter table meters add foreign key (tenant_id, meter_version_id)
  references meter_versions (tenant_id, id) deferrable initially deferred;

-- The days that a backfill has counted. The mark is inserted first in the
-- transaction that counts the day, so a day is counted once however often the
-- backfill runs.
create table backfill_days (
  tenant_id     bigint not null,
  meter_version_id bigint not null,
  day           date not null, -- UTC
  events        bigint not null default 0,
  primary key (tenant_id, meter_version_id, day),
  foreign key (tenant_id, meter_version_id) references meter_versions (tenant_id, id)
);

-- Every event type that a tenant has ever sent. A meter whose type is not here
-- has no past to count.
create table event_types (
  tenant_id     bigint not null,
  event_type    text collate "C" not null,
  first_seen_at timestamptz not null default now(),
  primary key (tenant_id, event_type)
);

create table meter_prices (
  tenant_id      bigint not null references tenants,
  meter_id       bigint not null,
  version        integer not null,
  base_price     numeric not null check (base_price >= 0),
  included_units numeric not null check (included_units >= 0),
  overage_rate   numeric not null check (overage_rate >= 0),
  currency       text not null,
  effective_from timestamptz not null,
  created_at     timestamptz not null default now(),
  created_by     text not null,
  primary key (tenant_id, meter_id, version),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id)
);

-- +goose Down
drop table meter_prices;
drop table event_types;
drop table backfill_days;
alter table meters drop constraint meters_tenant_id_meter_version_id_fkey;
drop table meter_versions;
drop table meters;
drop table customers;
