package stripetest_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

// charge creates an invoice item, by default for the next invoice of sub_1. more contains names and values
// that replace or extend the parameters.
func (b bundle) charge(amount, idempotencyKey string, more ...string) reply {
	b.t.Helper()
	form := url.Values{
		"customer": {"cus_1"}, "subscription": {"sub_1"}, "currency": {"usd"}, "amount": {amount}, "description": {"Late usage"},
		"period[start]": {fmt.Sprint(march.AddDate(0, -1, 0).Unix())}, "period[end]": {fmt.Sprint(march.Unix())}, "metadata[odometer_report]": {"report_1"},
	}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return b.call("POST", "/v1/invoiceitems", form.Encode(), idempotencyKey)
}

func TestInvoiceItemsFollowStripesRules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.charge("250", "k")
	require.Equal(t, 200, made.status, made.message())
	require.Equal(t, map[string]any{"odometer_report": "report_1"}, made.body["metadata"])
	require.Nil(t, made.body["invoice"])
	require.Equal(t, "true", b.charge("250", "k").header.Get("Idempotent-Replayed"))
	require.Equal(t, 200, b.charge("-50", "").status)
	require.Equal(t, 200, b.charge("9", "", "subscription", "sub_2").status)

	for name, c := range map[string]struct {
		got     reply
		message string
	}{
		"another currency":      {b.charge("1", "", "currency", "eur"), "You cannot combine currencies on a single customer."},
		"a fraction":            {b.charge("1.5", ""), ""},
		"no such customer":      {b.charge("1", "", "customer", "cus_9"), "No such customer: 'cus_9'"},
		"no such subscription":  {b.charge("1", "", "subscription", "sub_9"), "Customer cus_1 does not have a subscription with ID sub_9"},
		"a period turned round": {b.charge("1", "", "period[end]", "1"), "greater than or equal to its start"},
		"a foreign parameter":   {b.charge("1", "", "identifier", "x"), "stripe-mock answers 400"},
	} {
		require.Equal(t, 400, c.got.status, name)
		require.Contains(t, c.got.message(), c.message, name)
	}
	pending := b.State().Accounts[0].Pending
	require.Len(t, pending, 3)
	require.Equal(t, "250", pending[0].Amount.String())
	require.Equal(t, "report_1", pending[0].Metadata["odometer_report"])
}

func TestDraftInvoiceIncludesPendingInvoiceItems(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, 200, b.charge("250", "").status)
	require.Equal(t, 200, b.charge("-50", "").status)
	require.Equal(t, 200, b.charge("9", "", "subscription", "sub_2").status)
	b.Advance(april.Sub(noon))
	require.Equal(t, 200, b.charge("1000", "").status, "waits for April's")

	invoices := b.State().Accounts[0].Invoices
	require.Equal(t, "200", b.Total(invoices[0].ID).String())
	require.Equal(t, "9", b.Total(invoices[1].ID).String())
	b.Advance(time.Hour)
	require.Equal(t, "200", b.Total(invoices[0].ID).String(), "finalized as it was drafted")

	lines := b.call("GET", "/v1/invoices/"+invoices[0].ID+"/lines?limit=100", "", "").body["data"].([]any)
	late := lines[len(lines)-2].(map[string]any)
	require.Equal(t, "invoiceitem", late["type"])
	require.EqualValues(t, 250, late["amount"])
	require.Equal(t, "usd", late["currency"])
	require.Equal(t, false, late["proration"])
	require.Equal(t, map[string]any{"odometer_report": "report_1"}, late["metadata"])

	b.Advance(30 * 24 * time.Hour)
	require.Equal(t, "1000", b.Total(b.State().Accounts[0].Invoices[2].ID).String())
}

func TestInvoiceIncludesAtMost250InvoiceItems(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 251 {
		require.Equal(t, 200, b.charge("1", "").status)
	}
	b.Advance(april.Sub(noon))
	require.Equal(t, "250", b.Total(b.State().Accounts[0].Invoices[0].ID).String())
	require.Len(t, b.State().Accounts[0].Pending, 1)
}

func TestInvoiceItemsAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := func(query string) (ids []string) {
		answered := b.call("GET", "/v1/invoiceitems?"+query, "", "")
		require.Equal(t, 200, answered.status, answered.message())
		for _, i := range answered.body["data"].([]any) {
			ids = append(ids, i.(map[string]any)["id"].(string))
		}
		return ids
	}
	var made []string
	for range 3 {
		made = append(made, b.charge("1", "").body["id"].(string))
		b.Advance(time.Minute)
	}
	require.Equal(t, []string{made[2], made[1], made[0]}, ids("customer=cus_1"))
	require.Equal(t, []string{made[1], made[0]}, ids("customer=cus_1&starting_after="+made[2]))
	require.Equal(t, []string{made[2]}, ids(fmt.Sprintf("customer=cus_1&created[gte]=%d", noon.Add(2*time.Minute).Unix())))
	require.Len(t, ids("pending=true"), 3)
	b.Advance(april.Sub(noon))
	require.Empty(t, ids("pending=true"))
	require.Len(t, ids("customer=cus_1&invoice="+b.State().Accounts[0].Invoices[0].ID), 3)
	require.Equal(t, 400, b.call("GET", "/v1/invoiceitems?customer=cus_9", "", "").status)
}

func TestSimulatedFailuresApplyToInvoiceItems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		behaviour stripetest.Behaviour
		pending   int // after the call and its retry
	}{
		"503, then taken":           {stripetest.Behaviour{Status: 503}, 1},
		"a 500 that is saved":       {stripetest.Behaviour{Status: 500, Mode: stripetest.Saved}, 0},
		"taken, then a saved 500":   {stripetest.Behaviour{Status: 500, Mode: stripetest.Saved, Done: true}, 1},
		"429":                       {stripetest.Behaviour{Status: 429, RetryAfter: 1}, 1},
		"lock timeout, after a bit": {stripetest.Behaviour{Mode: stripetest.LockTimeout, DelayMS: 1}, 1},
	} {
		b := setup(t)
		c.behaviour.Times = 1
		b.Behave(c.behaviour)
		require.GreaterOrEqual(t, b.charge("5", "k").status, 400, name)
		b.charge("5", "k")
		require.Len(t, b.State().Accounts[0].Pending, c.pending, name)
	}
}

func TestInvoiceCreatedByCallFollowsStripesRules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	invoice := func(more string) reply {
		return b.call("POST", "/v1/invoices", "customer=cus_1&auto_advance=false"+more, "")
	}
	for more, message := range map[string]string{
		"&collection_method=send_invoice":                          "you must pass days_until_due",
		"&days_until_due=3":                                        "if collection_method is send_invoice",
		"&collection_method=charge_automatically&days_until_due=3": "if collection_method is send_invoice",
		"&collection_method=send_invoice&days_until_due=-1":        "Invalid integer",
	} {
		refused := invoice(more)
		require.Equal(t, 400, refused.status, more)
		require.Contains(t, refused.message(), message, more)
	}
	made := invoice("&currency=usd&collection_method=send_invoice&days_until_due=3")
	require.Equal(t, 200, made.status, made.message())
	require.Equal(t, []any{"draft", "usd", "send_invoice", false}, []any{made.body["status"], made.body["currency"], made.body["collection_method"], made.body["auto_advance"]})
	id := made.body["id"].(string)
	on := []string{"subscription", "", "invoice", id}
	require.Equal(t, 200, b.charge("250", "", on...).status)
	b.Advance(30 * 24 * time.Hour)
	draft := b.call("GET", "/v1/invoices/"+id, "", "")
	require.Equal(t, []any{"draft", "250"}, []any{draft.body["status"], fmt.Sprint(draft.body["total"])}, "nothing finalizes it by itself")

	final := b.call("POST", "/v1/invoices/"+id+"/finalize", "auto_advance=true", "")
	require.Equal(t, []any{"open", true}, []any{final.body["status"], final.body["auto_advance"]})
	require.Equal(t, 400, b.charge("1", "", on...).status, "it is no draft any more")
	require.Equal(t, 400, b.call("POST", "/v1/invoices/"+id+"/finalize", "", "").status)
}

func TestInvoiceRefusesItemInOtherCurrency(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.call("POST", "/v1/invoices", "customer=cus_1&currency=eur", "")
	refused := b.charge("1", "", "subscription", "", "invoice", made.body["id"].(string))
	require.Equal(t, 400, refused.status)
	require.Contains(t, refused.message(), "must be that of the invoice, eur")
}
