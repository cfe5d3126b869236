package stripe_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

func TestAKeyIsValidatedByUsingIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: "rk_test_restricted", Restricted: true}}))
	require.NoError(t, b.fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_live", Key: "sk_live_canary"}}))

	for key, want := range map[string]stripe.Account{
		key:                  {ID: "acct_1"},
		"rk_test_restricted": {},
		"sk_live_canary":     {ID: "acct_live", Livemode: true},
	} {
		got, err := b.client.Validate(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestARefusedKeyIsNotRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for key, rule := range map[string]string{
		"sk_test_canaryunknown":    "Stripe does not accept the API key; save the key again",
		"rk_live_canaryunknown":    "Stripe does not accept the API key; save the key again",
		"pk_test_canary":           "is not a secret or restricted API key",
		"whsec_canary":             "is not a secret or restricted API key",
		"sk_test_canary\r\nX-A: b": "is not a secret or restricted API key",
		"":                         "is not a secret or restricted API key",
	} {
		_, err := b.client.Validate(t.Context(), key)
		require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err), key)
		require.ErrorContains(t, err, rule)
		requireSafe(t, err)
	}
}

func TestAKeyThatMayNotReadSubscriptionsIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fake.Behave(stripetest.Behaviour{Status: 403, Times: 1, Path: "/v1/subscriptions"})
	_, err := b.client.Validate(t.Context(), key)
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
	require.ErrorContains(t, err, "lacks a permission")
	requireSafe(t, err)
}

func TestAKeyIsNotRefusedBecauseStripeIsDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, behaviour := range []stripetest.Behaviour{{Status: 503, Times: 1}, {Status: 429, Times: 1}, {DropAnswer: true, Times: 1}} {
		b.fake.Behave(behaviour)
		_, err := b.client.Validate(t.Context(), key)
		require.Equal(t, metering.CodeProviderDown, metering.CodeOf(err))
		requireSafe(t, err)
	}
}

func TestAKeyIsNeverSentToWhereStripeRedirects(t *testing.T) {
	t.Parallel()
	reached := false
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+r.Host+"/elsewhere", http.StatusFound)
		reached = reached || r.URL.Path == "/elsewhere"
	})
	_, err := client.Validate(t.Context(), key)
	require.Equal(t, metering.CodeProviderDown, metering.CodeOf(err))
	require.False(t, reached)
}
