// Package ledger stores the reports to billing providers: their plans, states and answers. It also stores the facts
// that plans need: billing periods and their closings, invoices, reconciliations, holds, syncs and providers.
//
// It applies the plans of package billing in transactions. It does not decide which amount is owed, and calls no
// provider.
package ledger

import "github.com/odometer-metering/odometer/db/pg"

// Stores are the stores of the package.
type Stores struct {
	Unrated         Unrated
	Providers       Providers
	Ledger          Ledger
	Syncs           Syncs
	Links           Links
	Restores        Restores
	Invoices        Invoices
	Reconciliations Reconciliations
	Holds           Holds
	ProviderEvents  ProviderEvents
	AutoSyncs       AutoSyncs
}

// New returns stores that use the pool. read decodes stored prices of providers; nil: none are read. alerts
// reads the alerts that closing periods are compared with.
func New(pool *pg.Pool, read ReadPrice, alerts AlertsReader) Stores {
	ledger := Ledger{pool, read, alerts}
	return Stores{
		Unrated:         Unrated{pool, read},
		Providers:       Providers{pool},
		Ledger:          ledger,
		Syncs:           Syncs{pool},
		Links:           Links{pool, read},
		Restores:        Restores{pool, ledger},
		Invoices:        Invoices{pool},
		Reconciliations: Reconciliations{pool},
		Holds:           Holds{pool, ledger},
		ProviderEvents:  ProviderEvents{pool},
		AutoSyncs:       AutoSyncs{pool},
	}
}
