package stripe_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
	"github.com/odometer-metering/odometer/providers/stripetest/openapi"
)

const (
	key           = "sk_test_canary4242"
	webhookSecret = "whsec_test"
)

var (
	march = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	april = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	noon  = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
)

// validator returns a function that validates requests with stripe-mock. It is shared, because loading
// Stripe's document takes half a second.
var validator = sync.OnceValues(openapi.Validator)

// bundle is a fake and a client that calls it. In the fake, cus_1 has a subscription for the whole of March, with one
// price for each method of sending usage and two prices to which no usage can be sent.
type bundle struct {
	fake   *stripetest.Fake
	url    string
	client *stripe.Client
}

// setup returns a bundle at noon on 10 March.
func setup(t *testing.T) bundle {
	t.Helper()
	return setupVersion(t, "")
}

// setupVersion returns a bundle with a fake that always responds in an API version.
func setupVersion(t *testing.T, version string) bundle {
	t.Helper()
	b, stop := start(t, version)
	t.Cleanup(stop)
	return b
}

func start(t require.TestingT, version string) (b bundle, stop func()) {
	validate, err := validator()
	require.NoError(t, err)
	fake := stripetest.New(stripetest.Options{Now: func() time.Time { return noon }, Validate: validate, APIVersion: version})
	require.NoError(t, fake.Seed(seed("acct_1", key, "cus_1")))
	server := httptest.NewServer(fake)
	server.Config.SetKeepAlivesEnabled(false) // otherwise net/http may hide a lost response by a retry
	return bundle{fake, server.URL, stripe.New(server.URL)}, server.Close
}

// untilProcessed returns a context that is canceled when the fake has processed the next call.
func (b bundle) untilProcessed(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	before := len(b.fake.State().Requests)
	go func() {
		defer cancel()
		for ctx.Err() == nil && len(b.fake.State().Requests) == before {
			time.Sleep(time.Millisecond)
		}
	}()
	return ctx, cancel
}

// seed returns the initial state of a bundle's fake.
func seed(account, key, customer string) *stripetest.Seed {
	return &stripetest.Seed{
		Account:   stripetest.Account{ID: account, Key: key, WebhookSecret: webhookSecret, Decimals: true},
		Customers: []stripetest.Customer{{ID: customer}},
		Meters: []stripetest.Meter{
			{ID: "mtr_delta", EventName: "calls"},
			{ID: "mtr_window", EventName: "minutes", EventTimeWindow: "hour", CustomerKey: "who", ValueKey: "amount"},
			{ID: "mtr_last", EventName: "seats", Formula: "last", Metadata: map[string]string{"meter_slug": "seats"}},
			{ID: "mtr_count", EventName: "clicks", Formula: "count"},
		},
		Prices: []stripetest.Price{
			{ID: "price_legacy", LookupKey: "storage", UnitAmount: "2.5"},
			{ID: "price_delta", LookupKey: "api-calls", Meter: "mtr_delta", UnitAmount: "3"},
			{ID: "price_window", Metadata: map[string]string{"meter_slug": "minutes"}, Meter: "mtr_window"},
			{ID: "price_last", Meter: "mtr_last"},
			{ID: "price_count", Meter: "mtr_count"},
			{ID: "price_flat", UsageType: "licensed"},
		},
		Subscriptions: []stripetest.Subscription{{
			ID: "sub_" + customer, Customer: customer, Start: march.Unix(), End: april.Unix(),
			Items: []stripetest.Item{
				{ID: "si_legacy_" + customer, Price: "price_legacy"}, {ID: "si_delta_" + customer, Price: "price_delta"},
				{ID: "si_window_" + customer, Price: "price_window"}, {ID: "si_last_" + customer, Price: "price_last"},
				{ID: "si_count_" + customer, Price: "price_count"}, {ID: "si_flat_" + customer, Price: "price_flat"},
			},
		}},
	}
}

func whole(n int64) metering.Decimal { return metering.Whole(n) }

func decimal(literal string) metering.Decimal { return metering.MustDecimal(literal) }

func requireDecimal(t require.TestingT, want string, got metering.Decimal, about ...any) {
	require.Equal(t, want, got.String(), about...)
}

// requireSafe checks that an error may be logged and shown: it contains no key, customer, address or text
// from Stripe.
func requireSafe(t require.TestingT, err error) {
	for _, secret := range []string{key, "canary", "cus_1", "127.0.0.1", "No such", "asked by"} {
		require.NotContains(t, err.Error(), secret)
	}
}

// serve returns a client of a server with the handler.
func serve(t *testing.T, handler http.HandlerFunc) *stripe.Client {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return stripe.New(server.URL)
}
