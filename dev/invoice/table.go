package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

// row is the reconciliation of a customer's meter in a closed period.
type row struct {
	customer customer
	tenant   *tenant
	month    int
	client.Reconciliation
}

// rows returns the reconciliations of all closed periods, grouped by customer, the oldest period first.
func (d *drill) rows() (all []row) {
	d.Helper()
	for _, t := range d.tenants() {
		listed := d.reconciliations(t)
		for _, c := range t.customers {
			for _, r := range slices.Backward(listed) {
				if r.ExternalId != c.id {
					continue
				}
				month := 1
				if !r.Period.Start.Add(15 * day).Before(d.months[1]) { // the middle of the period
					month = 2
				}
				all = append(all, row{c, t, month, r})
			}
		}
	}
	return all
}

// reconciled returns the customer's only row of the first month.
func (d *drill) reconciled(c customer) client.Reconciliation {
	d.Helper()
	for _, r := range d.rows() {
		if r.customer.id == c.id && r.month == 1 {
			return r.Reconciliation
		}
	}
	d.Fatalf("nothing of %s is closed", c.kind)
	return client.Reconciliation{}
}

const rowFormat = "   %-34s %-8s %5v %8v %8v %8v %8v  %-11s %s"

// showRows prints the rows as a table.
func (d *drill) showRows(rows []row) {
	d.Helper()
	d.Printf(rowFormat, "customer", "meter", "month", "ours", "counted", "invoiced", "billed", "state", "reason")
	for _, r := range rows {
		var billed any = ""
		if r.BilledQuantity != nil {
			billed = *r.BilledQuantity
		}
		d.Printf(rowFormat, r.customer.kind, r.MeterSlug, r.month, r.Ours.Usage, r.CountedQuantity, r.Invoiced.Quantity, billed, r.State, r.why())
	}
}

// why returns the reason for the state of the row, with the operator's name and note if an operator
// decided.
func (r row) why() string {
	for _, o := range r.tenant.operators {
		if o.id == r.DecidedBy {
			return fmt.Sprintf("%s; %s: %s", r.Message, o.name, r.Note)
		}
	}
	return r.Message
}

// isResolved reports whether the row needs no further action: the invoices agree, or the difference is
// rolled forward, waived, or written off by a named operator.
func (r row) isResolved() bool {
	switch r.State {
	case client.ReconciliationStateAgreed, client.ReconciliationStateCarried, client.ReconciliationStateWaived:
		return true
	case client.ReconciliationStateWrittenOff:
		return r.DecidedBy != ""
	}
	return false
}

// account compares the amount that a customer owes by our books with the amount on Stripe's invoices.
type account struct {
	customer customer
	charges  metering.Decimal // by our books, of closed periods
	late     metering.Decimal // by our books, of usage after the close
	invoiced metering.Decimal // the total of Stripe's final invoices, without void ones
	given    metering.Decimal // our charges minus the invoiced amounts, for waived and written-off rows
}

// difference returns the amount by which the invoices exceed our charges, without waived and written-off differences.
func (a account) difference() metering.Decimal {
	return a.invoiced.Sub(a.charges).Sub(a.late).Add(a.given)
}

// price is the price of every unit, for Odometer and for Stripe.
var price = metering.MustDecimal("0.02")

// account adds up a customer's rows. For a waived or written-off row, it adds the difference between our charge
// and Stripe's invoices to given, so that this difference counts as explained.
func (d *drill) account(t *tenant, c customer, rows []row) account {
	d.Helper()
	a := account{customer: c, late: d.lateUsage(t, c).Mul(price), invoiced: d.charged(t, c)}
	for _, r := range rows {
		if r.tenant != t || r.customer.id != c.id {
			continue
		}
		charge := d.decimal(r.Ours.Charge)
		a.charges = a.charges.Add(charge)
		if r.State == client.ReconciliationStateWaived || r.State == client.ReconciliationStateWrittenOff {
			a.given = a.given.Add(charge.Sub(d.invoiced(r)))
		}
	}
	return a
}

// invoiced returns the amount on the row's invoices. The invoiced quantity is in units, or in money if the
// tenant bills amounts.
func (d *drill) invoiced(r row) metering.Decimal {
	d.Helper()
	billed := d.decimal(r.Invoiced.Quantity)
	if r.Bills == client.ReconciliationBillsAmounts {
		return billed
	}
	return billed.Mul(price)
}

// prove prints both months, and returns an error if a row or a difference in money is not explained.
func (d *drill) prove() error {
	d.Helper()
	rows := d.rows()
	d.showRows(rows)
	var failures []error
	for _, r := range rows {
		if !r.isResolved() {
			failures = append(failures, fmt.Errorf("%s, %s of month %d: %s is not explained", r.customer.kind, r.MeterSlug, r.month, r.State))
		}
	}
	d.Printf("\n   In money: what the meters came to at our prices, what came late, what was given up (below 0: more was billed and left),")
	d.Printf("   and what Stripe's final invoices come to that are not void:\n")
	const format = "   %-34s %8v %8v %8v %8v %11v"
	d.Printf(format, "customer", "charges", "late", "given up", "invoices", "difference")
	for _, t := range d.tenants() {
		for _, c := range t.customers {
			a := d.account(t, c, rows)
			d.Printf(format, c.kind, a.charges, a.late, a.given, a.invoiced, a.difference())
			if !a.difference().IsZero() {
				failures = append(failures, fmt.Errorf("%s: the invoices differ from our charges by %s", c.kind, a.difference()))
			}
		}
	}
	if len(rows) == 0 {
		failures = append(failures, errors.New("nothing is closed"))
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	d.Printf("\neverything is billed once, waived, or decided on by somebody: OK")
	return nil
}
