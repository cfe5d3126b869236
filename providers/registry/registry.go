// Package registry lists all billing providers.
package registry

import (
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// New returns every provider. guard decides which URLs of tenants can be called. stripeBase is the base URL
// of Stripe's API; "" selects the default.
func New(guard providers.Guard, stripeBase string) providers.Registry {
	return providers.Registered(
		webhook.NewProvider(webhook.New(guard)),
		stripe.NewProvider(stripe.New(stripeBase)),
	)
}
