package billing

import "slices"

// Books are the facts of a billing schedule, compared with its final invoices. They contain the invoiced units of each
// series of reports and of each closed line. NewBooks copies the slices that it changes, so the facts stay as they were read.
type Books struct {
	Facts                       // of Reported, Beside, Stored and Open copies, in which the results of the comparison stand
	Resolved   []Resolved       // reports with an outcome that the invoices show
	Reconciled []Reconciliation // new or changed ones, which are to be stored
}

// NewBooks compares the facts with the final invoices.
func NewBooks(f Facts) *Books {
	b := &Books{Facts: f}
	b.Reported, b.Beside, b.Stored = slices.Clone(f.Reported), slices.Clone(f.Beside), slices.Clone(f.Stored)
	b.leaveSubscriptions()
	invoices := b.shareInvoices()
	for b.resolve() { // the outcome of one report can show the outcome of another
		invoices = b.shareInvoices()
	}
	for n := range b.Stored {
		period := &b.Stored[n]
		period.Subscription.Invoiced = period.Subscription.Invoiced || b.hasEnded(period.Subscription)
		b.Reconciled = append(b.Reconciled, b.reconcile(period, invoices)...)
		b.account(period)
	}
	return b
}
