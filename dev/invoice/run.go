package main

import (
	"net/http"
	"time"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

const day = 24 * time.Hour

// run simulates two months. It returns an error if a difference remains unexplained.
func (d *drill) run() error {
	d.Helper()
	d.Printf("1. The first month: usage, and what happens to some of the customers. Auto-Sync reports twice.")
	d.firstMonth()
	d.Printf("2. It ends. Stripe's invoices are drafts for an hour, and then final. Our processes are killed while %s's are.", away.id)
	d.firstBorder()
	d.Printf("3. The periods are closed, three days after their end:\n")
	rows := d.rows()
	d.showRows(rows)
	d.Printf("\n4. Operators decide over the API:\n")
	d.awaitDiscrepancyMessages(rows)
	d.decisions()
	d.Printf("\n5. The second month, with usage alone, and some that comes late for the first one.")
	d.secondMonth()
	d.Printf("6. Both months:\n")
	return d.prove()
}

// firstMonth simulates the usage and the changes at Stripe before the end of the first month.
func (d *drill) firstMonth() {
	d.Helper()
	first, border := d.months[0], d.months[1]
	behind := stripetest.Behaviour{Mode: stripetest.Stale, Times: 1_000_000, Path: "/v1/billing/meters/mtr_slow/event_summaries", LagSeconds: 86400}
	d.fake.Behave(behind)
	d.advanceTo(first.Add(5 * day))
	d.useAll("100.25", func(customer) bool { return true })
	d.autoSync()
	d.advanceTo(first.Add(15 * day))
	d.use(d.main, "10", classic, flexible, ended, cutOff) // no report includes this usage before the subscriptions change at Stripe
	d.use(d.amounts, "10", amountsSwapped)
	d.changeSubscriptions()
	d.advanceTo(first.Add(15*day + 2*time.Hour)) // the last invoice of the canceled customer is final
	d.createAccount(d.testing, "live")
	d.connectStripe(d.testing)

	runs := func(c customer) bool { return !c.oneOf(ended, cutOff) }
	d.advanceTo(first.Add(20 * day))
	d.reportElsewhere(shared, "7")
	d.useAll("70.5", runs)
	d.autoSync()
	d.advanceTo(border.Add(-time.Hour))
	d.useAll("9.5", runs) // reported while the invoice is a draft
}

// changeSubscriptions swaps prices, cancels subscriptions and pauses collection at Stripe in the middle of the first
// month.
func (d *drill) changeSubscriptions() {
	d.Helper()
	d.swap(classic)
	d.swap(flexible)
	d.swap(amountsSwapped)
	d.cancel(ended, "true")
	d.cancel(cutOff, "false")
	d.update(ending, "cancel_at_period_end", "true")
	d.update(amountsEnding, "cancel_at_period_end", "true")
	d.update(paused, "pause_collection[behavior]", "void")
	d.update(kept, "pause_collection[behavior]", "keep_as_draft")
	d.settle()
}

// firstBorder simulates the time from the end of the first month until its periods are closed.
func (d *drill) firstBorder() {
	d.Helper()
	border := d.months[1]
	d.advanceTo(border.Add(time.Minute))
	d.edit(raised, "200", "400")
	d.edit(lowered, "150", "300")
	d.advanceTo(border.Add(61 * time.Minute))

	d.advanceTo(border.Add(laterBy - time.Hour))
	d.use(d.main, "5", away)
	d.api.Kill(d)
	d.worker.Kill(d)
	d.clock.To(d, border.Add(laterBy+time.Minute))
	d.fake.State() // Stripe creates the draft
	d.clock.To(d, border.Add(laterBy+61*time.Minute))
	d.fake.State() // Stripe finalizes the draft
	d.api.Start(d)
	d.worker.Start(d)
	d.settle()
	d.stripe(d.main, http.MethodPost, "/v1/invoices/"+d.lastInvoice(voided)+"/void", nil)
	d.closeAt(border)
}

// closeAt closes the billing periods of the month that ended at border, after their grace. It runs Auto-Sync
// before and after the close.
func (d *drill) closeAt(border time.Time) {
	d.Helper()
	d.advanceTo(border.Add(4 * day))
	d.autoSync()
	d.close()
	d.settle()
	d.advanceTo(border.Add(4*day + time.Hour))
	d.autoSync() // lists the invoices of customers without a known last invoice
}

// decisions applies the operators' decisions on the discrepancies that the rules do not settle.
func (d *drill) decisions() {
	d.Helper()
	d.hire(d.main, "Ada Byron")
	d.hire(d.main, "Grace Hopper")
	ada, grace := d.main.operators[0], d.main.operators[1]
	for _, v := range []struct {
		of          customer
		by          *operator
		verdict     string
		inTheirWord string
	}{
		{raised, ada, "waive", "the contract says 200 units at least"},
		{shared, ada, "waive", "the device at the customer's reports its own 7 calls, which are to be billed"},
		{voided, ada, "rebill", "the invoice named the wrong company"},
		{cutOff, grace, "write off", "the customer left, and nothing will be billed there any more"},
		{lowered, grace, "write off", "promised to the customer on the phone"},
	} {
		d.decide(v.by, d.reconciled(v.of), v.verdict, v.inTheirWord)
		d.Printf("   %s: %s (%s), %q", v.of.kind, v.verdict, v.by.name, v.inTheirWord)
	}
}

// secondMonth simulates a month of usage, including late usage of the first month.
func (d *drill) secondMonth() {
	d.Helper()
	first, start, border := d.months[0], d.months[1], d.months[2]
	stays := func(c customer) bool { return !c.oneOf(ending, ended, cutOff, amountsEnding) }
	d.advanceTo(start.Add(5 * day))
	d.useAt(d.main, first.Add(10*day), "7", late)
	d.useAt(d.amounts, first.Add(10*day), "7", amountsLate, amountsOwn)
	d.update(kept, "pause_collection", "")
	d.stripe(d.main, http.MethodPost, "/v1/invoices/"+d.lastInvoice(kept)+"/finalize", nil)
	d.useAll("60.5", stays)
	d.settle()
	d.autoSync()
	d.advanceTo(border.Add(-time.Hour))
	d.useAll("1.5", stays)
	d.autoSync()
	for _, after := range []time.Duration{time.Minute, 61 * time.Minute, laterBy + time.Minute, laterBy + 61*time.Minute} {
		d.advanceTo(border.Add(after))
	}
	d.closeAt(border)
}

// useAll sends usage of all customers for which selects returns true.
func (d *drill) useAll(value string, selects func(customer) bool) {
	d.Helper()
	for _, t := range d.tenants() {
		var of []customer
		for _, c := range t.customers {
			if selects(c) {
				of = append(of, c)
			}
		}
		d.use(t, value, of...)
	}
}
