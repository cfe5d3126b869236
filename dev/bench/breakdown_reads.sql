-- The rows of a month by customer.
select customer_id, sum(sum + late_sum) as value
from usage_monthly u
join meters m using (tenant_id, meter_version_id)
where m.slug = 'calls'
  and customer_id <> 0
  and month >= $1
  and month < $2
group by 1
order by value desc, 1
limit 51;
-- The rows by customer, model and day, in this order.
select customer_id, group_id, date_trunc('day', hour, 'UTC') as day, sum(sum + late_sum) as value
from usage_hourly u
join meters m using (tenant_id, meter_version_id)
where m.slug = 'tokens'
  and customer_id <> 0
  and hour >= $1
  and hour < $2
group by 1, 2, 3
order by 1, 2, 3
limit 51;
-- The same rows by value.
select customer_id, group_id, date_trunc('day', hour, 'UTC') as day, sum(sum + late_sum) as value
from usage_hourly u
join meters m using (tenant_id, meter_version_id)
where m.slug = 'tokens'
  and customer_id <> 0
  and hour >= $1
  and hour < $2
group by 1, 2, 3
order by value desc, 1, 2, 3
limit 51
