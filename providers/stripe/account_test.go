package stripe_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

func TestClientValidateReturnsAccountOfKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: "rk_test_canary", Permissions: enough}}))
	require.NoError(t, b.fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_live", Key: "sk_live_canary"}}))

	for key, want := range map[string]stripe.Account{
		key:              {ID: "acct_1"},
		"rk_test_canary": {ID: "acct_1"},
		"sk_live_canary": {ID: "acct_live", Livemode: true},
	} {
		got, err := b.client.Validate(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// enough lists the permissions that a restricted key needs. A write permission includes the read
// permission.
var enough = []string{
	"accounts_kyc_basic_read", "subscription_read", "plan_read", "billing_meter_read", "billing_meter_event_write", "invoice_write", "event_read",
}

func TestRestrictedKeyErrorListsAllMissingPermissions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		permissions []string
		rule        string
	}{
		"nothing": {[]string{}, "the restricted key lacks these permissions: read the account (rak_accounts_kyc_basic_read), read subscriptions (rak_subscription_read), read prices (rak_plan_read), " +
			"read meters (rak_billing_meter_read), read meter event summaries (rak_billing_meter_event_read), " +
			"write meter events (rak_billing_meter_event_write), read invoices (rak_invoice_read), read invoice items (rak_invoice_read), " +
			"write invoice items (rak_invoice_write), read events (rak_event_read). Grant them at Stripe"},
		"reading only": {[]string{"accounts_kyc_basic_read", "subscription_read", "plan_read", "billing_meter_read", "billing_meter_event_read", "invoice_read", "event_read"},
			"the restricted key lacks these permissions: write meter events (rak_billing_meter_event_write), write invoice items (rak_invoice_write). Grant"},
		"all but the account": {enough[1:], "the restricted key lacks these permissions: read the account (rak_accounts_kyc_basic_read). Grant"},
	} {
		b := setup(t)
		require.NoError(t, b.fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: "rk_test_canary", Permissions: c.permissions}}))
		_, err := b.client.Validate(t.Context(), "rk_test_canary")
		require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err), name)
		require.ErrorContains(t, err, c.rule, name)
		requireSafe(t, err)
		state := b.fake.State().Accounts[0]
		require.Empty(t, state.Pending, "asking writes nothing")
		requireDecimal(t, "0", b.fake.Quantity("si_delta_cus_1"))
	}
}

func TestSendErrorNamesMissingPermission(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: "rk_test_canary", Permissions: enough}}))
	_, err := b.client.Send(t.Context(), "rk_test_canary", report(stripe.UsageRecord, 1, whole(5)))
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
	require.ErrorContains(t, err, "lacks a permission at Stripe (rak_usage_record_write)")
	requireSafe(t, err)
}

func TestLiveKeyIsSentOnlyToStripe(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"http://stripe:8091", "https://api.stripe.com.example.com", "http://10.0.0.7"} {
		_, err := stripe.New(base).Validate(t.Context(), "rk_live_canary") // no server listens there
		require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err), base)
		require.ErrorContains(t, err, "a live key must not be sent there")
		requireSafe(t, err)
	}
}

func TestErrorOfRefusedKeyDoesNotContainKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for key, rule := range map[string]string{
		"sk_test_canaryunknown":    "Stripe rejected the API key; save another key with PUT /v1/billing/provider",
		"rk_live_canaryunknown":    "Stripe rejected the API key; save another key with PUT /v1/billing/provider",
		"pk_test_canary":           "is a publishable key",
		"whsec_canary":             "is the signing secret of a webhook endpoint",
		"sk_test_canary\r\nX-A: b": "must be a secret or restricted API key",
		"":                         "must be a secret or restricted API key",
	} {
		_, err := b.client.Validate(t.Context(), key)
		require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err), key)
		require.ErrorContains(t, err, rule)
		requireSafe(t, err)
	}
}

func TestValidateRefusesKeyWithoutSubscriptionPermission(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fake.Behave(stripetest.Behaviour{Status: 403, Times: 1, Path: "/v1/subscriptions"})
	_, err := b.client.Validate(t.Context(), key)
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
	require.ErrorContains(t, err, "lacks a permission")
	requireSafe(t, err)
}

func TestValidateReturnsProviderDownIfStripeIsUnavailable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, behaviour := range []stripetest.Behaviour{{Status: 503, Times: 1}, {Status: 429, Times: 1}, {DropAnswer: true, Times: 1}} {
		b.fake.Behave(behaviour)
		_, err := b.client.Validate(t.Context(), key)
		require.Equal(t, metering.CodeProviderDown, metering.CodeOf(err))
		requireSafe(t, err)
	}
}

func TestKeyIsNotSentToRedirectTarget(t *testing.T) {
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
