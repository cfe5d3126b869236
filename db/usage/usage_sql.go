package usage

// CountedEvents returns the SQL of a customer's number of events in the months that a range overlaps, plus the
// customer's late events of all months. It includes only the meter versions that billing uses. It reads the events
// that are not folded yet from added, which is AddedEvents or a table with its rows.
func CountedEvents(added, tenant, customer, start, end string) string {
	within := func(table string) string {
		return `(
	select coalesce(sum(case when u.month < ` + end + ` and u.month > ` + start + ` - interval '32 days'
	  then u.count + u.late_count else u.late_count end), 0)::bigint
	from ` + table + ` u
	where u.tenant_id = ` + tenant + `
	  and u.customer_id = ` + customer + `
	  and u.meter_version_id in (select m.meter_version_id from meters m where m.tenant_id = ` + tenant + `))`
	}
	return `(` + within("usage_monthly") + ` + case when ` + customer + ` in (select customer_id from ` + added + ` a) then ` + within(added) + ` else 0 end)`
}

// AddedEvents is the SQL of the numbers of events that are not folded yet, by customer, meter version and month.
// AddedEventsOf is the same for @customer only.
var (
	AddedEvents   = selectAdded("")
	AddedEventsOf = selectAdded(" and u.customer_id = @customer and " + addedCondition("u"))
)

// selectAdded returns the SQL of AddedEvents, restricted by a further condition that begins with "and".
func selectAdded(condition string) string {
	return `(
	select tenant_id, customer_id, meter_version_id, month, sum(count) as count, sum(late_count) as late_count
	from usage_unfolded u
	where tenant_id = @tenant` + condition + `
	group by 1, 2, 3, 4)`
}

// GroupsUsed is the SQL of the meter versions and groups in which customer $2 has usage. GroupUsedByOthers is the
// condition that another customer has usage in group g of usage_groups. GroupUsedByAny is the condition that any
// customer has usage in group g. All three read only usage that is folded.
const (
	GroupsUsed        = `select u.meter_version_id, u.group_id from usage_monthly u where u.tenant_id = $1 and u.customer_id = $2`
	GroupUsedByOthers = `exists (
		  select
		  from usage_monthly o
		  where o.tenant_id = $1
		    and o.customer_id not in (0, $2)
		    and o.meter_version_id = g.meter_version_id
		    and o.group_id = g.group_id)`
	GroupUsedByAny = `exists (
		  select
		  from usage_monthly o
		  where o.tenant_id = g.tenant_id
		    and o.customer_id = 0 -- the whole tenant
		    and o.meter_version_id = g.meter_version_id
		    and o.group_id = g.group_id)`
)

// SelectLateMonths is the SQL of the months in which @customer has late usage.
var SelectLateMonths = `
	select distinct u.month
	from (
	  select tenant_id, meter_version_id, month
	  from usage_monthly
	  where tenant_id = @tenant
	    and customer_id = @customer
	    and late_count > 0
	  union all
	  select tenant_id, meter_version_id, month
	  from usage_unfolded a
	  where tenant_id = @tenant
	    and customer_id = @customer
	    and ` + addedCondition("a") + `
	    and late_count > 0) u
	join meters m on m.tenant_id = u.tenant_id and m.meter_version_id = u.meter_version_id`

// customersWithLateUsage is the SQL of the customers that have late usage by one of the meter versions $3.
const customersWithLateUsage = `
		    select u.customer_id
		    from usage_monthly u
		    where u.tenant_id = $1
		      and u.meter_version_id = any($3)
		      and u.late_count > 0
		    union
		    select u.customer_id
		    from usage_unfolded u
		    where u.tenant_id = $1
		      and u.meter_version_id = any($3)
		      and u.late_count > 0`

// DailyCount is the SQL of the sum and the number of the events on the UTC day that begins at @from, by customer and
// event type. The database maintains usage_daily independently of the rollups. The daily audit compares both.
const DailyCount = `select customer_id, event_type, sum, count from usage_daily where tenant_id = @tenant and day = @from`
