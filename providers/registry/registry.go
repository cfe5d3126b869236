// Package registry lists the billing providers that there are.
package registry

import (
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// New returns every provider. guard says which URLs of tenants may be called;
// stripeBase is the URL of Stripe's API, "" its own.
func New(guard providers.Guard, stripeBase string) providers.Registry {
	return providers.Registered(
		webhook.NewProvider(webhook.New(guard)),
		stripe.NewProvider(stripe.New(stripeBase)),
	)
}
