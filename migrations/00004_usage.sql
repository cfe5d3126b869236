-- +goose Up

-- Rollups, changed in the transaction that stores the events. Customer 0 is the
-- tenant itself. Hours and months are the local ones of the meter version's zone.
-- late_* is usage that arrived after its billing period was closed: sum and
-- count of a closed window never change again.
create table usage_hourly (
  tenant_id     bigint not null,
  customer_id   bigint not null,
  meter_version_id bigint not null,
  group_id      uuid not null,
  hour          timestamptz not null,
  sum           numeric not null,
  count         bigint not null,
  late_sum      numeric not null default 0,
  late_count    bigint not null default 0,
  primary key (tenant_id, customer_id, meter_version_id, group_id, hour)
) with (fillfactor = 70);
select create_hypertable('usage_hourly', by_range('hour', interval '28 days'), create_default_indexes => false);

create table usage_monthly (
  tenant_id     bigint not null,
  customer_id   bigint not null,
  meter_version_id bigint not null,
  group_id      uuid not null,
  month         timestamptz not null,
  sum           numeric not null,
  count         bigint not null,
  late_sum      numeric not null default 0,
  late_count    bigint not null default 0,
  primary key (tenant_id, customer_id, meter_version_id, group_id, month)
) with (fillfactor = 70);

-- What a group_id stands for.
create table usage_groups (
  tenant_id     bigint not null,
  meter_version_id bigint not null,
  group_id      uuid not null,
  group_key     jsonb not null,
  primary key (tenant_id, meter_version_id, group_id)
);

-- +goose Down
drop table usage_groups;
drop table usage_monthly;
drop table usage_hourly;
