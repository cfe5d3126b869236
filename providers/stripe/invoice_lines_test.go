package stripe_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
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

const (
	storage metering.MeterID = iota + 1
	apiCalls
	minutes
	seats
)

var (
	credentials = providers.Credentials{Account: "acct_1", Secret: key}
	fourMeters  = []metering.Meter{{ID: storage, Slug: "storage"}, {ID: apiCalls, Slug: "api-calls"}, {ID: minutes, Slug: "minutes"}, {ID: seats, Slug: "seats"}}
	renamed     = []metering.Meter{{ID: storage, Slug: "disk"}, {ID: apiCalls, Slug: "calls"}, {ID: minutes, Slug: "talk"}, {ID: seats, Slug: "people"}}
)

// destinations returns the destinations of the meters' usage.
func (b bundle) destinations(t *testing.T, meters []metering.Meter, mapping map[string]string) []billing.Destination {
	t.Helper()
	side, err := stripe.NewProvider(b.client).Read(t.Context(), credentials, providers.Question{Customer: "cus_1", Meters: meters, Mapping: mapping})
	require.NoError(t, err)
	return side.Destinations
}

// advanceToFinal advances the clock until March's invoice is final.
func (b bundle) advanceToFinal() {
	b.fake.Advance(april.Add(2 * time.Hour).Sub(b.fake.Now()))
}

// newestInvoice returns the newest invoice as the provider reads it. lines holds the meter, quantity and amount of each
// line with a known meter.
func (b bundle) newestInvoice(t *testing.T, q providers.InvoiceQuestion) (in metering.Invoice, lines []string) {
	t.Helper()
	invoices := b.fake.State().Accounts[0].Invoices
	q.ID = invoices[len(invoices)-1].ID
	in, err := stripe.NewProvider(b.client).Invoice(t.Context(), credentials, q)
	require.NoError(t, err)
	for _, l := range in.Lines {
		if l.MeterID != 0 {
			lines = append(lines, fmt.Sprintf("%d %s %s", l.MeterID, l.Quantity, l.Amount))
		}
	}
	slices.Sort(lines)
	return in, lines
}

func TestInvoiceLineIsAssignedToMeterThatItBills(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for method, n := range map[billing.Method]int64{stripe.UsageRecord: 40, stripe.MeterDelta: 7, stripe.MeterWindow: 3, stripe.MeterLast: 5} {
		_, err := b.client.Send(t.Context(), key, report(method, 1, whole(n)))
		require.NoError(t, err)
	}
	mapping := map[string]string{"disk": "price_legacy", "calls": "price_delta", "talk": "price_window", "people": "price_last"}
	today := b.destinations(t, renamed, mapping)
	b.advanceToFinal()
	reported := []billing.Destination{
		{MeterID: storage, Target: "si_legacy_cus_1", Method: stripe.UsageRecord}, {MeterID: apiCalls, Target: "mtr_delta", Method: stripe.MeterDelta},
		{MeterID: minutes, Target: "mtr_window", Method: stripe.MeterWindow}, {MeterID: seats, Target: "mtr_last", Method: stripe.MeterLast},
	}
	all := []string{"1 40 1", "2 7 0.21", "3 3 0.03", "4 5 0.05"}
	for name, c := range map[string]struct {
		question providers.InvoiceQuestion
		want     []string
	}{
		"its item":                         {providers.InvoiceQuestion{Meters: renamed, Destinations: today}, all},
		"its price":                        {providers.InvoiceQuestion{Meters: fourMeters}, all},
		"the tenant's mapping":             {providers.InvoiceQuestion{Meters: renamed, Mapping: mapping}, all},
		"what was reported":                {providers.InvoiceQuestion{Meters: renamed, Destinations: reported}, all},
		"nothing":                          {providers.InvoiceQuestion{Meters: renamed}, nil},
		"two meters' price":                {providers.InvoiceQuestion{Meters: renamed, Mapping: map[string]string{"disk": "price_legacy", "talk": "price_legacy"}}, nil},
		"its item, whatever is mapped now": {providers.InvoiceQuestion{Meters: renamed, Mapping: map[string]string{"talk": "price_legacy"}, Destinations: today}, all},
	} {
		in, lines := b.newestInvoice(t, c.question)
		require.Equal(t, c.want, lines, name)
		require.Len(t, in.Lines, 5, name)
	}
	in, _ := b.newestInvoice(t, providers.InvoiceQuestion{Meters: fourMeters, Destinations: today})
	line := in.Lines[0]
	require.NotEmpty(t, line.ID)
	line.ID, line.Quantity, line.Amount = "", metering.Decimal{}, metering.Decimal{}
	require.Equal(t, metering.InvoiceLine{
		MeterID: storage, Item: "si_legacy_cus_1", Price: "price_legacy", Period: metering.Range{Start: march, End: april},
	}, line)
}

