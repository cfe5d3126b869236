package billing

import "slices"

// Books holds the facts of a billing schedule, and the results of their comparison with final invoices. The results
// include the invoiced units of each series of reports and of each closed line. NewBooks copies the slices that it
// changes, so the original facts stay unchanged.
type Books struct {
	Facts                       // Reported, Beside, Stored and Open are copies with the results of the comparison
	Resolved   []Resolved       // reports with an outcome that the invoices show
	Reconciled []Reconciliation // new or changed reconciliations to store
}

// NewBooks compares the facts with the final invoices.
func NewBooks(f Facts) *Books {
	b := &Books{Facts: f}
	b.Reported, b.Beside, b.Stored = slices.Clone(f.Reported), slices.Clone(f.Beside), slices.Clone(f.Stored)
	b.rejectWithdrawn()
	invoices := b.shareInvoices()
	for b.resolveReports() { // the outcome of one report can show the outcome of another
		invoices = b.shareInvoices()
	}
	for n := range b.Stored {
		period := &b.Stored[n]
		period.Subscription.Invoiced = period.Subscription.Invoiced || b.hasEnded(period.Subscription)
		b.setPhases(period)
		b.Reconciled = append(b.Reconciled, b.reconcile(period, invoices)...)
	}
	return b
}

// openBooks returns the books of open periods. Their facts are read without invoices, or were compared already.
func openBooks(f Facts) *Books { return &Books{Facts: f} }
