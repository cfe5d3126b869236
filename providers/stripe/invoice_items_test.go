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
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

var february = metering.Range{Start: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), End: march}

// lateUsage is what a ledger would have stored for usage that came after
// February was invoiced.
func lateUsage(version int, cents metering.Decimal) stripe.Entry {
	id := fmt.Sprintf("late-%d", version)
	return stripe.Entry{
		Mechanism: stripe.InvoiceItem, Customer: "cus_1", SubscriptionID: "sub_cus_1", Currency: "USD", Value: cents,
		Description: "API calls, usage of February reported late", Period: february, Identifier: id, IdempotencyKey: "key-" + id,
	}
}

func TestLateUsageIsBilledOnTheNextInvoice(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2023-10-16", "2025-03-31.basil"} {
		b := setupVersion(t, "")
		_, err := b.client.Send(t.Context(), key, entry(stripe.UsageRecord, 1, whole(40))) // 40 × 2.5 cents
		require.NoError(t, err)
		answer, err := b.client.Send(t.Context(), key, lateUsage(1, whole(250)))
		require.NoError(t, err)
		require.Equal(t, 200, answer.Status)
		_, err = b.client.Send(t.Context(), key, lateUsage(2, whole(-30)))
		require.NoError(t, err)
		require.Len(t, b.fake.State().Accounts[0].Pending, 2)

		b.fake.Advance(april.Sub(noon))
		_, err = b.client.Send(t.Context(), key, lateUsage(3, whole(7))) // too late for March's, which is drafted
		require.NoError(t, err)
		b.fake.Advance(time.Hour)
		final := invoice(t, b, version, b.fake.State().Accounts[0].Invoices[0].ID)
		requireDecimal(t, "3.2", final.Total, "1.00 + 2.50 - 0.30")
		requireDecimal(t, "320", b.fake.Total(final.ID))
		late := final.Lines[len(final.Lines)-2:]
		require.Equal(t, stripe.InvoiceLine{
			Identifier: "late-1", Quantity: whole(1), Amount: late[0].Amount, PeriodStart: february.Start, PeriodEnd: march,
		}, late[0], version)
		requireDecimal(t, "2.5", late[0].Amount)
		requireDecimal(t, "-0.3", late[1].Amount)

		b.fake.Advance(31 * 24 * time.Hour)
		requireDecimal(t, "7", b.fake.Total(b.fake.State().Accounts[0].Invoices[1].ID))
		require.Empty(t, b.fake.State().Accounts[0].Pending)
	}
}

// Fault 11: what is less than Stripe's smallest unit of the currency is owed until it is more, and is not planned before.
func TestPartOfAnAriaryIsOwedAndCanNeverBeSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owed := billing.RoundMoney(decimal("0.40"), "MGA") // ISO 4217 gives the ariary two digits, Stripe none
	requireDecimal(t, "0.4", owed)
	e := lateUsage(1, stripe.Smallest(owed, "MGA"))
	e.Currency = "MGA"
	requireDecimal(t, "0", e.Value)
	_, err := b.client.Send(t.Context(), key, e)
	require.Equal(t, metering.CodeInvalid, metering.CodeOf(err))
	require.Empty(t, b.fake.State().Accounts[0].Pending)
}

