// Package catalog stores the definitions by which usage is counted and charged: customers, meters, prices and plans. It
// also queues customers if a change of these may trigger an alert.
package catalog

import "github.com/odometer-metering/odometer/db/pg"

// Stores are the stores of the package.
type Stores struct {
	Customers Customers
	Meters    Meters
	Prices    Prices
	Plans     Plans
}

// New returns stores that use a transaction, or a pool: each call of a method is a transaction then.
func New(within pg.Beginner) Stores {
	return Stores{Customers{within}, Meters{within}, Prices{within}, Plans{within}}
}
