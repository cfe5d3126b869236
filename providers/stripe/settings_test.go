package stripe_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

func TestProviderValidateReturnsAccountAndMode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_live", Key: "sk_live_canary"}}))
	p := stripe.NewProvider(b.client)
	for secret, want := range map[string]providers.Identity{
		key:              {Account: "acct_1", Mode: providers.Test},
		"sk_live_canary": {Account: "acct_live", Mode: providers.Live},
	} {
		got, err := p.Validate(t.Context(), providers.Settings{}, providers.Secrets{Call: secret, Event: "whsec_of-the-endpoint"})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestWebhookSecretMustBeSigningSecret(t *testing.T) {
	t.Parallel()
	p := stripe.NewProvider(serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a call was made") }))
	for _, secret := range []string{"", key, "whsec_", "whsec_canary", "whsec_canary and more", "whsec_" + strings.Repeat("x", 201)} {
		_, err := p.Validate(t.Context(), providers.Settings{}, providers.Secrets{Call: key, Event: secret})
		require.Equal(t, metering.CodeInvalid, metering.CodeOf(err), secret)
		require.ErrorContains(t, err, "body.webhook_secret must be the signing secret of the webhook endpoint")
		requireSafe(t, err)
	}
}

func TestOnlySubscriptionCycleInvoiceIsRenewal(t *testing.T) {
	t.Parallel()
	for reason, renewal := range map[string]bool{
		"subscription_cycle": true, "subscription_create": false, "subscription_update": false, "subscription_threshold": false, "manual": false, "": false,
	} {
		p := stripe.NewProvider(serve(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, fmt.Sprintf(`{"id":"in_1","billing_reason":%q,"currency":"usd","total":1,"lines":{"data":[]}}`, reason))
		}))
		got, err := p.Invoice(t.Context(), providers.Credentials{Account: "acct_1", Secret: key}, providers.InvoiceQuestion{ID: "in_1"})
		require.NoError(t, err)
		require.Equal(t, renewal, got.Renewal, reason)
		require.Equal(t, reason, got.Reason)
	}
}
