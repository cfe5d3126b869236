package db

import "github.com/odometer-metering/odometer/db/pg"

// ledgerStores are the stores of the package.
type ledgerStores struct {
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

// newLedger returns stores that use the pool. read decodes stored prices of providers; nil: none are read. alerts
// reads the alerts that closing periods are compared with.
func newLedger(pool *pg.Pool, read ReadPrice, alerts AlertsReader) ledgerStores {
	return ledgerStores{
		Unrated:         Unrated{pool, read},
		Providers:       Providers{pool},
		Ledger:          Ledger{pool, read, alerts},
		Syncs:           Syncs{pool},
		Links:           Links{pool, read},
		Restores:        Restores{pool, read},
		Invoices:        Invoices{pool},
		Reconciliations: Reconciliations{pool},
		Holds:           Holds{pool, read},
		ProviderEvents:  ProviderEvents{pool},
		AutoSyncs:       AutoSyncs{pool},
	}
}
