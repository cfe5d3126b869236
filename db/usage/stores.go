// Package usage stores events, counts them in rollups, and reads the totals: ingest, backfills, folds and breakdowns.
//
// All sums are exact. The package does not compute charges; package billing does.
package usage

import (
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
)

// Stores holds the stores of this package, which use one pool.
type Stores struct {
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

// New returns stores that use the pool.
func New(pool *pg.Pool) Stores {
	return Stores{
		pool: pool, customers: catalog.New(pool).Customers,
		Usage: Usage{pool}, Events: Events{pool}, EventCounts: EventCounts{pool}, UncountedEvents: UncountedEvents{pool},
		Conflicts: Conflicts{pool}, Folds: Folds{pool}, Backfills: Backfills{pool, newRollupMemory()},
	}
}
