// Package catalog stores the definitions by which usage is counted and charged: customers, meters, prices and
// plans. It also queues customers for the evaluation of alerts if a change of a definition may trigger an
// alert.
package catalog

import "github.com/odometer-metering/odometer/db/pg"

// Stores are the stores of the package.
type Stores struct {
	Customers Customers
	Meters    Meters
	Prices    Prices
	Plans     Plans
}

// New returns stores that use a transaction or a pool. With a pool, each call of a method is its
// own transaction.
func New(within pg.Beginner) Stores {
	return Stores{Customers{within}, Meters{within}, Prices{within}, Plans{within}}
}
