package stripetest

import (
	"net/http"

	"github.com/odometer-metering/odometer/metering"
)

// getCreditBalance follows https://docs.stripe.com/api/billing/credit-balance-summary/retrieve: it returns
// the customer's remaining billing credits. The fake assumes that the list of balances is empty without
// credits.
func (c *call) getCreditBalance() answer {
	id := c.form.Get("customer")
	if !c.hasCustomer(id) {
		return refused(http.StatusBadRequest, "resource_missing", "customer", "No such customer: '%s'", id)
	}
	if c.form.Get("filter[type]") != "applicability_scope" {
		return invalid("filter[type]", "This fake of Stripe knows the filter applicability_scope.")
	}
	balances := []object{}
	for _, customer := range c.customers {
		if customer.ID == id && customer.BillingCredits > 0 {
			amount := object{"type": "monetary", "monetary": object{"currency": "usd", "value": metering.Whole(customer.BillingCredits)}}
			balances = append(balances, object{"available_balance": amount, "ledger_balance": amount})
		}
	}
	return okAnswer(object{"object": "billing.credit_balance_summary", "customer": id, "livemode": c.livemode(), "balances": balances})
}

// SetCredits sets the customer's remaining billing credits, in cents.
func (f *Fake) SetCredits(customer string, cents int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.accounts {
		for i := range a.customers {
			if a.customers[i].ID == customer {
				a.customers[i].BillingCredits = cents
			}
		}
	}
}
