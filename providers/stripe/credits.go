package stripe

import (
	"context"
	"fmt"

	stripego "github.com/stripe/stripe-go/v76"

	"github.com/odometer-metering/odometer/metering"
)

// Credits reports whether the customer has billing credits left:
// https://docs.stripe.com/billing/subscriptions/usage-based/billing-credits
func (c *Client) Credits(ctx context.Context, key, customer string) (bool, error) {
	var summary struct {
		Balances []struct {
			Available struct {
				Monetary struct {
					Value metering.Decimal `json:"value"`
				} `json:"monetary"`
			} `json:"available_balance"`
		} `json:"balances"`
	}
	asked := query("customer", customer, "filter[type]", "applicability_scope", "filter[applicability_scope][price_type]", "metered")
	if err := c.read(ctx, key, stripego.FormatURLPath("/v1/billing/credit_balance_summary"), asked, &summary); err != nil {
		return false, fmt.Errorf("get billing credits: %w", err)
	}
	for _, balance := range summary.Balances {
		if !balance.Available.Monetary.Value.IsZero() {
			return true, nil
		}
	}
	return false, nil
}
