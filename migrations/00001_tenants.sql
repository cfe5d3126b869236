-- +goose Up
create extension if not exists timescaledb;

create table tenants (
  id                bigint generated always as identity primary key,
  name              text not null,
  timezone          text not null default 'UTC',
  currency          text not null default 'USD',
  grace             interval not null default '72 hours',
  late_policy       text not null default 'adjust' check (late_policy in ('adjust', 'report')),
  requests_per_minute integer not null default 1000 check (requests_per_minute > 0),
  -- Raised, under the tenant's exclusive lock, whenever the way of counting
  -- changes; every event carries the epoch it was ingested in.
  epoch             bigint not null default 1,
  created_at        timestamptz not null default now()
);

create table api_keys (
  tenant_id    bigint not null references tenants,
  id           bigint generated always as identity,
  name         text not null,
  scope        text not null check (scope in ('admin', 'read_write', 'read_only', 'ingest_only')),
  hash         bytea not null unique, -- HMAC-SHA256 of the whole key under the service's secret
  last_four    text not null,
  created_at   timestamptz not null default now(),
  created_by   text not null,
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz,
  primary key (tenant_id, id)
);

-- Who changed what. Never holds a secret or a field's content.
create table audit_log (
  tenant_id bigint not null references tenants,
  id        bigint generated always as identity,
  at        timestamptz not null default now(),
  actor     text not null,
  action    text not null, -- meter.create, provider.save, …
  resource   text not null, -- the internal id of what changed
  primary key (tenant_id, id)
);

-- +goose Down
drop table audit_log;
drop table api_keys;
drop table tenants;