// TestLineOfRemovedItemIsAssignedToItsMeter checks that the line of a removed item is assigned to its meter. The
// item's usage is billed when the period ends.
func TestLineOfRemovedItemIsAssignedToItsMeter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := &contract{T: t, base: b.url, key: key, version: "2023-10-16"}
	require.NoError(t, b.fake.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: key}, Customers: []stripetest.Customer{{ID: "cus_2"}},
		Subscriptions: []stripetest.Subscription{{
			ID: "sub_2", Customer: "cus_2", Start: march.Unix(), End: april.Unix(), BillingMode: "flexible",
			Items: []stripetest.Item{{ID: "si_removed", Price: "price_delta"}, {ID: "si_stays", Price: "price_legacy"}},
		}},
	}))
	r := report(stripe.MeterDelta, 1, whole(12))
	r.Customer = "cus_2"
	_, err := b.client.Send(t.Context(), key, r)
	require.NoError(t, err)
	b.fake.Advance(time.Hour)
	_, err = at.call(http.MethodDelete, "/v1/subscription_items/si_removed")
	require.NoError(t, err)
	b.advanceToFinal()
	_, lines := b.newestInvoice(t, providers.InvoiceQuestion{Meters: fourMeters})
	require.Equal(t, []string{"1 0 0", "2 12 0.36"}, lines)
	_, lines = b.newestInvoice(t, providers.InvoiceQuestion{Meters: renamed, Destinations: []billing.Destination{{MeterID: apiCalls, Target: "mtr_delta", Method: stripe.MeterDelta}}})
	require.Equal(t, []string{"2 12 0.36"}, lines)
}

// TestOnlyOneOfTwoPricesOnStripeMeterIsAssigned checks that only one of two prices on one meter at Stripe is
// assigned to our meter. Both prices bill the same usage; the other one is a fee.
func TestOnlyOneOfTwoPricesOnStripeMeterIsAssigned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.fake.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: key}, Customers: []stripetest.Customer{{ID: "cus_2"}},
		Prices: []stripetest.Price{{ID: "price_fee", Meter: "mtr_delta", UnitAmount: "1"}},
		Subscriptions: []stripetest.Subscription{{
			ID: "sub_2", Customer: "cus_2", Start: march.Unix(), End: april.Unix(),
			Items: []stripetest.Item{{ID: "si_fee", Price: "price_fee"}, {ID: "si_calls", Price: "price_delta"}},
		}},
	}))
	r := report(stripe.MeterDelta, 1, whole(12))
	r.Customer = "cus_2"
	_, err := b.client.Send(t.Context(), key, r)
	require.NoError(t, err)
	b.advanceToFinal()
	_, lines := b.newestInvoice(t, providers.InvoiceQuestion{Meters: fourMeters, Destinations: []billing.Destination{{MeterID: apiCalls, Target: "mtr_delta", Method: stripe.MeterDelta}}})
	require.Equal(t, []string{"2 12 0.36"}, lines)
}

