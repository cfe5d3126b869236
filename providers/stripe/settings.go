package stripe

import (
	"context"
	"regexp"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

var settings = []providers.Setting{
	{Name: "secret_key", Use: providers.CallSecret, MaxLength: 255, Doc: "Only for the type 'stripe'. Secret or restricted API key"},
	{Name: "webhook_secret", Use: providers.EventSecret, MaxLength: 255, Doc: "Only for the type 'stripe'. Signing secret of the webhook endpoint at Stripe"},
	{Name: "mapping", Use: providers.Mapping, MaxLength: 1000, Doc: "Only for the type 'stripe'. Stripe price id for each meter slug. A meter without an entry uses the price that has the slug as its lookup key, or as meter_slug in its metadata"},
	{
		Name: "bills", Use: providers.Bills, Values: bills(),
		Doc: "Only for the type 'stripe'. `quantities` reports units to Stripe's metered prices. `amounts` charges Odometer's prices: each meter is a line of the subscription's next invoice. " +
			"A change applies from each customer's next billing period",
		InRequest: "Default: the saved value, at first `quantities`",
	},
	{Name: "product", Use: providers.Product, MaxLength: 255, Doc: "Only for the type 'stripe'. Stripe product for the lines of meters that are not in 'products'", InRequest: "Only in a request with 'bills'. 'amounts' requires 'product' or 'products'"},
	{Name: "products", Use: providers.Products, MaxLength: 1000, Doc: "Only for the type 'stripe'. Stripe product id for each meter slug", InRequest: "Only in a request with 'bills'"},
	{Name: "tax_behavior", Use: providers.TaxBehavior, Values: []string{"exclusive", "inclusive", "unspecified"}, Doc: "Only for the type 'stripe'. Whether amounts include tax. If absent, the setting of Stripe Tax applies", InRequest: "Only in a request with 'bills'"},
	{Name: "tax_code", Use: providers.TaxCode, MaxLength: 255, Doc: "Only for the type 'stripe'. Tax code of the lines. If absent, the tax code of the product applies", InRequest: "Only in a request with 'bills'"},
	{
		Name: "collection_method", Use: providers.CollectionMethod, Values: []string{automatically, sent},
		Doc: "Only for the type 'stripe'. Payment of the monthly invoices of customers without a subscription. `charge_automatically` charges the payment method. " +
			"`send_invoice` sends an invoice to be paid within days_until_due. If absent, `charge_automatically` applies",
		InRequest: "Only in a request with 'bills'",
	},
	{Name: "days_until_due", Use: providers.DaysUntilDue, Max: 365, Doc: "Only for the type 'stripe'. Days until the invoice is due, with collection_method `send_invoice`", InRequest: "Only in a request with 'bills'. Required with collection_method `send_invoice`"},
}

// Collection methods: https://docs.stripe.com/api/invoices/create#create_invoice-collection_method
const (
	automatically = "charge_automatically"
	sent          = "send_invoice"
)

// bills returns the values of the setting bills.
func bills() (values []string) {
	for _, b := range metering.Bills("").Values() {
		values = append(values, string(b))
	}
	return values
}

// eventSecret matches signing secrets of webhook endpoints:
// https://docs.stripe.com/webhooks#verify-official-libraries
var eventSecret = regexp.MustCompile(`^whsec_[!-~]{8,200}$`)

// Validate checks the settings and returns the account of the API key. It cannot check that the signing
// secret belongs to the webhook endpoint; only a received event shows that.
func (p Provider) Validate(ctx context.Context, s providers.Settings, secrets providers.Secrets) (providers.Identity, error) {
	if s.Bills == metering.BillsAmounts && s.Text.Product == "" && len(s.Text.Products) == 0 {
		return providers.Identity{}, metering.Invalid("body.product", "is required to bill amounts, unless products names a product for every meter")
	}
	if (s.Text.CollectionMethod == sent) != (s.Text.DaysUntilDue > 0) {
		return providers.Identity{}, metering.Invalid("body.days_until_due", "is required for the collection_method "+sent+" and must be omitted for any other")
	}
	if !eventSecret.MatchString(secrets.Event) {
		return providers.Identity{}, metering.Invalid("body.webhook_secret",
			"must be the signing secret of the webhook endpoint at Stripe, which begins with whsec_; it is not an API key")
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
