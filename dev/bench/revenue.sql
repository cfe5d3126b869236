-- 100,000 customers with usage of the tenant's three meters with a price, two closed billing periods and an
-- open one. The open period of every tenth customer is that of a subscription, with its own boundaries.
set session_replication_role = replica; -- the rows refer to existing rows: no check is needed

insert into customers (tenant_id, external_id, created_at, closed_from, closed_until)
select t.id, 'revenue-' || i, month.at - interval '2 months', month.at - interval '2 months', month.at - interval '1 month'
from tenants t, generate_series(1, 100000) i, date_trunc('month', now(), 'UTC') month (at);

insert into billing_connections (tenant_id, kind, statements, invoices, account, livemode, secret, secret_last_four, validated_at, bills_since, created_by)
select t.id, 'stripe', false, true, 'acct_revenue', true, '', 'abcd', now(), now(), 'bench'
from tenants t;

with borders (tenant_id, customer_id, n, at) as (
  select c.tenant_id, c.id, n, case
    when c.id % 10 > 0 or n < 2 then date_trunc('month', now(), 'UTC') + (n - 2) * interval '1 month'
    else date_trunc('second', now()) + (n - 2) * interval '30 days' - interval '5 days' - c.id % 100000 * interval '1 second' end
  from customers c, generate_series(0, 3) n)
insert into billing_periods (tenant_id, customer_id, starts_at, ends_at, closed_at, closed_epoch)
select b.tenant_id, b.customer_id, b.at, e.at, case when b.n < 2 then now() end, case when b.n < 2 then 1 end
from borders b
join borders e on e.customer_id = b.customer_id and e.n = b.n + 1
order by 1, 2, 3;

update customers set billing_provider_id = 'cus_' || id where id % 10 = 0;

insert into billing_links (tenant_id, customer_id, connection_id, provider_customer, subscription, period_start, period_end, destinations, read_at)
select p.tenant_id, p.customer_id, k.id, 'cus_' || p.customer_id, 'sub_' || p.customer_id, p.starts_at, p.ends_at, '[]', now()
from billing_periods p
join billing_connections k on k.tenant_id = p.tenant_id
where p.closed_at is null
  and p.customer_id % 10 = 0;

insert into billing_period_totals (tenant_id, period_id, meter_id, meter_version_id, usage, event_count, price_version, charge, currency, working, billed, test)
select p.tenant_id, p.id, m.id, m.meter_version_id, 12.5, 10, 1, 3.13, 'USD', '[]', true, false
from billing_periods p, meters m
where p.closed_at is not null
  and m.slug like 'revenue-%';

insert into usage_monthly (tenant_id, customer_id, meter_version_id, group_id, month, sum, count)
select c.tenant_id, c.id, m.meter_version_id, gen_random_uuid(), date_trunc('month', now(), 'UTC'), c.id % 1000 + 0.125, 10
from customers c, meters m
where c.id % 10 > 0
  and m.slug like 'revenue-%'
order by 1, 2, 3;

insert into usage_hourly (tenant_id, customer_id, meter_version_id, group_id, hour, sum, count)
select c.tenant_id, c.id, m.meter_version_id, '00000000-0000-0000-0000-000000000000', date_trunc('hour', now()) - hours * interval '1 hour', c.id % 1000 + 0.125, 10
from customers c, meters m, generate_series(1, 10) hours
where c.id % 10 = 0
  and m.slug like 'revenue-%'
order by 1, 2, 3, 5;

set session_replication_role = origin;
analyze customers, billing_links, billing_periods, billing_period_totals, usage_monthly, usage_hourly;
