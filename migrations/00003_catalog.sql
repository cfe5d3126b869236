-- +goose Up
create table customers (
  tenant_id           bigint not null references tenants,
  id                  bigint generated always as identity, -- 0 is never given out: it stands for the whole tenant
  external_id         text collate "C" not null,
  name                text not null default '',
  billing_provider_id text,
  metadata            jsonb not null default '{}',
  created_at          timestamptz not null,
  archived_at         timestamptz, -- left out of lists, until the next event
  erased_at           timestamptz, -- what was personal is gone, or going
  groups_erased_at    timestamptz, -- its group keys are erased, and its events are next: until erasure_done_at, backfills of the tenant wait
  erasure_done_at     timestamptz, -- it is gone everywhere
  billing_starts_at   timestamptz, -- where the billing periods begin, if an operator said so
  head_open_until     timestamptz, -- until when an event may bring its first billing period forward; null: decided, or nobody has looked yet
  closed_from         timestamptz, -- the span of the closed billing periods of its stream 0:
  closed_until        timestamptz, -- usage of the meters that feed it which arrives within it is late
  streams             smallint not null default 1, -- how many it has, numbered from 0 on
  billing_turn        bigint not null default 0, -- raised by whoever plans its billing, so that another who waited fails and reads again
  look_again_at       timestamptz, -- when there may be something to do about its billing although nothing has changed; null: nobody has looked yet
  primary key (tenant_id, id),
  unique (tenant_id, external_id)
);
create unique index customers_billing_provider_id on customers (tenant_id, billing_provider_id); -- whoever is charged is charged for one customer
create index customers_erasing on customers (erased_at) where erased_at is not null and erasure_done_at is null;
comment on table customers is 'The customers of a tenant, whose usage is counted and billed.';

create table meters (
  tenant_id        bigint not null references tenants,
  id               bigint generated always as identity,
  slug             text collate "C" not null,
  event_type       text collate "C" not null,
  name             text not null default '',
  meter_version_id bigint not null, -- what reads and billing use
  unit             text not null default '', -- the name of its usage for people, such as tokens
  -- The decimals of usage that a provider takes that adds up units.
  usage_scale      smallint not null default 0 check (usage_scale between 0 and 6),
  created_at       timestamptz not null default now(),
  archived_at      timestamptz, -- left out of lists, and counts no further events
  primary key (tenant_id, id),
  unique (tenant_id, slug)
);
comment on table meters is 'What is counted: the events of one type, under a name of its own.';

create table meter_versions (
  tenant_id      bigint not null references tenants,
  id             bigint generated always as identity,
  meter_id       bigint not null,
  event_type     text collate "C" not null,
  aggregation    text not null,
  value_property text not null default '', -- path into properties of the value; '': the event's own value
  filters        jsonb not null default '[]', -- conditions on properties, all of which a counted event meets
  group_by       text[] not null default '{}', -- paths into properties
  timezone       text not null,
  epoch          bigint not null, -- events with a lower epoch are the backfill's to count
  status         text not null check (status in ('backfilling', 'complete', 'retired')),
  counted_from   timestamptz, -- where its past begins; null: with the first event
  until_epoch    bigint, -- the meter is archived: events with this epoch or a higher one are not counted
  created_at     timestamptz not null default now(),
  completed_at   timestamptz,
  planned_days   int, -- days that may hold its past; null: its backfill has not begun
  interruptions  int not null default 0, -- attempts in a row to count a day that ended without an answer; the last may still be under way
  retired_at     timestamptz,
  dropped_at     timestamptz, -- when the rollups of the retired version were dropped
  primary key (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id) deferrable initially deferred
);
comment on table meter_versions is 'The ways in which a meter has counted; rollups belong to one of them.';
create index on meter_versions (tenant_id, event_type) where status <> 'retired';
create index meter_versions_kept on meter_versions (retired_at) where status = 'retired' and dropped_at is null;

alter table meters add foreign key (tenant_id, meter_version_id)
  references meter_versions (tenant_id, id) deferrable initially deferred; -- the two name each other

create table plans (
  tenant_id  bigint not null references tenants,
  id         bigint generated always as identity,
  slug       text collate "C" not null,
  name       text not null,
  created_at timestamptz not null default now(),
  created_by text not null,
  archived_at timestamptz, -- left out of lists, and assigned to nobody anew
  primary key (tenant_id, id),
  unique (tenant_id, slug)
);
comment on table plans is 'Plans: the prices of one hold for the customers who have it, instead of the meters'' own.';

create table catalog_revisions (
  tenant_id bigint primary key references tenants,
  revision  bigint not null -- raised by each write that can change charges, which locks this row first
);
comment on table catalog_revisions is 'The revision of each tenant''s catalog: a confirmation of a write is for one revision.';

-- Named by what they say: whatever was charged keeps the hash of the terms that
-- it was charged by, and another form of price is another schema.
create table price_terms (
  tenant_id   bigint not null references tenants,
  hash        bytea not null check (length(hash) = 32), -- SHA-256 of the terms, as they are written
  schema      smallint not null, -- 1: ours; 2: a provider's own
  terms       jsonb not null, -- decimals are JSON numbers with all their digits
  recorded_at timestamptz not null default now(),
  primary key (tenant_id, hash)
);
comment on table price_terms is 'All that a charge depends on beside the units: never changed, and never deleted.';

-- A meter's versions are numbered across its own prices, its plans' and its customers'.
create table meter_prices (
  tenant_id      bigint not null references tenants,
  meter_id       bigint not null,
  version        integer not null,
  plan_id        bigint, -- null: no plan's
  customer_id    bigint, -- null: no customer's; without both, the meter's own
  terms          bytea, -- null: from then on the customer has no price of its own
  effective_from timestamptz not null,
  withdrawn_at   timestamptz, -- when it was taken back, or another of the same instant took its place: it holds no more
  created_at     timestamptz not null default now(),
  created_by     text not null,
  primary key (tenant_id, meter_id, version),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id),
  foreign key (tenant_id, plan_id) references plans (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, terms) references price_terms (tenant_id, hash),
  check (plan_id is null or customer_id is null),
  check (terms is not null or customer_id is not null)
);
comment on table meter_prices is 'The prices of a meter, each from an instant on.';
create unique index on meter_prices (tenant_id, meter_id, coalesce(plan_id, 0), coalesce(customer_id, 0), effective_from) where withdrawn_at is null;
create index on meter_prices (tenant_id, meter_id, version) where customer_id is null;
create index on meter_prices (tenant_id, customer_id, meter_id) where customer_id is not null;

create table customer_plans (
  tenant_id      bigint not null,
  customer_id    bigint not null,
  plan_id        bigint, -- null: none
  effective_from timestamptz not null,
  created_at     timestamptz not null default now(),
  created_by     text not null,
  primary key (tenant_id, customer_id, effective_from),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, plan_id) references plans (tenant_id, id)
);
comment on table customer_plans is 'Which plan a customer has from an instant on.';

-- +goose Down
drop table customer_plans;
drop table meter_prices;
drop table price_terms;
drop table catalog_revisions;
drop table plans;
alter table meters drop constraint meters_tenant_id_meter_version_id_fkey;
drop table meter_versions;
drop table meters;
drop table customers;
