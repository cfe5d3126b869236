package stripe_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// ownLine returns the message of a line for one meter on the standalone invoice of February.
func ownLine(meter metering.MeterID, amount string, address map[string]string) billing.Message {
	return billing.Message{
		Report: billing.Report{
			Series: billing.Series{
				Kind: billing.ChargeReport, Connection: 1, Customer: "cus_1", Target: billing.OwnInvoice, Method: stripe.PendingItem, Counting: billing.Replaces,
				Period: february.Start, Window: february,
			},
			Destination: billing.Destination{Address: address}, Lines: []billing.Line{{MeterID: meter}}, Quantity: decimal(amount), Currency: "USD", Of: february,
		},
		ID: uuid.New(), TenantID: 1, CustomerID: 2, Meter: metering.Meter{ID: meter, Slug: "calls"}, Timezone: time.UTC, Now: noon,
	}
}

// ownEnd returns the message that finalizes the standalone invoice of February.
func ownEnd() billing.Message {
	m := ownLine(0, "0", nil)
	m.Kind, m.Target, m.Method, m.Lines, m.Destination = billing.ActionReport, billing.OwnInvoice+"/2024-02", "", nil, billing.Destination{}
	return m
}

// sending frames a message, and returns the attempt to send it.
func sending(t *testing.T, m billing.Message, object string) providers.Sending {
	t.Helper()
	framed, err := stripe.Provider{}.Frame(m)
	require.NoError(t, err)
	return providers.Sending{Series: m.Series, ReportID: m.ID, Body: framed.Body, Object: object, FirstSentAt: noon, Now: noon}
}

func TestStandaloneInvoiceIsCreatedFilledAndFinalized(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: key}, Products: []stripetest.Product{{ID: "prod_1"}}}))
	p, at := stripe.NewProvider(b.client), providers.Credentials{Account: "acct_1", Secret: key}
	address := map[string]string{"product": "prod_1", "collection_method": "send_invoice", "days_until_due": "14"}
	first, second, end := sending(t, ownLine(1, "2.50", address), ""), sending(t, ownLine(3, "1", address), ""), sending(t, ownEnd(), "")

	early := p.Send(t.Context(), at, end)
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(early.Err))
	require.ErrorContains(t, early.Err, "the draft of the period's invoice was deleted")
	for range 2 { // the same call twice
		for _, s := range []providers.Sending{first, second} {
			sent := p.Send(t.Context(), at, s)
			require.NoError(t, sent.Err)
			require.Equal(t, billing.Accepted, sent.State)
			found, err := p.Find(t.Context(), at, s, providers.Place{}, decimal("0"))
			require.NoError(t, err)
			require.Equal(t, billing.Accepted, found.State)
		}
		b.fake.Advance(25 * time.Hour) // Stripe has forgotten the idempotency keys
	}
	found, err := p.Find(t.Context(), at, end, providers.Place{}, decimal("0"))
	require.NoError(t, err)
	require.Empty(t, found.State)
	invoices := b.fake.State().Accounts[0].Invoices
	require.Len(t, invoices, 1)
	draft := invoices[0]
	require.Equal(t, []any{"draft", "manual", "350", "send_invoice", int64(14), false},
		[]any{draft.Status, draft.Reason, draft.Total.String(), draft.Collection, draft.DaysUntilDue, draft.AutoAdvance})
	read, err := p.Invoice(t.Context(), at, providers.InvoiceQuestion{ID: draft.ID})
	require.NoError(t, err)
	require.False(t, read.Renewal, "it is no draft that is held, or brought up to date")

	for range 2 {
		sent := p.Send(t.Context(), at, end)
		require.NoError(t, sent.Err)
		require.Equal(t, billing.Accepted, sent.State)
		b.fake.Advance(25 * time.Hour)
	}
	found, err = p.Find(t.Context(), at, end, providers.Place{}, decimal("0"))
	require.NoError(t, err)
	require.Equal(t, billing.Accepted, found.State)
	read, err = p.Invoice(t.Context(), at, providers.InvoiceQuestion{ID: draft.ID})
	require.NoError(t, err)
	require.Equal(t, []any{billing.OwnInvoice, true, february, "open"}, []any{read.Subscription, read.Renewal, read.Period, read.Status})
	require.Equal(t, first.ReportID, *read.Lines[0].ReportID)
	require.True(t, b.fake.State().Accounts[0].Invoices[0].AutoAdvance, "Stripe collects it")

	third := p.Send(t.Context(), at, sending(t, ownLine(4, "1", address), ""))
	require.NoError(t, third.Err)
	require.Equal(t, billing.Rejected, third.State, "it takes no lines any more")
	listed, err := p.ListInvoices(t.Context(), at, providers.InvoiceListQuestion{Customer: "cus_1", Since: february.Start})
	require.NoError(t, err)
	require.Contains(t, listed.Invoices, draft.ID)
	charges, err := p.Charges(t.Context(), at, "cus_1", february.Start)
	require.NoError(t, err)
	require.Len(t, charges, 2)
	require.Equal(t, billing.OwnInvoice, charges[0].Subscription)
}

