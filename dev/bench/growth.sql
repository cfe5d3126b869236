-- Usage of %[1]d customers over 58 days: 1,000 events each with random keys, ten per hour and model, and
-- their rollups. Events are written in the order of time.
set session_replication_role = replica; -- the rows refer to existing rows: no check is needed
set maintenance_work_mem = '512MB';
set synchronous_commit = off;

insert into customers (tenant_id, external_id, created_at)
select t.id, 'filled-' || i, now() - interval '60 days'
from tenants t, generate_series(1, %[1]d) i;

alter table event_keys drop constraint event_keys_pkey; -- created at the end: each of 10^8 random keys would touch a page of it

create temp table filled as
select c.tenant_id, c.id as customer_id, t.epoch, m.meter_version_id, m.event_type, row_number() over (order by c.id) as n
from customers c
join tenants t on t.id = c.tenant_id
join meters m on m.tenant_id = t.id and m.slug = 'completions'
where c.external_id like 'filled-%%'
order by c.id;

create temp table models as
select meter_version_id, group_id, group_key ->> 'model' as model, row_number() over (order by group_id) - 1 as n
from usage_groups;
analyze filled, models;
-- step
with cells as (
  select f.*, m.group_id, m.model, date_trunc('hour', now()) - (1 + f.n % 14 + $1 * 14) * interval '1 hour' as hour
  from filled f
  join models m on m.meter_version_id = f.meter_version_id and m.n = $1 % 4
), made as materialized (
  select c.*, c.hour + (k + random()) * interval '6 minutes' as ts, gen_random_uuid() as key
  from cells c, generate_series(0, 9) k
), stored as (
  insert into events (tenant_id, customer_id, ts, ingested_at, epoch, id, idempotency_uuid, event_type, value, properties)
  select tenant_id, customer_id, ts, ts, epoch, gen_random_uuid(), key, event_type, 1.5, jsonb_build_object('model', model, 'region', 'eu')
  from made
), keyed as (
  insert into event_keys (tenant_id, key, digest)
  select tenant_id, key, (random() * 1e18)::bigint from made
)
insert into usage_hourly (tenant_id, customer_id, meter_version_id, group_id, hour, sum, count)
select tenant_id, customer_id, meter_version_id, group_id, hour, 15, 10 from cells
-- end
insert into usage_hourly as u (tenant_id, customer_id, meter_version_id, group_id, hour, sum, count)
select tenant_id, 0, meter_version_id, group_id, hour, sum(sum), sum(count)
from usage_hourly
where customer_id in (select customer_id from filled)
group by tenant_id, meter_version_id, group_id, hour
on conflict (tenant_id, customer_id, meter_version_id, group_id, hour) do update set sum = u.sum + excluded.sum, count = u.count + excluded.count;
insert into usage_monthly as u (tenant_id, customer_id, meter_version_id, group_id, month, sum, count)
select tenant_id, customer_id, meter_version_id, group_id, date_trunc('month', hour, 'UTC'), sum(sum), sum(count)
from usage_hourly
where customer_id in (select customer_id from filled)
group by 1, 2, 3, 4, 5
union all
select tenant_id, 0, meter_version_id, group_id, date_trunc('month', hour, 'UTC'), sum(sum), sum(count)
from usage_hourly
where customer_id in (select customer_id from filled)
group by 1, 3, 4, 5
on conflict (tenant_id, customer_id, meter_version_id, group_id, month) do update set sum = u.sum + excluded.sum, count = u.count + excluded.count;
alter table event_keys add primary key (tenant_id, key);
vacuum (analyze) customers, events, event_keys, usage_hourly, usage_monthly;
checkpoint
