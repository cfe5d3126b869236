package stripe_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

var february = metering.Range{Start: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), End: march}

// lateUsage returns the report that a ledger would store for usage that was received after February's
// invoice.
func lateUsage(version int, cents metering.Decimal) stripe.Report {
	id := fmt.Sprintf("late-%d", version)
	return stripe.Report{
		Method: stripe.InvoiceItem, Customer: "cus_1", SubscriptionID: "sub_cus_1", Currency: "USD", Value: cents,
		Description: "API calls, usage of February reported late", Period: february, Identifier: id, IdempotencyKey: "key-" + id,
	}
}

func TestLateUsageIsBilledOnNextInvoice(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2023-10-16", "2025-03-31.basil"} {
		b := setupVersion(t, "")
		_, err := b.client.Send(t.Context(), key, report(stripe.UsageRecord, 1, whole(40))) // 40 × 2.5 cents
		require.NoError(t, err)
		answer, err := b.client.Send(t.Context(), key, lateUsage(1, whole(250)))
		require.NoError(t, err)
		require.Equal(t, 200, answer.Status)
		_, err = b.client.Send(t.Context(), key, lateUsage(2, whole(-30)))
		require.NoError(t, err)
		require.Len(t, b.fake.State().Accounts[0].Pending, 2)

		b.fake.Advance(april.Sub(noon))
		_, err = b.client.Send(t.Context(), key, lateUsage(3, whole(7))) // too late for March's invoice, which is already a draft
		require.NoError(t, err)
		b.fake.Advance(time.Hour)
		final := invoice(t, b, version, b.fake.State().Accounts[0].Invoices[0].ID)
		requireDecimal(t, "3.2", final.Total, "1.00 + 2.50 - 0.30")
		requireDecimal(t, "320", b.fake.Total(final.ID))
		late := final.Lines[len(final.Lines)-2:]
		require.Equal(t, stripe.InvoiceLine{
			ID: late[0].ID, Identifier: "late-1", Quantity: whole(1), Amount: late[0].Amount, PeriodStart: february.Start, PeriodEnd: march,
		}, late[0], version)
		requireDecimal(t, "2.5", late[0].Amount)
		requireDecimal(t, "-0.3", late[1].Amount)

		b.fake.Advance(31 * 24 * time.Hour)
		requireDecimal(t, "7", b.fake.Total(b.fake.State().Accounts[0].Invoices[1].ID))
		require.Empty(t, b.fake.State().Accounts[0].Pending)
	}
}

// TestAmountBelowSmallestCurrencyUnitIsNotSent checks that Send refuses an amount below Stripe's smallest unit
// of the currency, and creates no invoice item. Late usage in a currency other than the subscription's was
// once sent, and refused for ever in the same way (dev/mutate/faults.json).
func TestAmountBelowSmallestCurrencyUnitIsNotSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owed := billing.RoundMoney(decimal("0.40"), "MGA") // ISO 4217 gives the ariary two digits, Stripe none
	requireDecimal(t, "0.4", owed)
	r := lateUsage(1, stripe.Smallest(owed, "MGA"))
	r.Currency = "MGA"
	requireDecimal(t, "0", r.Value)
	_, err := b.client.Send(t.Context(), key, r)
	require.Equal(t, metering.CodeInvalid, metering.CodeOf(err))
	require.Empty(t, b.fake.State().Accounts[0].Pending)
}

func TestInvoiceItemIsFoundOnAnyPageOrInvoice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for version := range 230 { // three pages
		_, err := b.client.Send(t.Context(), key, lateUsage(version, whole(1)))
		require.NoError(t, err)
	}
	has := func(identifier string, since time.Time) bool {
		found, err := b.client.InvoiceItem(t.Context(), key, "cus_1", identifier, since)
		require.NoError(t, err)
		return found
	}
	require.True(t, has("late-0", noon))
	require.True(t, has("late-229", noon))
	require.False(t, has("late-230", noon))
	require.True(t, has("late-0", noon.Add(time.Hour)), "clocks differ")
	require.False(t, has("late-0", noon.Add(time.Hour+time.Second)))
	b.fake.Advance(april.Sub(noon) + time.Hour)
	require.True(t, has("late-0", noon), "on an invoice")

	b.fake.Behave(stripetest.Behaviour{Status: 503, Times: 1})
	_, err := b.client.InvoiceItem(t.Context(), key, "cus_1", "late-0", noon)
	require.Equal(t, metering.CodeProviderDown, metering.CodeOf(err), "silence is no answer")
	_, err = b.client.InvoiceItem(t.Context(), key, "cus_unknown", "late-0", noon)
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
	requireSafe(t, err)
}

