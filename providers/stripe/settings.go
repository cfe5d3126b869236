package stripe

import (
	"context"
	"regexp"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

var settings = []providers.Setting{
	{Name: "secret_key", Use: providers.CallSecret, MaxLength: 255, Doc: "Of Stripe: a secret or restricted API key"},
	{Name: "webhook_secret", Use: providers.EventSecret, MaxLength: 255, Doc: "Of Stripe: the signing secret of the endpoint there"},
	{Name: "mapping", Use: providers.Mapping, MaxLength: 1000, Doc: "Of Stripe: meter slugs to ids of prices. Any other meter goes to the price with its slug as lookup key, or as meter_slug in its metadata"},
	{
		Name: "bills", Use: providers.Bills, Values: bills(),
		Doc: "Of Stripe: `quantities` (the default) reports units to its metered prices, which charge them. `amounts` charges them by the prices here: each meter is a line of the subscription's next invoice, " +
			"set to what it comes to so far. Another one takes effect with each customer's next billing period. What is saved is kept when this is absent",
	},
	{Name: "product", Use: providers.Product, MaxLength: 255, Doc: "Of Stripe, with bills: id of the product that lines name of meters that are not in products. Amounts need it, or products"},
	{Name: "products", Use: providers.Products, MaxLength: 1000, Doc: "Of Stripe, with bills: meter slugs to ids of products, which their lines name"},
	{Name: "tax_behavior", Use: providers.TaxBehavior, Values: []string{"exclusive", "inclusive", "unspecified"}, Doc: "Of Stripe, with bills: whether the amounts of lines include tax; absent, as Stripe Tax is set"},
	{Name: "tax_code", Use: providers.TaxCode, MaxLength: 255, Doc: "Of Stripe, with bills: tax code of lines; absent, the product's"},
	{
		Name: "collection_method", Use: providers.CollectionMethod, Values: []string{automatically, sent},
		Doc: "Of Stripe, with bills: how the invoices are collected that amounts make of the months of a customer without a subscription. `charge_automatically` (the default) has the customer's payment method charged, " +
			"`send_invoice` has the invoice sent to be paid within days_until_due",
	},
	{Name: "days_until_due", Use: providers.DaysUntilDue, Max: 365, Doc: "Of Stripe, with the collection_method `send_invoice`, which needs it: within how many days such an invoice is to be paid"},
}

// https://docs.stripe.com/api/invoices/create#create_invoice-collection_method
const (
	automatically = "charge_automatically"
	sent          = "send_invoice"
)

func bills() (values []string) {
	for _, b := range metering.Bills("").Values() {
		values = append(values, string(b))
	}
	return values
}

// https://docs.stripe.com/webhooks#verify-official-libraries
var eventSecret = regexp.MustCompile(`^whsec_[!-~]{8,200}$`)

// Validate says whose key it is, as a Client does. Whether the signing secret
// is the endpoint's shows only when an event comes.
func (p Provider) Validate(ctx context.Context, s providers.Settings, secrets providers.Secrets) (providers.Identity, error) {
	if s.Bills == metering.BillsAmounts && s.Text.Product == "" && len(s.Text.Products) == 0 {
		return providers.Identity{}, metering.Invalid("body.product", "is needed where amounts are billed, or products: every line of an invoice names one")
	}
	if (s.Text.CollectionMethod == sent) != (s.Text.DaysUntilDue > 0) {
		return providers.Identity{}, metering.Invalid("body.days_until_due", "goes with the collection_method "+sent+", which needs it")
	}
	if !eventSecret.MatchString(secrets.Event) {
		return providers.Identity{}, metering.Invalid("body.webhook_secret",
			"must be the signing secret of the endpoint at Stripe, which begins with whsec_ and is no API key")
	}
	account, err := p.client.Validate(ctx, secrets.Call)
	if err != nil {
		return providers.Identity{}, providers.Unreached(err, "Stripe did not answer")
	}
	mode := providers.Test
	if account.Livemode {
		mode = providers.Live
	}
	return providers.Identity{Account: account.ID, Mode: mode}, nil
}
