-- All usage, so that it is in memory as far as there is room.
select sum(h.count), sum(m.count)
from (select sum(count) as count from usage_hourly) h, (select sum(count) as count from usage_monthly) m
