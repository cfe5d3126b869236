-- Usage of 100,000 customers. Each has ten hours of this month of the meter calls. The first 1,000 also
-- have three hours of each of 30 days and ten models of the meter tokens.
set session_replication_role = replica; -- the rows refer to existing rows: no check is needed

insert into customers (tenant_id, external_id, created_at)
select t.id, 'filled-' || i, now() - interval '60 days'
from tenants t, generate_series(1, 100000) i;

create temp table filled as
select tenant_id, id as customer_id, row_number() over (order by id) as n
from customers
where external_id like 'filled-%';

create temp table counted as
select distinct m.slug, m.meter_version_id, u.group_id
from meters m
join usage_hours u on u.tenant_id = m.tenant_id and u.meter_version_id = m.meter_version_id;
analyze filled, counted;

insert into usage_hourly (tenant_id, customer_id, meter_version_id, group_id, hour, sum, count)
select f.tenant_id, f.customer_id, c.meter_version_id, c.group_id,
  date_trunc('month', now(), 'UTC') + (f.n % 13 + 2 * k) * interval '1 hour', f.n % 1000 + 0.125, 10
from filled f
join counted c on c.slug = 'calls'
cross join generate_series(0, 9) k;

insert into usage_hourly (tenant_id, customer_id, meter_version_id, group_id, hour, sum, count)
select f.tenant_id, f.customer_id, c.meter_version_id, c.group_id,
  date_trunc('day', now(), 'UTC') - d * interval '1 day' + (f.n % 8 + 8 * k) * interval '1 hour', f.n % 1000 + 0.125, 10
from filled f
join counted c on c.slug = 'tokens'
cross join generate_series(1, 30) d
cross join generate_series(0, 2) k
where f.n <= 1000;

insert into usage_hourly as u (tenant_id, customer_id, meter_version_id, group_id, hour, sum, count)
select tenant_id, 0, meter_version_id, group_id, hour, sum(sum), sum(count)
from usage_hourly
where customer_id in (select customer_id from filled)
group by tenant_id, meter_version_id, group_id, hour
on conflict (tenant_id, customer_id, meter_version_id, group_id, hour) do update set sum = u.sum + excluded.sum, count = u.count + excluded.count;

insert into usage_monthly as u (tenant_id, customer_id, meter_version_id, group_id, month, sum, count)
select h.tenant_id, c.customer_id, meter_version_id, group_id, date_trunc('month', hour, 'UTC'), sum(sum), sum(count)
from usage_hourly h
cross join lateral (values (h.customer_id), (0)) c (customer_id)
where h.customer_id in (select customer_id from filled)
group by 1, 2, 3, 4, 5
on conflict (tenant_id, customer_id, meter_version_id, group_id, month) do update set sum = u.sum + excluded.sum, count = u.count + excluded.count;

set session_replication_role = origin;
analyze customers, usage_hourly, usage_monthly;
