package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

// row is a closed period's meter of a customer.
type row struct {
	customer customer
	tenant   *tenant
	month    int
	client.Reconciliation
}

// rows are all that are closed, customer by customer, the oldest first.
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
				if !r.Period.Start.Add(15 * day).Before(d.months[1]) { // its middle
					month = 2
				}
				all = append(all, row{c, t, month, r})
			}
		}
	}
	return all
}

// reconciled is a customer's only row of the first month.
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

func (d *drill) showRows(rows []row) {
	d.Helper()
	d.sayf(rowFormat, "customer", "meter", "month", "ours", "counted", "invoiced", "billed", "state", "reason")
	for _, r := range rows {
		var billed any = ""
		if r.BilledQuantity != nil {
			billed = *r.BilledQuantity
		}
		d.sayf(rowFormat, r.customer.kind, r.MeterSlug, r.month, r.Ours.Usage, r.CountedQuantity, r.Invoiced.Quantity, billed, r.State, r.why())
	}
}

// why is the reason of the rules, and who decided otherwise.
func (r row) why() string {
	for _, o := range r.tenant.operators {
		if o.id == r.DecidedBy {
			return fmt.Sprintf("%s; %s: %s", r.Reason, o.name, r.Note)
		}
	}
	return r.Reason
}

// explained says whether nobody has to look at the row any more: the invoices
// agree, what they lack is carried, or waived, or somebody with a name has
// decided on it.
func (r row) explained() bool {
	switch r.State {
	case client.ReconciliationStateAgreed, client.ReconciliationStateCarried, client.ReconciliationStateWaived:
		return true
	case client.ReconciliationStateWrittenOff:
		return r.DecidedBy != ""
	}
	return false
}

// account is what a customer is to pay by our books, and by Stripe's.
type account struct {
	customer          customer
	charges, late, is metering.Decimal // is: what Stripe's invoices come to
	given             metering.Decimal // up; below 0 is more than was used, and stays billed
}

func (a account) difference() metering.Decimal { return a.is.Sub(a.charges).Sub(a.late).Add(a.given) }

// price is that of every unit, ours and Stripe's.
var price = metering.MustDecimal("0.02")

// account adds up a customer's rows. Of what is waived or written off, what
// Stripe bills stands, more or less than was used.
func (d *drill) account(t *tenant, c customer, rows []row) account {
	d.Helper()
	a := account{customer: c, late: d.lateUsage(t, c).Mul(price), is: d.charged(t, c)}
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

// invoiced is what the row's invoices come to: its quantity is of units, or of money.
func (d *drill) invoiced(r row) metering.Decimal {
	d.Helper()
	billed := d.decimal(r.Invoiced.Quantity)
	if r.Bills == client.ReconciliationBillsAmounts {
		return billed
	}
	return billed.Mul(price)
}

// prove shows both months, and fails where something is left unexplained.
func (d *drill) prove() error {
	d.Helper()
	rows := d.rows()
	d.showRows(rows)
	var failures []error
	for _, r := range rows {
		if !r.explained() {
			failures = append(failures, fmt.Errorf("%s, %s of month %d: %s is not explained", r.customer.kind, r.MeterSlug, r.month, r.State))
		}
	}
	d.sayf("\n   In money: what the meters came to at our prices, what came late, what was given up (below 0: more was billed and left),")
	d.sayf("   and what Stripe's final invoices come to that are not void:\n")
	const format = "   %-34s %8v %8v %8v %8v %11v"
	d.sayf(format, "customer", "charges", "late", "given up", "invoices", "difference")
	for _, t := range d.tenants() {
		for _, c := range t.customers {
			a := d.account(t, c, rows)
			d.sayf(format, c.kind, a.charges, a.late, a.given, a.is, a.difference())
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
	d.sayf("\neverything is billed once, waived, or decided on by somebody: OK")
	return nil
}
