package usage

import (
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// usageSQL is a SQL table expression with the columns of usageStatement.Rows, and the arguments of the SQL. It
// reads nothing until it is executed.
type usageSQL struct {
	table     string
	args      pgx.NamedArgs
	customers []int64 // customers with rows in the table, ascending; nil for all
}

// has reports whether the table includes the customer.
func (c usageSQL) has(customer metering.CustomerID) bool {
	_, found := slices.BinarySearch(c.customers, int64(customer))
	return found || c.customers == nil
}

// tenantUsageSQL returns the SQL of the usage of all customers together.
func (r *breakdownRead) tenantUsageSQL() usageSQL {
	s := newUsageStatement(r.events.tenant, metering.WholeTenant, []metering.Meter{r.Meter})
	s.addWhole(r.Range, r.byHour())
	return usageSQL{table: s.rowsInOrder(), args: s.Args}
}

// customersUsageSQL returns the SQL of the usage of each customer of the tenant. For customers in r.cut, the
// SQL reads hourly rollups.
func (r *breakdownRead) customersUsageSQL() usageSQL {
	byHour := r.byHour() || len(r.cut) > mostCustomers
	s := NewStatementOfAll(r.events.tenant, []metering.Meter{r.Meter})
	s.addWhole(r.Range, byHour)
	all := usageSQL{table: `(select * from ` + s.rowsInOrder() + ` where customer_id <> 0) counted`, args: s.Args}
	if len(r.cut) == 0 || byHour {
		return all
	}
	of := NewStatementOfSome(r.events.tenant, []metering.Meter{r.Meter})
	of.Customers = r.cut
	of.addWhole(r.Range, true)
	all.table = `(select * from ` + all.table + ` where customer_id <> all(@cut::bigint[]) union all select * from ` + of.wholeRows() + `) counted`
	maps.Copy(all.args, of.Args)
	all.args["cut"] = r.cut
	return all
}

// someCustomersUsageSQL returns the SQL of the usage of each of the given customers. For customers in r.cut,
// the SQL reads hourly rollups.
func (r *breakdownRead) someCustomersUsageSQL(customers []int64) usageSQL {
	s := NewStatementOfSome(r.events.tenant, []metering.Meter{r.Meter})
	isCut := func(id int64) bool {
		_, found := slices.BinarySearch(r.cut, id)
		return found
	}
	for _, cut := range []bool{false, true} {
		s.Customers = slices.DeleteFunc(slices.Clone(customers), func(id int64) bool { return isCut(id) != cut })
		if len(s.Customers) > 0 {
			s.addWhole(r.Range, r.byHour() || cut)
		}
	}
	return usageSQL{s.wholeRows(), s.Args, customers}
}
