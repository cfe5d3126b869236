package stripe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

func TestInvoiceIsReadAlikeInEveryAPIVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2023-10-16", "2025-03-31.basil"} {
		b := setupVersion(t, "")
		_, err := b.client.Send(t.Context(), key, report(stripe.UsageRecord, 1, whole(41))) // 41 × 2.5 cents
		require.NoError(t, err)
		b.fake.Advance(april.Sub(noon))
		_, err = b.client.Send(t.Context(), key, report(stripe.MeterDelta, 1, whole(7))) // within the hour; 7 × 3 cents
		require.NoError(t, err)
		id := b.fake.State().Accounts[0].Invoices[0].ID

		draft := invoice(t, b, version, id)
		require.Equal(t, "draft", draft.Status)
		require.Zero(t, draft.FinalizedAt)
		b.fake.Advance(time.Hour)

		got := invoice(t, b, version, id)
		lines := got.Lines
		got.Lines = nil
		require.Equal(t, stripe.Invoice{
			ID: id, CustomerID: "cus_1", SubscriptionID: "sub_cus_1", Status: "open", BillingReason: "subscription_cycle",
			Currency: "USD", Total: got.Total, PeriodStart: march, PeriodEnd: april, CreatedAt: april, FinalizedAt: april.Add(time.Hour),
		}, got, version)
		requireDecimal(t, "1.24", got.Total)
		require.Len(t, lines, 5)
		require.Equal(t, "si_legacy_cus_1", lines[0].ItemID)
		require.Equal(t, "price_legacy", lines[0].PriceID)
		require.Equal(t, march, lines[0].PeriodStart)
		require.Equal(t, april, lines[0].PeriodEnd)
		requireDecimal(t, "41", lines[0].Quantity)
		requireDecimal(t, "1.03", lines[0].Amount)
		requireDecimal(t, "0.21", lines[1].Amount)
	}
}

// invoice returns an invoice. It checks that an event in the API version contains the same invoice.
func invoice(t *testing.T, b bundle, version, id string) stripe.Invoice {
	t.Helper()
	payload, header, err := b.fake.Event(&stripetest.Webhook{Type: stripe.InvoiceFinalized, Object: id, APIVersion: version})
	require.NoError(t, err)
	event, err := stripe.VerifyEvent(payload, header, webhookSecret, b.fake.Now())
	require.NoError(t, err)
	read, err := b.client.Invoice(t.Context(), key, id)
	require.NoError(t, err)
	require.Equal(t, read, *event.Invoice)
	return read
}

func TestAllLinesOfLongInvoiceAreRead(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2023-10-16", "2025-03-31.basil"} {
		b := setupVersion(t, version)
		in := &stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: key}, Customers: []stripetest.Customer{{ID: "cus_2"}}}
		in.Subscriptions = []stripetest.Subscription{{ID: "sub_2", Customer: "cus_2", Start: march.Unix(), End: noon.Add(time.Hour).Unix()}}
		for range 120 {
			in.Subscriptions[0].Items = append(in.Subscriptions[0].Items, stripetest.Item{Price: "price_delta"})
		}
		require.NoError(t, b.fake.Seed(in))
		b.fake.Advance(2 * time.Hour)
		got, err := b.client.Invoice(t.Context(), key, b.fake.State().Accounts[0].Invoices[0].ID)
		require.NoError(t, err)
		require.Len(t, got.Lines, 120)
	}
}

func TestUnknownInvoiceReturnsProviderRefused(t *testing.T) {
	t.Parallel()
	_, err := setup(t).client.Invoice(t.Context(), key, "in_unknown")
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
	require.ErrorContains(t, err, "404 resource_missing")
}

func TestAmountConvertsSmallestUnitsToCurrency(t *testing.T) {
	t.Parallel()
	for currency, want := range map[string]string{
		"USD": "12.34", "JPY": "1234", "KWD": "1.234", "MGA": "1234",
		"ISK": "12.34", "UGX": "12.34", // sent in hundredths: https://docs.stripe.com/currencies#special-cases
	} {
		requireDecimal(t, want, stripe.Amount(whole(1234), currency), currency)
		requireDecimal(t, "1234", stripe.Smallest(decimal(want), currency), currency)
	}
}
