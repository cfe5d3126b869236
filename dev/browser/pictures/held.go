package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// subscriber is a customer with a short billing period and a different price for tokens at Stripe.
type subscriber struct {
	name    string // external id; also part of its ids at Stripe
	account string
}

// held creates a new customer with a draft invoice that disagrees with our charge. It returns the id of the
// invoice's hold, and the path of the hold's run in the Temporal UI.
func (s system) held(ctx context.Context, customer string) (hold, run string, err error) {
	var provider struct{ Account string }
	if err := s.read(ctx, "/v1/billing/provider", &provider); err != nil {
		return "", "", err
	}
	c := subscriber{customer, provider.Account}
	end := time.Now().Add(20 * time.Second).Truncate(time.Second)
	if err := s.subscribe(ctx, c, end); err != nil {
		return "", "", err
	}
	body := fmt.Sprintf(`{"external_id":%q,"name":"Woodgrove Bank","billing_provider_id":"cus_%s"}`, c.name, c.name)
	if err := s.post(ctx, s.BaseURL+"/v1/customers", body, nil); err != nil {
		return "", "", err
	}
	body = fmt.Sprintf(`{"customer_id":%q,"event_type":"completion","value":250000}`, c.name)
	if err := s.post(ctx, s.BaseURL+"/v1/events", body, nil); err != nil {
		return "", "", err
	}
	if _, err := s.sync(ctx, c.name); err != nil {
		return "", "", err
	}
	if err := s.draft(ctx, c, end); err != nil {
		return "", "", err
	}
	if hold, err = s.awaitHold(ctx, c.name, "disagrees"); err != nil {
		return "", "", err
	}
	run, err = s.runOf(ctx, "hold-invoice/"+strings.TrimPrefix(s.TenantID, "ten_")+"/"+strings.TrimPrefix(hold, "hld_"))
	return hold, run, err
}

// hold turns the holding of invoices on, with a grace of zero hours. If on is false, it turns the holding off, with a
// grace of 72 hours.
func (s system) hold(ctx context.Context, on bool) error {
	grace := 72
	if on {
		grace = 0
	}
	_, err := s.call(ctx, http.MethodPatch, s.BaseURL+"/v1/tenant", fmt.Sprintf(`{"grace_hours":%d,"invoice_hold":{"enabled":%t}}`, grace, on))
	return err
}

// subscribe creates the customer and a subscription to tokens at Stripe that ends at an instant. The key of
// the demo's account has the same suffix as the account's id.
func (s system) subscribe(ctx context.Context, c subscriber, end time.Time) error {
	return s.post(ctx, s.StripeURL+"/_seed", fmt.Sprintf(`{
		"account": {"id": %q, "key": %q},
		"customers": [{"id": "cus_%[3]s"}],
		"prices": [{"id": "price_tokens_old", "meter": "mtr_tokens", "unit_amount_decimal": "0.0015", "metadata": {"meter_slug": "tokens"}}],
		"subscriptions": [{"id": "sub_%[3]s", "customer": "cus_%[3]s", "current_period_start": %d, "current_period_end": %d, "items": [{"id": "si_%[3]s", "price": "price_tokens_old"}]}]
	}`, c.account, strings.Replace(c.account, "acct_", "sk_test_", 1), c.name, end.AddDate(0, -1, 0).Unix(), end.Unix()), nil)
}

// draft waits until the period has ended, and delivers Stripe's event about the draft invoice of the period.
func (s system) draft(ctx context.Context, c subscriber, end time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(end.Add(time.Second))):
	}
	text, err := s.get(ctx, s.StripeURL+"/_state")
	if err != nil {
		return err
	}
	var state struct {
		Accounts []struct {
			Invoices []struct {
				ID       string `json:"id"`
				Customer string `json:"customer"`
				Status   string `json:"status"`
			} `json:"invoices"`
		} `json:"accounts"`
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return err
	}
	for _, a := range state.Accounts {
		for _, in := range a.Invoices {
			if in.Customer == "cus_"+c.name && in.Status == "draft" {
				return s.post(ctx, s.StripeURL+"/_webhook", fmt.Sprintf(`{"type":"invoice.created","object":%q}`, in.ID), nil)
			}
		}
	}
	return fmt.Errorf("%s has no draft", c.name)
}

// awaitHold waits until a hold of the customer has a state, and returns its id.
func (s system) awaitHold(ctx context.Context, customer, state string) (hold string, err error) {
	for {
		var holds struct {
			Data []struct{ ID, State string }
		}
		if err := s.read(ctx, "/v1/billing/holds?customer="+url.QueryEscape(customer)+"&state="+state, &holds); err != nil {
			return "", err
		}
		if len(holds.Data) > 0 {
			return holds.Data[0].ID, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("no hold of %s is %s: %w", customer, state, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// release releases the hold as an operator, and waits until it is released.
func (s system) release(ctx context.Context, customer, hold string) error {
	const reason = `{"reason":"this customer keeps the old price until the end of the year"}`
	if err := s.post(ctx, s.BaseURL+"/v1/billing/holds/"+hold+"/release", reason, nil); err != nil {
		return err
	}
	_, err := s.awaitHold(ctx, customer, "released")
	return err
}

func (s system) read(ctx context.Context, path string, into any) error {
	text, err := s.get(ctx, s.BaseURL+path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
