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
	ledger := Ledger{pool, read, alerts}
	return ledgerStores{
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
