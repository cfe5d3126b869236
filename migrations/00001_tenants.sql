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
  v1_bodyless_writes  boolean not null default false, -- requests without a body that are signed in v1 can write
  -- Events with an unknown field, customer or event type, or without a usable
  -- value for a meter, are rejected.
  strict              boolean not null default false,
  -- The treatment of events that reuse an idempotency key with other content.
  idempotency_conflicts text not null default 'accept' check (idempotency_conflicts in ('accept', 'reject')),
  invoice_hold          boolean not null default false, -- drafts are held until they are compared with the reports
  invoice_hold_deadline interval not null default '48 hours', -- after the grace; then drafts become final automatically
  -- epoch is incremented, under the tenant's exclusive lock, when a change of meters changes how events are counted,
  -- and when billing periods close. Each event has the epoch in which it was ingested.
  epoch               bigint not null default 1,
  -- erasures is incremented, under the same lock, when earlier look-ups of customers and groups become invalid.
  erasures            bigint not null default 0,
  created_at          timestamptz not null default now()
);
comment on table tenants is 'The organizations that use the service. Each owns all rows that have its id.';

create table audit_log (
  tenant_id  bigint not null references tenants,
  id         bigint not null, -- counts from 1 for each tenant
  at         timestamptz not null,
  actor      text not null,
  action     text not null, -- meter.create, provider.save, …
  resource   text not null, -- internal id of the changed object
  reason     text not null, -- why, in the actor's words; '': none was asked for
  address    text not null, -- IP address of the client, for IPv6 its /64 network; '': no request
  request_id text not null, -- '': no request
  -- The changed fields before and after the change. Their type is json, which
  -- keeps the text unchanged, because the MAC covers the bytes of the text.
  before     json,
  after      json,
  mac        bytea not null, -- of the entry and of the previous MAC, under a key that the database does not have
  primary key (tenant_id, id)
);
comment on table audit_log is 'The changes with their actors and times, without secrets. The entries of each tenant are one chain, so that every manipulation is detectable.';
create index on audit_log (tenant_id, resource, id);
create index on audit_log (tenant_id, at);

create table audit_heads (
  tenant_id bigint primary key references tenants,
  last_id   bigint not null,
  mac       bytea not null, -- of the last entry
  seal      bytea not null  -- a MAC of the head
);
comment on table audit_heads is 'The end of the chain of each audit log. A transaction that adds entries locks its tenant''s row.';

create table audited_updates (
  tenant_id   bigint not null references tenants,
  run_id      uuid not null,
  update_id   text collate "C" not null,
  recorded_at timestamptz not null default now(),
  primary key (tenant_id, run_id, update_id)
);
comment on table audited_updates is 'The updates of Temporal runs by operators that are in the audit log, so that none is recorded twice.';

-- +goose Down
drop table audited_updates;
drop table audit_heads;
drop table audit_log;
drop table tenants;
