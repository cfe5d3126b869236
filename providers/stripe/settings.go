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
}

// https://docs.stripe.com/webhooks#verify-official-libraries
var eventSecret = regexp.MustCompile(`^whsec_[!-~]{8,200}$`)

// Validate says whose key it is, as a Client does. Whether the signing secret
// is the endpoint's shows only when an event comes.
func (p Provider) Validate(ctx context.Context, _ providers.Settings, secrets providers.Secrets) (providers.Identity, error) {
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
