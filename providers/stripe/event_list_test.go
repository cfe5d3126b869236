package stripe_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// asAccount holds the credentials of the fake's account.
var asAccount = providers.Credentials{Account: "acct_1", Secret: key}

// post sends a POST request to the fake, and requires success.
func (b bundle) post(t *testing.T, path, form string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+path, strings.NewReader(form))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	require.Equal(t, http.StatusOK, answer.StatusCode, "%s", text)
}

// listed returns all events since an instant, newest first, and their number of pages.
func (b bundle) listed(t *testing.T, since time.Time) (all []metering.ProviderEvent, pages int) {
	t.Helper()
	p := stripe.NewProvider(b.client)
	for after := ""; ; pages++ {
		page, err := p.ListEvents(t.Context(), asAccount, providers.EventQuestion{Since: since, After: after})
		require.NoError(t, err)
		all, after = append(all, page.Events...), page.Last
		if !page.More {
			return all, pages + 1
		}
	}
}

// TestListedEventEqualsDeliveredEvent checks that each listed event equals the delivered event, and that
// events of unused types are not listed.
func TestListedEventEqualsDeliveredEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := stripe.NewProvider(b.client)
	b.post(t, "/v1/invoiceitems", "customer=cus_1&amount=100&currency=usd")
	b.fake.Advance(april.Sub(noon))
	b.fake.Advance(time.Hour)
	final := b.fake.State().Accounts[0].Invoices[0].ID
	b.post(t, "/v1/credit_notes", "invoice="+final+"&amount=1")
	b.post(t, "/v1/invoices/"+final+"/mark_uncollectible", "")
	b.post(t, "/v1/invoices/"+final+"/void", "")
	b.post(t, "/v1/invoices/"+final, "metadata[seen]=yes") // creates an event of a type that is not used

	all, pages := b.listed(t, march)
	require.Equal(t, 1, pages)
	kinds := []string{
		stripe.InvoiceVoided, stripe.InvoiceUncollectible, stripe.CreditNoteCreated, stripe.InvoiceFinalized, stripe.SubscriptionUpdated, stripe.InvoiceCreated,
	}
	require.Len(t, all, len(kinds))
	for n, event := range all {
		require.Equal(t, kinds[n], event.Kind)
		require.Equal(t, "cus_1", event.Customer)
		object := final
		if event.Kind == stripe.SubscriptionUpdated {
			object = "sub_cus_1"
		}
		require.Equal(t, object, event.ObjectID, event.Kind)
		payload, header, err := b.fake.Event(&stripetest.Webhook{Event: event.EventID})
		require.NoError(t, err)
		delivered, ours, err := p.Verify(asAccount, providers.Notice{Body: payload, Signature: header, Secret: webhookSecret, Now: b.fake.Now()})
		require.NoError(t, err)
		require.True(t, ours)
		require.Equal(t, delivered, event)
	}
	since, _ := b.listed(t, all[2].MadeAt)
	require.Equal(t, all[:4], since, "made then or later")
	b.fake.Advance(31 * 24 * time.Hour)
	forgotten, err := p.ListEvents(t.Context(), asAccount, providers.EventQuestion{Since: march, After: all[5].EventID})
	require.NoError(t, err)
	require.Empty(t, forgotten)
}

func TestListEventsReadsAllPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 130 {
		b.post(t, "/v1/subscriptions/sub_cus_1", fmt.Sprintf("cancel_at_period_end=%t", i%2 == 0))
	}
	all, pages := b.listed(t, march)
	require.Len(t, all, 130)
	require.Equal(t, 3, pages)
}

func TestListEventsSkipsUnreadableEvents(t *testing.T) {
	t.Parallel()
	p := stripe.NewProvider(serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"id":"evt_1","type":"invoice.voided","data":{"object":{"id":"in_1","customer":"cus_1"}}},
			{"id":"evt_2","type":"invoice.voided","data":{"object":[]}},{"id":"evt_3","type":"credit_note.created","data":{"object":{"id":"cn_1"}}}],"has_more":true}`)
	}))
	page, err := p.ListEvents(t.Context(), asAccount, providers.EventQuestion{})
	require.NoError(t, err)
	require.Len(t, page.Events, 1)
	require.Equal(t, []any{"evt_1", "evt_3", true}, []any{page.Events[0].EventID, page.Last, page.More})
}

func TestListEventsErrorNamesMissingPermission(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: "rk_test_canary", Permissions: enough[:5]}}))
	_, err := stripe.NewProvider(b.client).ListEvents(t.Context(), providers.Credentials{Account: "acct_1", Secret: "rk_test_canary"}, providers.EventQuestion{Since: march})
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
	require.ErrorContains(t, err, "lacks a permission at Stripe (rak_event_read)")
	requireSafe(t, err)
}