func TestAnInvoiceItemIsFoundWhereverItIs(t *testing.T) {
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

func TestWhatNoInvoiceItemCanSayIsRefused(t *testing.T) {
	t.Parallel()
	client := serve(t, nil) // nothing may be sent
	for name, c := range map[string]struct {
		change func(*stripe.Entry)
		code   metering.Code
		rule   string
	}{
		"nothing":           {func(e *stripe.Entry) { e.Value = whole(0) }, metering.CodeInvalid, "entry.value must not be 0"},
		"a fraction":        {func(e *stripe.Entry) { e.Value = decimal("0.5") }, metering.CodeInvalid, "entry.value must be whole"},
		"20 digits":         {func(e *stripe.Entry) { e.Value = decimal("99999999999999999").Mul(whole(1000)) }, metering.CodeProviderRefuse, "at most 2^63-1"},
		"no customer":       {func(e *stripe.Entry) { e.Customer = "" }, metering.CodeInvalid, "entry.subscription_id"},
		"no subscription":   {func(e *stripe.Entry) { e.SubscriptionID = "" }, metering.CodeInvalid, "entry.subscription_id"},
		"no identifier":     {func(e *stripe.Entry) { e.Identifier = "" }, metering.CodeInvalid, "entry.identifier"},
		"no currency":       {func(e *stripe.Entry) { e.Currency = "" }, metering.CodeInvalid, "entry.currency"},
		"Stripe's currency": {func(e *stripe.Entry) { e.Currency = "usd" }, metering.CodeInvalid, "entry.currency"},
		"no description":    {func(e *stripe.Entry) { e.Description = "" }, metering.CodeInvalid, "entry.description"},
		"a long one":        {func(e *stripe.Entry) { e.Description = strings.Repeat("x", 501) }, metering.CodeInvalid, "entry.description"},
		"no period":         {func(e *stripe.Entry) { e.Period = metering.Range{} }, metering.CodeInvalid, "entry.period"},
	} {
		e := lateUsage(1, whole(5))
		c.change(&e)
		_, err := client.Send(t.Context(), key, e)
		require.Equal(t, c.code, metering.CodeOf(err), name)
		require.ErrorContains(t, err, c.rule, name)
	}
}

func TestARefusedInvoiceItemSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for rule, change := range map[string]func(*stripe.Entry){
		"bills the customer in another currency":                 func(e *stripe.Entry) { e.Currency = "EUR" },
		"subscription at Stripe has ended":                       func(e *stripe.Entry) { e.SubscriptionID = "sub_other" },
		"Stripe refused with 400 resource_missing; its log says": func(e *stripe.Entry) { e.Customer = "cus_other" },
	} {
		b := setup(t)
		e := lateUsage(1, whole(5))
		change(&e)
		_, err := b.client.Send(t.Context(), key, e)
		require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
		require.ErrorContains(t, err, rule)
		requireSafe(t, err)
		require.Empty(t, b.fake.State().Accounts[0].Pending)
	}
}

func TestEachAmountIsBilledOnceWhateverHappened(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b, stop := start(t, "")
		defer stop()
		l := &ledger{bundle: b, t: t, mechanism: stripe.InvoiceItem}
		var want metering.Decimal
		for version := range rapid.IntRange(1, 5).Draw(t, "amounts") {
			cents := whole(rapid.SampledFrom([]int64{-4000, -1, 1, 7, 7, 1250}).Draw(t, "cents"))
			l.bill(lateUsage(version, cents))
			want = want.Add(cents)
		}
		b.fake.Advance(april.Sub(b.fake.Now()) + time.Hour)
		requireDecimal(t, want.String(), b.fake.Total(b.fake.State().Accounts[0].Invoices[0].ID))
	})
}

// bill sends an entry until it is known to be taken. What Stripe has forgotten,
// or answers with what it saved, is looked for before it is sent anew.
func (l *ledger) bill(e stripe.Entry) {
	first := l.fake.Now()
	for range 40 {
		answer, err := l.send(e)
		if err == nil {
			return
		}
		require.Equal(l.t, metering.CodeProviderDown, metering.CodeOf(err), "%v", err)
		l.wait()
		stuck := answer.Replayed && answer.Status >= 500
		if !stuck && l.fake.Now().Sub(first) < 24*time.Hour {
			continue
		}
		if l.billed(e, first) {
			return
		}
		if stuck {
			e.IdempotencyKey += "'"
		}
	}
	l.t.Fatal("never settled")
}

func (l *ledger) billed(e stripe.Entry, since time.Time) bool {
	l.fake.Behave(stripetest.Behaviour{})
	found, err := l.client.InvoiceItem(context.Background(), key, e.Customer, e.Identifier, since)
	require.NoError(l.t, err)
	return found
}