// TestChargesReturnAmountThatWasSetDespiteEdit checks that Charges returns the amount that was set, even if a
// user has edited the line since. A restored ledger reads these amounts.
func TestChargesReturnAmountThatWasSetDespiteEdit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: key}, Products: []stripetest.Product{{ID: "prod_1"}}}))
	p, at := stripe.NewProvider(b.client), providers.Credentials{Account: "acct_1", Secret: key}
	sent := p.Send(t.Context(), at, sending(t, ownLine(1, "2.50", map[string]string{"product": "prod_1"}), ""))
	require.NoError(t, sent.Err)
	found := func() billing.FoundCharge {
		charges, err := p.Charges(t.Context(), at, "cus_1", february.Start)
		require.NoError(t, err)
		require.Len(t, charges, 1)
		return charges[0]
	}
	asSet := found()
	require.Equal(t, "2.5", asSet.Amount.String())
	b.post(t, "/v1/invoiceitems/"+asSet.Object, "amount=100")
	require.Equal(t, "100", b.fake.State().Accounts[0].Invoices[0].Total.String())
	require.Equal(t, asSet, found())
}

// TestInvoiceWithoutPeriodMetadataIsNotStandalone checks that an invoice without a period in its metadata is not
// read as a standalone invoice.
func TestInvoiceWithoutPeriodMetadataIsNotStandalone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, at := stripe.NewProvider(b.client), providers.Credentials{Account: "acct_1", Secret: key}
	b.post(t, "/v1/invoices", "customer=cus_1&metadata[odometer_invoice]=x")
	made := b.fake.State().Accounts[0].Invoices
	read, err := p.Invoice(t.Context(), at, providers.InvoiceQuestion{ID: made[len(made)-1].ID})
	require.NoError(t, err)
	require.Empty(t, read.Subscription, "it names no period")
}

func TestCollectionMethodOfStandaloneInvoicesIsValidated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		text metering.InvoiceText
		ok   bool
	}{
		{metering.InvoiceText{}, true},
		{metering.InvoiceText{CollectionMethod: "charge_automatically"}, true},
		{metering.InvoiceText{CollectionMethod: "send_invoice", DaysUntilDue: 30}, true},
		{metering.InvoiceText{CollectionMethod: "send_invoice"}, false},
		{metering.InvoiceText{DaysUntilDue: 30}, false},
		{metering.InvoiceText{CollectionMethod: "charge_automatically", DaysUntilDue: 30}, false},
	} {
		_, err := stripe.NewProvider(b.client).Validate(t.Context(), providers.Settings{Text: c.text}, providers.Secrets{Call: key, Event: "whsec_of-the-endpoint"})
		require.Equal(t, c.ok, err == nil, "%+v: %v", c.text, err)
	}
}

// TestOnlyUnsubscribedCustomerGetsStandaloneInvoices checks that only a customer without a current subscription gets
// standalone invoices. A subscription that is unpaid, paused or incomplete is current, because it may run again.
func TestOnlyUnsubscribedCustomerGetsStandaloneInvoices(t *testing.T) {
	t.Parallel()
	const stopped = "the customer's subscription at Stripe is unpaid, paused or incomplete"
	for status, reason := range map[string]string{
		"": "", "canceled": "", "incomplete_expired": "", "unpaid": stopped, "paused": stopped, "incomplete": stopped,
	} {
		fake := stripetest.New(stripetest.Options{Now: func() time.Time { return noon }}) // stripe-mock does not know the filter of billing credits
		require.NoError(t, fake.Seed(seed("acct_1", key, "cus_1")))
		s := &stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: key}, Customers: []stripetest.Customer{{ID: "cus_own"}}}
		if status != "" {
			s.Subscriptions = []stripetest.Subscription{{
				ID: "sub_own", Customer: "cus_own", Status: status, Start: march.Unix(), End: april.Unix(), Items: []stripetest.Item{{ID: "si_own", Price: "price_delta"}},
			}}
		}
		require.NoError(t, fake.Seed(s))
		text := metering.InvoiceText{Product: "prod_1", CollectionMethod: "send_invoice", DaysUntilDue: 14}
		side, err := stripe.NewProvider(servedBy(t, fake)).Read(t.Context(), credentials, providers.Question{Customer: "cus_own", Meters: fourMeters, Amounts: true, Text: text})
		require.NoError(t, err)
		require.Empty(t, side.Subscription, status)
		require.Contains(t, side.Charges[0].Excluded.Detail, reason, status)
		if reason == "" {
			require.Empty(t, side.Charges[0].Excluded, status)
			require.Equal(t, map[string]string{"product": "prod_1", "collection_method": "send_invoice", "days_until_due": "14"}, side.Charges[0].Address)
		}
	}
}
