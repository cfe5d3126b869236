package db

import (
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
)

// usageStores are the stores of the package.
type usageStores struct {
	pool      *pg.Pool
	customers catalog.Customers

	Usage           Usage
	Events          Events
	EventCounts     EventCounts
	UncountedEvents UncountedEvents
	Conflicts       Conflicts
	Folds           Folds
	Backfills       Backfills
}

// newUsage returns stores that use the pool.
func newUsage(pool *pg.Pool) usageStores {
	return usageStores{
		pool: pool, customers: catalog.New(pool).Customers,
		Usage: Usage{pool}, Events: Events{pool}, EventCounts: EventCounts{pool}, UncountedEvents: UncountedEvents{pool},
		Conflicts: Conflicts{pool}, Folds: Folds{pool}, Backfills: Backfills{pool, newRollupMemory()},
	}
}