func TestEachTierLineIsAssignedToMeter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.fake.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: key}, Customers: []stripetest.Customer{{ID: "cus_2"}},
		Prices: []stripetest.Price{{ID: "price_tiers", Metadata: map[string]string{"meter_slug": "disk"}, TiersMode: "graduated", Tiers: []stripetest.Tier{
			{UpTo: "10", UnitAmount: "5", FlatAmount: "100"}, {UpTo: "inf", UnitAmount: "2"},
		}}},
		Subscriptions: []stripetest.Subscription{{
			ID: "sub_2", Customer: "cus_2", Start: march.Unix(), End: april.Unix(), Items: []stripetest.Item{{ID: "si_tiers", Price: "price_tiers"}},
		}},
	}))
	r := report(stripe.UsageRecord, 1, whole(25))
	r.Customer, r.ItemID = "cus_2", "si_tiers"
	_, err := b.client.Send(t.Context(), key, r)
	require.NoError(t, err)
	b.advanceToFinal()
	_, lines := b.newestInvoice(t, providers.InvoiceQuestion{Meters: renamed})
	require.Equal(t, []string{"1 0 1", "1 10 0.5", "1 15 0.3"}, lines)
}

func TestInvoiceLineHasReportIDAndProration(t *testing.T) {
	t.Parallel()
	made := uuid.New()
	p := stripe.NewProvider(serve(t, func(w http.ResponseWriter, _ *http.Request) {
		price := `{"id":"price_1","lookup_key":"storage","recurring":{"usage_type":"metered"}}`
		_, _ = io.WriteString(w, fmt.Sprintf(`{"id":"in_1","currency":"usd","total":1,"lines":{"data":[
			{"id":"il_1","amount":5,"metadata":{"odometer_report":%q},"price":%s},
			{"id":"il_2","amount":-7,"quantity":3,"proration":true,"subscription_item":"si_1","price":%s}]}}`, made, price, price))
	}))
	got, err := p.Invoice(t.Context(), credentials, providers.InvoiceQuestion{ID: "in_1", Meters: fourMeters})
	require.NoError(t, err)
	require.Equal(t, &made, got.Lines[0].ReportID)
	require.Zero(t, got.Lines[0].MeterID, "money, no usage")
	require.True(t, got.Lines[1].Proration)
	require.Nil(t, got.Lines[1].ReportID)
	require.Equal(t, storage, got.Lines[1].MeterID)
}

func TestFullyCreditedInvoiceIsReadAsVoid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		invoice string
		void    bool
	}{
		"it is owed":        {`"status":"open","total":5,"pre_payment_credit_notes_amount":0,"post_payment_credit_notes_amount":0`, false},
		"it was voided":     {`"status":"void","total":5`, true},
		"it was given up":   {`"status":"uncollectible","total":5`, false},
		"a part is taken":   {`"status":"open","total":5,"pre_payment_credit_notes_amount":4`, false},
		"all is taken":      {`"status":"paid","total":5,"pre_payment_credit_notes_amount":2,"post_payment_credit_notes_amount":3`, true},
		"there was nothing": {`"status":"paid","total":0`, false},
	} {
		p := stripe.NewProvider(serve(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"id":"in_1","currency":"usd","lines":{"data":[]},`+c.invoice+`}`)
		}))
		got, err := p.Invoice(t.Context(), credentials, providers.InvoiceQuestion{ID: "in_1"})
		require.NoError(t, err, name)
		require.Equal(t, c.void, got.Void, name)
	}
}

// TestImmediateCancellationInvoiceIsReadAsRenewal checks that the last invoice of a subscription
// that is canceled at once is treated as the renewal of its period, because no renewal follows. The invoice
// of any other change is not.
func TestImmediateCancellationInvoiceIsReadAsRenewal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, path string
		form         []string
		last         bool
	}{
		"Canceled": {http.MethodDelete, "/v1/subscriptions/sub_cus_1", []string{"invoice_now", "true"}, true},
		"Changed":  {http.MethodPost, "/v1/subscriptions/sub_cus_1", []string{"billing_cycle_anchor", "now"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			at := &contract{T: t, base: b.url, key: key, version: "2023-10-16"}
			_, err := at.call(c.method, c.path, c.form...)
			require.NoError(t, err)
			for _, status := range []string{"draft", "open"} {
				in, _ := b.newestInvoice(t, providers.InvoiceQuestion{Meters: fourMeters})
				require.Equal(t, status, in.Status)
				require.Equal(t, c.last, in.Renewal)
				b.fake.Advance(2 * time.Hour)
			}
		})
	}
}
