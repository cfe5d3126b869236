package db

import "github.com/odometer-metering/odometer/db/pg"

// catalogStores are the stores of the package.
type catalogStores struct {
	Customers Customers
	Meters    Meters
	Prices    Prices
	Plans     Plans
}

// newCatalog returns stores that use a transaction, or a pool: each call of a method is a transaction then.
func newCatalog(within pg.Beginner) catalogStores {
	return catalogStores{Customers{within}, Meters{within}, Prices{within}, Plans{within}}
}
