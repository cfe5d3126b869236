-- +goose Up

-- By key: strings, numbers and booleans that the client interprets.
alter table plans add column features jsonb not null default '{}';

create table quotas (
  tenant_id   bigint not null references tenants,
  id          bigint generated always as identity,
  customer_id bigint, -- null: the quota limits each customer of the plan
  plan_id     bigint,
  meter_id    bigint not null,
  group_id    uuid, -- null: all usage of the meter
  group_key   jsonb,
  amount      numeric check (amount >= 0), -- the limit; null: unlimited
  mode        text not null check (mode in ('soft', 'hard')),
  period      text not null check (period in ('billing', 'month', 'day', 'hour', 'lifetime')),
  created_at  timestamptz not null,
  created_by  text not null,
  primary key (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, plan_id) references plans (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id),
  check ((customer_id is null) <> (plan_id is null)),
  check ((group_id is null) = (group_key is null))
);
comment on table quotas is 'The limits of usage of a customer, or of each customer of a plan.';
create unique index quotas_of_customer on quotas (tenant_id, customer_id, meter_id, period, coalesce(group_id, '00000000-0000-0000-0000-000000000000')) where customer_id is not null;
create unique index quotas_of_plan on quotas (tenant_id, plan_id, meter_id, period, coalesce(group_id, '00000000-0000-0000-0000-000000000000')) where plan_id is not null;

-- The arrays are the columns of a table with a row for each amount.
create table quota_reservations (
  tenant_id    bigint not null references tenants,
  id           text collate "C" not null, -- chosen by the client, or generated
  customer_id  bigint not null,
  meter_ids    bigint[] not null,
  group_ids    uuid[] not null, -- a null item: the request named no group
  amounts      numeric[] not null,
  digest       bytea not null, -- SHA-256 of the request
  exceeded     boolean not null, -- whether it exceeded a soft quota when it was granted
  granted_at   timestamptz not null,
  expires_at   timestamptz not null, -- from then on, it reserves nothing
  ended_at     timestamptz, -- settled, released or expired; from then on, it reserves nothing
  settled      jsonb, -- the outcomes of its events
  settled_with bytea, -- SHA-256 of those events; null: it is not settled
  primary key (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  check ((settled is null) = (settled_with is null)),
  check (settled is null or ended_at is not null)
);
comment on table quota_reservations is 'Usage that is granted before it happens.';
create index quota_reservations_live on quota_reservations (tenant_id, customer_id, expires_at) where ended_at is null;
create index quota_reservations_expired on quota_reservations (expires_at); -- for deletion by age

-- +goose Down
drop table quota_reservations;
drop table quotas;
alter table plans drop column features;
