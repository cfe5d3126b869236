-- +goose Up

-- Rollups are changed in the transaction that stores the events. Customer 0 is
-- the tenant itself. Hours and months are the local ones of the meter version's
-- time zone. late_* is usage that arrived after its billing period was closed:
-- sum and count of a closed window never change again.
create table usage_hourly (
  tenant_id        bigint not null,
  customer_id      bigint not null,
  meter_version_id bigint not null,
  group_id         uuid not null,
  hour             timestamptz not null,
  sum              numeric not null,
  count            bigint not null,
  late_sum         numeric not null default 0,
  late_count       bigint not null default 0,
  primary key (tenant_id, customer_id, meter_version_id, group_id, hour)
) with (fillfactor = 70);
comment on table usage_hourly is 'Usage by local hour, customer, meter version and group.';
select create_hypertable('usage_hourly', by_range('hour', interval '28 days'), create_default_indexes => false);

create table usage_monthly (
  tenant_id        bigint not null,
  customer_id      bigint not null,
  meter_version_id bigint not null,
  group_id         uuid not null,
  month            timestamptz not null,
  sum              numeric not null,
  count            bigint not null,
  late_sum         numeric not null default 0,
  late_count       bigint not null default 0,
  primary key (tenant_id, customer_id, meter_version_id, group_id, month)
) with (fillfactor = 70);
comment on table usage_monthly is 'Usage by local month, customer, meter version and group.';

create table usage_groups (
  tenant_id        bigint not null,
  meter_version_id bigint not null,
  group_id         uuid not null,
  group_key        jsonb not null,
  primary key (tenant_id, meter_version_id, group_id)
);
comment on table usage_groups is 'The values of the group_by properties that a group_id stands for.';

-- The mark is inserted first in the transaction that counts the day, so a day
-- is counted once however often the backfill runs.
create table backfill_days (
  tenant_id        bigint not null,
  meter_version_id bigint not null,
  day              date not null, -- UTC
  events           bigint not null default 0,
  primary key (tenant_id, meter_version_id, day),
  foreign key (tenant_id, meter_version_id) references meter_versions (tenant_id, id)
);
comment on table backfill_days is 'The days that a backfill has counted.';

create table backfill_hours (
  tenant_id        bigint not null,
  meter_version_id bigint not null,
  hour             timestamptz not null, -- UTC
  events           bigint not null default 0,
  primary key (tenant_id, meter_version_id, hour),
  foreign key (tenant_id, meter_version_id) references meter_versions (tenant_id, id)
);
comment on table backfill_hours is 'The hours that a backfill has counted, of the days that it has begun.';

-- +goose Down
drop table backfill_hours;
drop table backfill_days;
drop table usage_groups;
drop table usage_monthly;
drop table usage_hourly;
