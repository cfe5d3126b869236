package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/dev/receiver"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// createAccount creates the tenant's account at the fake of Stripe, in test or live mode.
func (d *drill) createAccount(t *tenant, mode string) {
	d.Helper()
	t.account = stripetest.Account{
		ID: "acct_" + t.id, Key: "sk_" + mode + "_" + t.id, WebhookSecret: receiver.Secret, WebhookURL: d.api.URL + "/v1/provider-webhooks/stripe/" + t.id,
	}
	s := seed(t.account, t.customers, d.months[0], d.months[1])
	require.NoError(d, d.fake.Seed(&s))
}

// stripe calls Stripe with the tenant's key, as a user of the Stripe account does, without Odometer.
func (d *drill) stripe(t *tenant, method, path string, form url.Values) (answer []byte) {
	d.Helper()
	status, answer, err := proc.Call(d.Context(), method, d.stripeURL+path, t.account.Key, form.Encode())
	require.NoError(d, err)
	require.Equal(d, http.StatusOK, status, "%s %s: %s", method, path, answer)
	return answer
}

// invoices returns the customer's invoices in the tenant's mode.
func (d *drill) invoices(t *tenant, c customer) (all []stripetest.InvoiceState) {
	for _, a := range d.fake.State().Accounts {
		if a.ID != t.account.ID || a.Livemode != strings.Contains(t.account.Key, "_live_") {
			continue
		}
		for _, in := range a.Invoices {
			if in.Customer == c.atStripe() {
				all = append(all, in)
			}
		}
	}
	return all
}

// lastInvoice returns the id of the customer's newest invoice.
func (d *drill) lastInvoice(c customer) string {
	d.Helper()
	all := d.invoices(d.tenantOf(c), c)
	require.NotEmpty(d, all, c.kind)
	return all[len(all)-1].ID
}

// charged returns the total of the customer's final invoices, without void ones.
func (d *drill) charged(t *tenant, c customer) (sum metering.Decimal) {
	for _, in := range d.invoices(t, c) {
		if in.Status != "draft" && in.Status != "void" {
			sum = sum.Add(in.Total.Mul(metering.MustDecimal("0.01")))
		}
	}
	return sum
}

// swap replaces the price of the customer's subscription item by another price with the same amount.
func (d *drill) swap(c customer) {
	d.stripe(d.tenantOf(c), http.MethodPost, "/v1/subscription_items/"+c.item("calls"), url.Values{"price": {"price_next"}})
}

// cancel cancels the customer's subscription at once. invoiceNow is "true" for a last invoice, else
// "false".
func (d *drill) cancel(c customer, invoiceNow string) {
	d.stripe(d.tenantOf(c), http.MethodDelete, "/v1/subscriptions/"+c.subscription(0), url.Values{"invoice_now": {invoiceNow}})
}

// update sets one field of the customer's subscription.
func (d *drill) update(c customer, field, value string) {
	d.stripe(d.tenantOf(c), http.MethodPost, "/v1/subscriptions/"+c.subscription(0), url.Values{field: {value}})
}

// edit changes the quantity and the amount, in cents, of the only line of the customer's draft.
func (d *drill) edit(c customer, units, cents string) {
	d.Helper()
	invoice := d.lastInvoice(c)
	var lines struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	require.NoError(d, json.Unmarshal(d.stripe(d.tenantOf(c), http.MethodGet, "/v1/invoices/"+invoice+"/lines", nil), &lines))
	require.Len(d, lines.Data, 1)
	d.stripe(d.tenantOf(c), http.MethodPost, "/v1/invoices/"+invoice+"/lines/"+lines.Data[0].ID, url.Values{"quantity": {units}, "amount": {cents}})
}

// reportElsewhere sends usage of a customer to Stripe as another program would.
func (d *drill) reportElsewhere(c customer, units string) {
	d.stripe(d.tenantOf(c), http.MethodPost, "/v1/billing/meter_events", url.Values{
		"event_name": {"calls"}, "payload[stripe_customer_id]": {c.atStripe()}, "payload[value]": {units},
	})
}
