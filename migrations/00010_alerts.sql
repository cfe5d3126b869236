-- +goose Up
create table alerts (
  tenant_id   bigint not null references tenants,
  id          bigint generated always as identity,
  name        text not null,
  type        text not null check (type in ('usage', 'spend', 'quota', 'silence')),
  customer_id bigint, -- null, with plan_id null: all customers
  plan_id     bigint,
  meter_id    bigint, -- null: all meters
  group_id    uuid, -- null: all groups
  group_key   jsonb,
  thresholds  numeric[] not null, -- ascending: units, money or percent; {}: silence
  minutes     integer not null default 0, -- of silence
  currency    text not null default '',
  enabled     boolean not null default true,
  created_at  timestamptz not null,
  changed_at  timestamptz not null, -- time of the last change
  created_by  text not null,
  deleted_at  timestamptz, -- afterwards, the worker deletes its firings and then the alert
  primary key (tenant_id, id),
  foreign key (tenant_id, customer_id) references customers (tenant_id, id),
  foreign key (tenant_id, plan_id) references plans (tenant_id, id),
  foreign key (tenant_id, meter_id) references meters (tenant_id, id),
  check (customer_id is null or plan_id is null),
  check ((group_id is null) = (group_key is null)),
  check (deleted_at is null or not enabled)
);
comment on table alerts is 'The alerts. A tenant is notified when a customer crosses a threshold, or is silent for too long.';
create index alerts_customer on alerts (tenant_id, customer_id);
create index alerts_plan on alerts (tenant_id, plan_id);
create index alerts_quota on alerts (tenant_id) where enabled and type = 'quota'; -- for grants, which queue a customer with such an alert
create index alerts_deleted on alerts (deleted_at) where deleted_at is not null;

-- For an erasure, which finds the stored responses that name a customer.
create index idempotency_keys_alerts on idempotency_keys (tenant_id, (answer->>'customer')) where operation = 'create-alert';

-- Because of the unique key, two evaluations of one crossing write one row and one
-- message.
create table alert_firings (
  tenant_id    bigint not null,
  id           bigint generated always as identity,
  alert_id     bigint not null,
  customer_id  bigint not null,
  threshold    numeric not null,
  quota_id     bigint not null, -- 0 except for a quota alert; the quota may be deleted
  stream       smallint not null, -- billing schedule of the period
  period_start timestamptz not null, -- for a quota alert, of its window; for silence, the time of the last event
  period_end   timestamptz not null, -- for silence, the time at which the silence became too long
  value        numeric not null,
  late         boolean not null, -- the period had ended when it fired
  fired_at     timestamptz not null,
  primary key (tenant_id, id),
  unique (tenant_id, alert_id, customer_id, threshold, quota_id, stream, period_start),
  foreign key (tenant_id, alert_id) references alerts (tenant_id, id) on delete cascade,
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);
comment on table alert_firings is 'Each crossing of a threshold: once for each alert, customer, threshold, quota and period.';
create index alert_firings_alert on alert_firings (tenant_id, alert_id, id); -- newest first
create index alert_firings_period on alert_firings (tenant_id, period_end); -- firings of running periods
create index alert_firings_fired on alert_firings (fired_at); -- for deletion by age

alter table quotas add column limited_at timestamptz; -- when the quota got its current limit
update quotas set limited_at = created_at;
alter table quotas alter column limited_at set not null;

-- Because of the primary key, two evaluations of one window write one row and one
-- message.
create table exceeded_quotas (
  tenant_id    bigint not null,
  quota_id     bigint not null,
  customer_id  bigint not null,
  window_start timestamptz not null,
  window_end   timestamptz not null,
  exceeded_at  timestamptz not null,
  primary key (tenant_id, quota_id, customer_id, window_start),
  foreign key (tenant_id, quota_id) references quotas (tenant_id, id) on delete cascade,
  foreign key (tenant_id, customer_id) references customers (tenant_id, id)
);
comment on table exceeded_quotas is 'The quotas that usage has exceeded: once for each customer and window.';
create index exceeded_quotas_window_end on exceeded_quotas (window_end); -- for deletion by age

-- Rows are only added and deleted. A fold inserts a row for each customer with new
-- usage to which an alert or a quota may apply. The fold never waits for an
-- evaluator, which deletes the rows that it evaluates.
create table alert_due (
  tenant_id         bigint not null references tenants,
  customer_id       bigint not null, -- 0: all customers with an id above after_customer_id
  id                bigint generated always as identity,
  due_at            timestamptz not null default '-infinity', -- -infinity: as soon as possible
  queued_at         timestamptz not null default now(),
  after_customer_id bigint not null default 0,
  used_from         timestamptz, -- the earliest hour of the folded usage; null: none was folded
  failures          integer not null default 0, -- of the customer's evaluation, which is repeated alone at due_at
  primary key (tenant_id, customer_id, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table alert_due is 'The queue of customers to compare with their alerts.';
create index alert_due_due_at on alert_due (tenant_id, due_at, id);
create index alert_due_failures on alert_due (tenant_id, customer_id) where failures > 0;

-- +goose Down
drop table alert_due;
drop table exceeded_quotas;
alter table quotas drop column limited_at;
drop table alert_firings;
drop table alerts;
drop index idempotency_keys_alerts;
