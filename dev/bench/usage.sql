-- Reads all usage, so that as much of it as possible is in memory.
select sum(h.count), sum(m.count)
from (select sum(count) as count from usage_hourly) h, (select sum(count) as count from usage_monthly) m
