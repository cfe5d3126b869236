package db

import (
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/pg"
)

// limitStores are the stores of the package.
type limitStores struct {
	Quotas      Quotas
	Alerts      Alerts
	Evaluations Evaluations
}

// newLimits returns stores that use the pool. read decodes stored prices of providers; nil: none are read.
func newLimits(pool *pg.Pool, read ledger.ReadPrice) limitStores {
	return limitStores{
		Quotas:      Quotas{pool, read},
		Alerts:      Alerts{pool},
		Evaluations: Evaluations{pool, read},
	}
}
