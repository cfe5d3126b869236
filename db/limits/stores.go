// Package limits stores alerts, quotas and reservations, and compares customers' usage and charges with them.
//
// It reads billing periods from package ledger. It does not know how a charge is computed (package billing).
package limits

import (
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/pg"
)

// Stores are the stores of the package.
type Stores struct {
	Quotas      Quotas
	Alerts      Alerts
	Evaluations Evaluations
}

// New returns stores that use the pool. The function read decodes stored prices of providers. It can be nil if
// the stores read no such prices.
func New(pool *pg.Pool, read ledger.ReadPrice) Stores {
	return Stores{
		Quotas:      Quotas{pool, read},
		Alerts:      Alerts{pool},
		Evaluations: Evaluations{pool, read},
	}
}