func TestInvalidInvoiceItemIsRefusedBeforeSending(t *testing.T) {
	t.Parallel()
	client := serve(t, nil) // no request may be sent
	for name, c := range map[string]struct {
		change func(*stripe.Report)
		code   metering.Code
		rule   string
	}{
		"nothing":           {func(r *stripe.Report) { r.Value = whole(0) }, metering.CodeInvalid, "report.value must not be 0"},
		"a fraction":        {func(r *stripe.Report) { r.Value = decimal("0.5") }, metering.CodeInvalid, "report.value must be a whole number"},
		"20 digits":         {func(r *stripe.Report) { r.Value = decimal("99999999999999999").Mul(whole(1000)) }, metering.CodeProviderRefuse, "exceeds 2^63-1"},
		"no customer":       {func(r *stripe.Report) { r.Customer = "" }, metering.CodeInvalid, "report.subscription_id"},
		"no subscription":   {func(r *stripe.Report) { r.SubscriptionID = "" }, metering.CodeInvalid, "report.subscription_id"},
		"no identifier":     {func(r *stripe.Report) { r.Identifier = "" }, metering.CodeInvalid, "report.identifier"},
		"no currency":       {func(r *stripe.Report) { r.Currency = "" }, metering.CodeInvalid, "report.currency"},
		"Stripe's currency": {func(r *stripe.Report) { r.Currency = "usd" }, metering.CodeInvalid, "report.currency"},
		"no description":    {func(r *stripe.Report) { r.Description = "" }, metering.CodeInvalid, "report.description"},
		"a long one":        {func(r *stripe.Report) { r.Description = strings.Repeat("x", 501) }, metering.CodeInvalid, "report.description"},
		"no period":         {func(r *stripe.Report) { r.Period = metering.Range{} }, metering.CodeInvalid, "report.period"},
	} {
		r := lateUsage(1, whole(5))
		c.change(&r)
		_, err := client.Send(t.Context(), key, r)
		require.Equal(t, c.code, metering.CodeOf(err), name)
		require.ErrorContains(t, err, c.rule, name)
	}
}

// TestLongestMeterNameFitsOnInvoice checks that Stripe accepts the longest name of a meter. Both
// limits count characters, not bytes.
func TestLongestMeterNameFitsOnInvoice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	meter := metering.Meter{Slug: "calls", EventType: "call", Name: strings.Repeat("😀", 255), Version: metering.MeterVersion{Aggregation: metering.Sum}}
	require.NoError(t, meter.Validate())
	r := lateUsage(1, whole(5))
	r.Description = billing.Description(meter, r.Period, time.UTC, true)
	require.Greater(t, len(r.Description), 1_000)
	_, err := b.client.Send(t.Context(), key, r)
	require.NoError(t, err)
}

func TestRefusedInvoiceItemErrorNamesReason(t *testing.T) {
	t.Parallel()
	for rule, change := range map[string]func(*stripe.Report){
		"bills the customer in another currency":                                  func(r *stripe.Report) { r.Currency = "EUR" },
		"subscription at Stripe has ended":                                        func(r *stripe.Report) { r.SubscriptionID = "sub_other" },
		"Stripe refused the request: 400 resource_missing. Its request log shows": func(r *stripe.Report) { r.Customer = "cus_other" },
	} {
		b := setup(t)
		r := lateUsage(1, whole(5))
		change(&r)
		_, err := b.client.Send(t.Context(), key, r)
		require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
		require.ErrorContains(t, err, rule)
		requireSafe(t, err)
		require.Empty(t, b.fake.State().Accounts[0].Pending)
	}
}

func TestPropertyEachAmountIsBilledOnceDespiteFailures(t *testing.T) {
	t.Parallel()
	histories.Check(t, func(t *rapid.T) {
		b, stop := start(t, "")
		defer stop()
		l := &ledger{bundle: b, t: t, method: stripe.InvoiceItem}
		var want metering.Decimal
		for version := range rapid.IntRange(1, 5).Draw(t, "amounts") {
			cents := whole(rapid.SampledFrom([]int64{-4000, -1, 1, 7, 7, 1250}).Draw(t, "cents"))
			l.sendCharge(lateUsage(version, cents))
			want = want.Add(cents)
		}
		b.fake.Advance(april.Sub(b.fake.Now()) + time.Hour)
		requireDecimal(t, want.String(), b.fake.Total(b.fake.State().Accounts[0].Invoices[0].ID))
	})
}

// sendCharge sends a report until it is known to be accepted. If Stripe repeats a saved error or may have
// forgotten the idempotency key, sendCharge looks up the invoice item before it sends again.
func (l *ledger) sendCharge(r stripe.Report) {
	first := l.fake.Now()
	for n := range attempts {
		answer, err := l.send(r, n)
		if err == nil {
			return
		}
		require.Equal(l.t, metering.CodeProviderDown, metering.CodeOf(err), "%v", err)
		l.wait()
		stuck := answer.Replayed && answer.Status >= 500
		if !stuck && l.fake.Now().Sub(first) < 24*time.Hour {
			continue
		}
		if l.hasInvoiceItem(r, first) {
			return
		}
		if stuck {
			r.IdempotencyKey += "'"
		}
	}
	l.t.Fatal("never settled")
}

// hasInvoiceItem reports whether Stripe has the invoice item of a report.
func (l *ledger) hasInvoiceItem(r stripe.Report, since time.Time) bool {
	l.fake.Behave(stripetest.Behaviour{})
	found, err := l.client.InvoiceItem(context.Background(), key, r.Customer, r.Identifier, since)
	require.NoError(l.t, err)
	return found
}
