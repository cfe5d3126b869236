-- +goose Up
create extension if not exists timescaledb;

create table tenants (
  id                  bigint generated always as identity primary key,
  name                text not null,
  timezone            text not null default 'UTC',
  currency            text not null default 'USD',
  grace               interval not null default '72 hours',
  late_policy         text not null default 'adjust' check (late_policy in ('adjust', 'report')),
  requests_per_minute integer not null default 1000 check (requests_per_minute > 0),
  v1_bodyless_writes  boolean not null default false, -- requests without a body that are signed in v1 may do more than read
  strict              boolean not null default false, -- events of customers and event types that do not exist, or with fields that do not exist, are rejected
  idempotency_conflicts text not null default 'accept' check (idempotency_conflicts in ('accept', 'reject')), -- events whose key was used with other content
  invoice_hold          boolean not null default false, -- drafts are held until they were compared
  invoice_hold_deadline interval not null default '48 hours', -- after the grace; then they become final by themselves
  -- Raised, under the tenant's exclusive lock, whenever the way of counting
  -- changes; every event carries the epoch it was ingested in.
  epoch               bigint not null default 1,
  erasures            bigint not null default 0, -- raised, under the same lock, when what processes know of customers and groups is not true any more
  created_at          timestamptz not null default now()
);
comment on table tenants is 'The customers of the service: each owns everything else that carries its id.';

create table audit_log (
  tenant_id  bigint not null references tenants,
  id         bigint not null, -- 1, 2, 3, … of the tenant
  at         timestamptz not null,
  actor      text not null,
  action     text not null, -- meter.create, provider.save, …
  resource   text not null, -- the internal id of what changed
  reason     text not null, -- why, in the actor's words; empty where they were not asked
  address    text not null, -- where the request came from; empty where there was none
  request_id text not null, -- the same
  -- What was changed, and to what; as text, because the MAC is over its bytes.
  before     json,
  after      json,
  mac        bytea not null, -- of all that, and of the MAC before; under a key that the database does not have
  primary key (tenant_id, id)
);
comment on table audit_log is 'Who changed what and when, without secrets: of each tenant one chain, in which nothing can be changed unnoticed.';
create index on audit_log (tenant_id, resource, id);
create index on audit_log (tenant_id, at);

create table audit_heads (
  tenant_id bigint primary key references tenants,
  last_id   bigint not null,
  mac       bytea not null, -- of the last entry
  seal      bytea not null  -- a MAC of the head
);
comment on table audit_heads is 'Where the chain of each audit log ends. Whoever adds to it waits here for the others.';

create table audited_updates (
  tenant_id   bigint not null references tenants,
  run_id      uuid not null,
  update_id   text collate "C" not null,
  recorded_at timestamptz not null default now(),
  primary key (tenant_id, run_id, update_id)
);
comment on table audited_updates is 'What operators have asked of runs in Temporal and is in the audit log, so that none is there twice.';

-- +goose Down
drop table audited_updates;
drop table audit_heads;
drop table audit_log;
drop table tenants;
