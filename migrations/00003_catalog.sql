-- +goose Up
create table customers (
  tenant_id           bigint not null references tenants,
  id                  bigint generated always as identity, -- never 0, which stands for the whole tenant
  external_id         text collate "C" not null,
  name                text not null default '',
  billing_provider_id text,
  metadata            jsonb not null default '{}',
  created_at          timestamptz not null,
  archived_at         timestamptz, -- excluded from lists, until the next event
  erased_at           timestamptz, -- when the erasure of its personal data began
  -- When its group keys were erased. Its events are next: until
  -- erasure_done_at, backfills of the tenant wait.
  groups_erased_at    timestamptz,
  erasure_done_at     timestamptz, -- its personal data is erased everywhere
  billing_starts_at   timestamptz, -- start of its first billing period, if set by an operator
  -- Until then, an event can move the start of its first billing period to an
  -- earlier instant. null: the start is decided, or no plan was made yet.
  head_open_until     timestamptz,
  -- The span of the closed billing periods of its billing schedule 0. Usage of
  -- meters that feed the schedule is late if it arrives with a time in the span.
  closed_from         timestamptz,
  closed_until        timestamptz,
  streams             smallint not null default 1, -- number of its billing schedules, which are numbered from 0
  -- Raised by each transaction that plans its billing. So a transaction that
  -- waited for another one fails and reads again.
  billing_turn        bigint not null default 0,
  look_again_at       timestamptz, -- when its billing is re-evaluated without a new fact; null: it is due
  primary key (tenant_id, id),
  unique (tenant_id, external_id)
);
create unique index customers_billing_provider_id on customers (tenant_id, billing_provider_id); -- a provider's customer is charged for one customer
create index customers_erasing on customers (erased_at) where erased_at is not null and erasure_done_at is null;
comment on table customers is 'The customers of tenants. Their usage is counted and billed.';

create table meters (
  tenant_id        bigint not null references tenants,
  id               bigint generated always as identity,
  slug             text collate "C" not null,
  event_type       text collate "C" not null,
  name             text not null default '',
  meter_version_id bigint not null, -- version that reads and billing use
  unit             text not null default '', -- display name of the unit of usage, such as tokens
  -- The decimals of the quantities that are reported to a provider that adds
  -- quantities up.
  usage_scale      smallint not null default 0 check (usage_scale between 0 and 6),
  created_at       timestamptz not null default now(),
  archived_at      timestamptz, -- excluded from lists; counts no further events
  primary key (tenant_id, id),
  unique (tenant_id, slug)
);
comment on table meters is 'The meters. Each counts events of one type and has a name.';

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
  epoch          bigint not null, -- the backfill counts the events with a lower epoch
  status         text not null check (status in ('backfilling', 'complete', 'retired')),
  counted_from   timestamptz, -- start of its totals; null: the first event
  until_epoch    bigint, -- of an archived meter: events with this epoch or a higher one are not counted
  created_at     timestamptz not null default now(),
  completed_at   timestamptz,
  planned_days   int, -- number of days that may have events to backfill; null: the backfill has not begun
  -- Consecutive attempts to count a day that ended without a result. The last
  -- one may still run.
  interruptions  int not null default 0,
  retired_at     timestamptz,
  dropped_at     timestamptz, -- when the rollups of the retired version were dropped
  primary key (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id) deferrable initially deferred
);
comment on table meter_versions is 'The definitions by which meters count, or have counted. Each rollup belongs to one version.';
create index on meter_versions (tenant_id, event_type) where status <> 'retired';
create index meter_versions_kept on meter_versions (retired_at) where status = 'retired' and dropped_at is null;

alter table meters add foreign key (tenant_id, meter_version_id)
  references meter_versions (tenant_id, id) deferrable initially deferred; -- the two tables reference each other

create table plans (
  tenant_id  bigint not null references tenants,
  id         bigint generated always as identity,
  slug       text collate "C" not null,
  name       text not null,
  created_at timestamptz not null default now(),
  created_by text not null,
  archived_at timestamptz, -- excluded from lists, and from new assignments
  primary key (tenant_id, id),
  unique (tenant_id, slug)
);
comment on table plans is 'The plans. The prices of a plan replace the meters'' own prices for the customers that have the plan.';

create table catalog_revisions (
  tenant_id bigint primary key references tenants,
  revision  bigint not null -- raised by each write that can change charges, which locks this row first
);
comment on table catalog_revisions is 'The revision of each tenant''s catalog. A confirmation of a write applies to one revision.';

-- The hash identifies the terms: each charge keeps the hash of its terms.
-- Another form of price is another schema.
create table price_terms (
  tenant_id   bigint not null references tenants,
  hash        bytea not null check (length(hash) = 32), -- SHA-256 of the encoded terms
  schema      smallint not null, -- 1: ours; 2: a provider's own
  terms       jsonb not null, -- decimals are JSON numbers with all their digits
  recorded_at timestamptz not null default now(),
  primary key (tenant_id, hash)
);
comment on table price_terms is 'The terms of prices: everything that a charge depends on except the units. They are never changed and never deleted.';

-- The versions of a meter are numbered across its own prices, the prices in
-- plans and the prices of customers.
create table meter_prices (
  tenant_id      bigint not null references tenants,
  meter_id       bigint not null,
  version        integer not null,
  plan_id        bigint, -- null: not the price in a plan
  customer_id    bigint, -- null: not the price of a customer; without both, the meter's own price
  terms          bytea, -- null: from effective_from on, the customer has no price of its own
  effective_from timestamptz not null,
  withdrawn_at   timestamptz, -- when it was withdrawn, or replaced by a price with the same effective_from
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
comment on table meter_prices is 'The prices of meters, each from an instant on.';
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
comment on table customer_plans is 'The plans of customers, each from an instant on.';

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
