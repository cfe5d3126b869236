-- +goose Up

-- What makes a repeat a repeat. A unique index on a hypertable must contain the
-- time, and a retry's timestamp may have defaulted to another second, so the
-- keys live in a table of their own, claimed in the events' transaction.
create table event_keys (
  tenant_id bigint not null,
  key       uuid not null, -- event_key of what was sent
  digest    bigint not null, -- the first 8 bytes of the SHA-256 of the event as it was sent
  -- Sent without a timestamp: its repeat would be an event of today, so the key is
  -- known for ever. Any other may be forgotten, as a repeat shows its age, and has
  -- null here, which takes no room where true or false takes 8 bytes.
  undated   boolean check (undated),
  primary key (tenant_id, key)
);
comment on table event_keys is 'The idempotency keys of events, so that no event is counted twice.';

-- +goose StatementBegin
-- What an idempotency key is known by: a UUID is itself, so that those that are
-- made in the order of time lie beside each other; of any other, the first 16
-- bytes of its SHA-256, with the version of a UUID set to 8. A UUID of that version
-- counts as any other key, so no key is the digest of another. The service does the same where it claims keys. Neither
-- strict nor immutable, so that it becomes part of the statement that calls it.
create function event_key(sent text) returns uuid language sql stable parallel safe
return case when sent ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-79a-f][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$' then sent::uuid
  else overlay(encode(substring(sha256(convert_to(sent, 'UTF8')) for 16), 'hex') placing '8' from 13)::uuid end;
-- +goose StatementEnd

-- Append only, but for what an erased customer's events said of somebody: no unique index, no foreign key and no trigger, because each of
-- them deadlocks or slows the creation of chunks under load.
create table events (
  tenant_id        bigint not null,
  customer_id      bigint not null,
  ts               timestamptz not null,
  ingested_at      timestamptz not null,
  epoch            bigint not null, -- the tenant's when it was ingested
  id               uuid not null, -- version 7
  idempotency_uuid uuid, -- the idempotency key where it is a UUID, written as PostgreSQL writes it
  event_type       text collate "C" not null,
  value            numeric not null,
  properties       jsonb,
  idempotency_key  text collate "C", -- any other
  erased           bytea -- a keyed digest of the properties and key that it was sent with, since its customer was erased; null: it is as it was sent
);
comment on table events is 'The events as they were sent, only ever added to, but for those of erased customers.';
select create_hypertable('events', by_range('ts', interval '7 days'), create_default_indexes => false);
create index events_customer_ts on events (tenant_id, customer_id, ts);
create index events_ts on events using brin (ts) with (autosummarize = on); -- of all customers, newest first

create table erased_event_keys (
  tenant_id bigint not null,
  digest    bytea not null, -- of a key, under the service's secret
  primary key (tenant_id, digest)
);
comment on table erased_event_keys is 'Which idempotency keys the events of erased customers had, so that no repeat of them is counted.';

-- An accepted event that was not counted, because its key belongs to another one: as it
-- was sent, so that an operator can send it again under another key. A repeat of the
-- same event is the same row.
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
comment on table event_conflicts is 'Events that reused the idempotency key of an event with other content, until an operator dismisses them.';
create index event_conflicts_received on event_conflicts (received_at); -- by which they are forgotten

-- A meter whose type is not here has no past to count.
create table event_types (
  tenant_id     bigint not null,
  event_type    text collate "C" not null,
  first_seen_at timestamptz not null default now(),
  primary key (tenant_id, event_type)
);
comment on table event_types is 'Every event type that a tenant has ever sent.';

-- Written every few seconds by each process of the API: none of it is billed.
create table event_counts (
  tenant_id bigint not null references tenants,
  hour      timestamptz not null, -- the first instant of one of the tenant's hours
  outcome   text collate "C" not null, -- accepted, duplicate (of the accepted), conflict (of the duplicates), or the code of a rejection
  events    bigint not null,
  primary key (tenant_id, hour, outcome)
);
comment on table event_counts is 'What requests with events were answered, by the hour.';
create index event_counts_hour on event_counts (hour); -- by which they are forgotten

-- Written every few seconds by each process of the API: at most 1,000 for a meter and an hour.
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
drop table events cascade; -- and usage_daily, which depends on the edition of TimescaleDB
drop function event_key;
drop table event_keys;
