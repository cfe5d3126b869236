-- +goose Up

-- The keys identify repeated events. A unique index on a hypertable must contain
-- the time, and a retry's timestamp may have defaulted to another second. So the
-- keys have a table of their own. The events' transaction claims them.
create table event_keys (
  tenant_id bigint not null,
  key       uuid not null, -- event_key of the idempotency key
  digest    bigint not null, -- the first 8 bytes of the SHA-256 of the event as it was sent
  -- true: the event was sent without a timestamp. Its repeat would be an event of
  -- today, so the key is never forgotten. Other keys may be forgotten, because a
  -- repeat shows its age. They have null, which takes no room; a value takes 8
  -- bytes.
  undated   boolean check (undated),
  primary key (tenant_id, key)
);
comment on table event_keys is 'The idempotency keys of events, which keep an event from being counted twice.';

-- +goose StatementBegin
-- event_key returns the UUID that identifies an idempotency key. A key that is a
-- UUID stands for itself, so UUIDs in the order of time are neighbors in the
-- index. Any other key has the first 16 bytes of its SHA-256, with the version of
-- a UUID set to 8. A UUID of version 8 is treated as any other key, so no key
-- equals the digest of another. The service computes the same when it claims
-- keys. The function is neither strict nor immutable, so that PostgreSQL inlines
-- it into the calling statement.
create function event_key(sent text) returns uuid language sql stable parallel safe
return case when sent ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-79a-f][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$' then sent::uuid
  else overlay(encode(substring(sha256(convert_to(sent, 'UTF8')) for 16), 'hex') placing '8' from 13)::uuid end;
-- +goose StatementEnd

-- Events are added, and dropped in whole chunks. Only an erasure changes them: it
-- replaces a customer's personal data. The table has no unique index, no foreign
-- key and no trigger, because each of them deadlocks or slows the creation of
-- chunks under load.
create table events (
  tenant_id        bigint not null,
  customer_id      bigint not null,
  ts               timestamptz not null,
  ingested_at      timestamptz not null,
  epoch            bigint not null, -- epoch of the tenant in which it was ingested
  id               uuid not null, -- version 7
  idempotency_uuid uuid, -- the idempotency key, if it is a UUID that is written as PostgreSQL writes it
  event_type       text collate "C" not null,
  value            numeric not null,
  properties       jsonb,
  idempotency_key  text collate "C", -- any other idempotency key
  -- A keyed digest of the properties and the key with which it was sent, since
  -- its customer was erased; null: it is unchanged.
  erased           bytea
);
comment on table events is 'The events as they were sent. Only the events of erased customers change.';
select create_hypertable('events', by_range('ts', interval '7 days'), create_default_indexes => false);
create index events_customer_ts on events (tenant_id, customer_id, ts);
create index events_ts on events using brin (ts) with (autosummarize = on); -- lists of all customers' events, newest first

create table erased_event_keys (
  tenant_id bigint not null,
  digest    bytea not null, -- of a key, under the service's secret
  primary key (tenant_id, digest)
);
comment on table erased_event_keys is 'Digests of the idempotency keys of erased customers'' events, so that no repeat of these events is counted.';

-- An accepted event that was not counted, because its key belongs to another
-- event. It is stored as it was sent, so that an operator can send it again under
-- another key. A repeat of the same event adds no row.
create table event_conflicts (
  tenant_id       bigint not null,
  id              uuid not null, -- version 7
  key             uuid not null, -- event_key of idempotency_key
  digest          bigint not null, -- of this event, as in event_keys
  customer_id     bigint not null,
  event_type      text collate "C" not null,
  ts              timestamptz not null,
  value           numeric not null,
  properties      jsonb,
  idempotency_key text collate "C" not null,
  received_at     timestamptz not null,
  primary key (tenant_id, key, digest),
  unique (tenant_id, id)
);
comment on table event_conflicts is 'Events that reused the idempotency key of an event with other content. They stay until an operator dismisses them, or until they are deleted by age.';
create index event_conflicts_received on event_conflicts (received_at); -- for deletion by age

-- A meter of an event type without a row has no events to backfill.
create table event_types (
  tenant_id     bigint not null,
  event_type    text collate "C" not null,
  first_seen_at timestamptz not null default now(),
  primary key (tenant_id, event_type)
);
comment on table event_types is 'All event types that tenants have sent.';

-- Each process of the API adds to the counts every few seconds. No invoice
-- depends on them.
create table event_counts (
  tenant_id bigint not null references tenants,
  hour      timestamptz not null, -- the first instant of one of the tenant's hours
  -- accepted; duplicate (also counted as accepted); conflict (also counted as
  -- duplicate); uncounted:RULE (also counted as accepted); or the code of a
  -- rejection.
  outcome   text collate "C" not null,
  events    bigint not null,
  primary key (tenant_id, hour, outcome)
);
comment on table event_counts is 'The numbers of events in requests, by hour and outcome.';
create index event_counts_hour on event_counts (hour); -- for deletion by age

-- Each process of the API adds references every few seconds, at most 1,000 for a
-- meter and an hour.
create table uncounted_events (
  tenant_id   bigint not null references tenants,
  meter_id    bigint not null,
  received_at timestamptz not null, -- ingested_at of the event
  event_id    uuid not null,
  rule        text collate "C" not null, -- value_missing or value_invalid
  customer_id bigint not null,
  ts          timestamptz not null, -- of the event
  primary key (tenant_id, meter_id, received_at, event_id, rule)
);
comment on table uncounted_events is 'References to events that passed the filters of a meter and that the meter could not count.';
create index uncounted_events_customer on uncounted_events (tenant_id, customer_id, meter_id, received_at); -- for lists of a customer and for erasures
create index uncounted_events_received on uncounted_events using brin (received_at) with (autosummarize = on); -- for deletion by age; no list of one meter reads it

-- +goose Down
drop table uncounted_events;
drop table event_counts;
drop table event_types;
drop table event_conflicts;
drop table erased_event_keys;
drop table events cascade; -- also drops usage_daily, which depends on the edition of TimescaleDB
drop function event_key;
drop table event_keys;
