-- +goose Up

-- The transaction that stores events appends their usage to usage_added, in a few
-- rows. About once a second, a fold merges these rows into the rollups. A read of
-- usage adds the rows that are not folded yet. Customer 0 is the tenant itself.
-- Hours and months are local in the meter version's time zone. late_* is usage
-- that arrived after its billing period was closed: sum and count of a closed
-- window never change again. A fold may update every row of a page at once. The
-- fill factor leaves room for new rows beside the old ones. If a page has room for
-- all of them, no index changes.
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
) with (fillfactor = 60);
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
) with (fillfactor = 50);
comment on table usage_monthly is 'Usage by local month, customer, meter version and group.';
create index usage_monthly_months on usage_monthly (tenant_id, meter_version_id, month); -- all customers of one month
create index usage_monthly_late on usage_monthly (tenant_id, meter_version_id) where late_count > 0;

-- The arrays are the columns of a table with a row for each customer, version,
-- group and hour. The arrays of late usage are null if no usage is late.
create table usage_added (
  tenant_id         bigint not null,
  id                bigint generated always as identity,
  customer_ids      bigint[] not null,
  meter_version_ids bigint[] not null,
  group_ids         uuid[] not null,
  hours             timestamptz[] not null,
  months            timestamptz[] not null, -- the months that contain the hours
  sums              numeric[] not null,
  counts            bigint[] not null,
  late_sums         numeric[],
  late_counts       bigint[],
  primary key (tenant_id, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table usage_added is 'The usage that transactions have added and no fold has merged into usage_hourly and usage_monthly yet.';

create view usage_unfolded as
select a.tenant_id, a.id, a.customer_ids, f.customer_id as event_customer_id, c.customer_id, f.meter_version_id, f.group_id, f.hour, f.month,
  f.sum, f.count, coalesce(f.late_sum, 0) as late_sum, coalesce(f.late_count, 0) as late_count
from usage_added a
cross join lateral unnest(a.customer_ids, a.meter_version_ids, a.group_ids, a.hours, a.months, a.sums, a.counts, a.late_sums, a.late_counts)
  f (customer_id, meter_version_id, group_id, hour, month, sum, count, late_sum, late_count)
cross join lateral (values (f.customer_id), (0)) c (customer_id);
comment on view usage_unfolded is 'The items of usage_added in rows, once for the customer and once for the tenant itself. A query of one customer filters by customer_ids, which has all customers of the row in usage_added, and by event_customer_id. So all other rows are excluded before any join.';

create view usage_hours as
select tenant_id, customer_id, meter_version_id, group_id, hour, sum(sum) as sum, sum(count)::bigint as count, sum(late_sum) as late_sum, sum(late_count)::bigint as late_count
from (
  select tenant_id, customer_id, meter_version_id, group_id, hour, sum, count, late_sum, late_count from usage_hourly
  union all
  select tenant_id, customer_id, meter_version_id, group_id, hour, sum, count, late_sum, late_count from usage_unfolded) u
group by 1, 2, 3, 4, 5;
comment on view usage_hours is 'usage_hourly with the usage that is not folded yet.';

create view usage_months as
select tenant_id, customer_id, meter_version_id, group_id, month, sum(sum) as sum, sum(count)::bigint as count, sum(late_sum) as late_sum, sum(late_count)::bigint as late_count
from (
  select tenant_id, customer_id, meter_version_id, group_id, month, sum, count, late_sum, late_count from usage_monthly
  union all
  select tenant_id, customer_id, meter_version_id, group_id, month, sum, count, late_sum, late_count from usage_unfolded) u
group by 1, 2, 3, 4, 5;
comment on view usage_months is 'usage_monthly with the usage that is not folded yet.';

create table usage_groups (
  tenant_id        bigint not null,
  meter_version_id bigint not null,
  group_id         uuid not null,
  group_key        jsonb not null,
  primary key (tenant_id, meter_version_id, group_id)
);
comment on table usage_groups is 'The values of the group_by properties that a group_id stands for.';

create table backfill_days (
  tenant_id        bigint not null,
  meter_version_id bigint not null,
  day              date not null, -- UTC
  events           bigint not null default 0,
  primary key (tenant_id, meter_version_id, day),
  foreign key (tenant_id, meter_version_id) references meter_versions (tenant_id, id)
);
comment on table backfill_days is 'The days that a backfill has counted in full.';

-- A transaction that counts hours inserts their rows first. So each hour is
-- counted once, however often the backfill runs.
create table backfill_hours (
  tenant_id        bigint not null,
  meter_version_id bigint not null,
  hour             timestamptz not null, -- UTC
  events           bigint not null default 0,
  counted_at       timestamptz not null default now(),
  primary key (tenant_id, meter_version_id, hour),
  foreign key (tenant_id, meter_version_id) references meter_versions (tenant_id, id)
);
comment on table backfill_hours is 'The hours that a backfill has counted.';

-- +goose Down
drop table backfill_hours;
drop table backfill_days;
drop table usage_groups;
drop view usage_months;
drop view usage_hours;
drop view usage_unfolded;
drop table usage_added;
drop table usage_monthly;
drop table usage_hourly;
