package stripetest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

// withFinalInvoice returns a fake with a final invoice of 250 cents, and the path of the invoice.
func withFinalInvoice(t *testing.T) (b bundle, path string) {
	t.Helper()
	b = plain(t)
	b.reportCalls(100, noon)
	b.advanceTo(april.Add(time.Hour))
	return b, "/v1/invoices/" + b.newestInvoice()["id"].(string)
}

func TestFinalInvoiceCanBePaidVoidedOrMarkedUncollectible(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		calls   []string
		status  string
		refused string // a further call, which is refused
	}{
		{[]string{"pay"}, "paid", "void"},
		{[]string{"void"}, "void", "pay"},
		{[]string{"mark_uncollectible"}, "uncollectible", "mark_uncollectible"},
		{[]string{"mark_uncollectible", "pay"}, "paid", "void"},
		{[]string{"mark_uncollectible", "void"}, "void", "void"},
	} {
		b, path := withFinalInvoice(t)
		for _, call := range c.calls {
			b.mustPost(path + "/" + call)
		}
		in := b.read(path)
		require.Equal(t, []any{c.status, false, 250.0}, []any{in["status"], in["auto_advance"], in["total"]}, c.calls)
		require.Equal(t, 400, b.post(path+"/"+c.refused).status, c.calls)
	}
	b := plain(t)
	b.advanceTo(april)
	require.Equal(t, 400, b.post("/v1/invoices/"+b.newestInvoice()["id"].(string)+"/void").status, "a draft")
	b2, path := withFinalInvoice(t)
	b2.mustPost(path + "/void")
	require.Len(t, b2.Happened("acct_1", "invoice.voided"), 1)
	require.EqualValues(t, april.Add(time.Hour).Unix(), b2.read(path)["status_transitions"].(map[string]any)["voided_at"])
}

func TestCreditNoteCreditsPartOfInvoice(t *testing.T) {
	t.Parallel()
	b, path := withFinalInvoice(t)
	id := b.read(path)["id"].(string)
	line := b.firstPage(path + "/lines")[0]["id"].(string)
	credit := b.mustPost("/v1/credit_notes", "invoice", id, "reason", "order_change", "memo", "too many",
		"lines[0][type]", "invoice_line_item", "lines[0][invoice_line_item]", line, "lines[0][amount]", "50")
	require.Equal(t, []any{50.0, "issued", "pre_payment"}, []any{credit["amount"], credit["status"], credit["type"]})
	require.Equal(t, line, credit["lines"].(map[string]any)["data"].([]any)[0].(map[string]any)["invoice_line_item"])
	in := b.read(path)
	require.Equal(t, []any{250.0, 200.0, 50.0}, []any{in["total"], in["amount_remaining"], in["pre_payment_credit_notes_amount"]})

	second := b.mustPost("/v1/credit_notes", "invoice", id, "amount", "100")["id"].(string)
	require.Equal(t, []string{second, credit["id"].(string)}, fields(b.firstPage("/v1/credit_notes?invoice="+id), "id"))
	require.Equal(t, "void", b.mustPost("/v1/credit_notes/" + second + "/void")["status"])
	require.Equal(t, "void", b.read("/v1/credit_notes/" + second)["status"])
	require.EqualValues(t, 200, b.read(path)["amount_remaining"])
	require.Contains(t, b.post("/v1/credit_notes", "invoice", id, "amount", "201").message(), "above what can be credited")

	b.mustPost("/v1/credit_notes", "invoice", id, "amount", "200")
	require.Equal(t, "paid", b.read(path)["status"], "nothing remains")
	require.Equal(t, 400, b.post("/v1/credit_notes/"+second+"/void").status)
	require.Len(t, b.Happened("acct_1", "credit_note.*"), 4)
}

func TestCreditNoteOfPaidInvoiceNeedsDestination(t *testing.T) {
	t.Parallel()
	b, path := withFinalInvoice(t)
	id := b.mustPost(path + "/pay")["id"].(string)
	require.Contains(t, b.post("/v1/credit_notes", "invoice", id, "amount", "50").message(), "where its amount goes")
	require.Equal(t, "post_payment", b.mustPost("/v1/credit_notes", "invoice", id, "amount", "50", "credit_amount", "50")["type"])
	in := b.read(path)
	require.Equal(t, []any{"paid", 250.0, 50.0}, []any{in["status"], in["amount_paid"], in["post_payment_credit_notes_amount"]})
}

func TestInvalidCreditNoteIsRefused(t *testing.T) {
	t.Parallel()
	b, path := withFinalInvoice(t)
	id := b.read(path)["id"].(string)
	for name, form := range map[string][]string{
		"no such invoice": {"invoice", "in_9", "amount", "1"},
		"nothing":         {"invoice", id},
		"less":            {"invoice", id, "amount", "-1"},
		"no such line":    {"invoice", id, "lines[0][type]", "invoice_line_item", "lines[0][invoice_line_item]", "il_9", "lines[0][amount]", "1"},
	} {
		require.Equal(t, 400, b.post("/v1/credit_notes", form...).status, name)
	}
	b.mustPost(path + "/void")
	require.Equal(t, 400, b.post("/v1/credit_notes", "invoice", id, "amount", "1").status)
	require.Equal(t, 404, b.call("GET", "/v1/credit_notes/cn_9", "", "").status)
}

// TestInvoiceItemCanBeChangedUntilInvoiceIsFinal checks that an invoice item can be changed any number of times
// while it is pending or on a draft. On a final invoice, the item cannot be changed.
func TestInvoiceItemCanBeChangedUntilInvoiceIsFinal(t *testing.T) {
	t.Parallel()
	b := plain(t)
	item := b.charge("100", "").body["id"].(string)
	path := "/v1/invoiceitems/" + item
	b.mustPost(path, "amount", "180", "description", "Calls", "metadata[revision]", "2")
	require.Equal(t, []any{180.0, "Calls", map[string]any{"odometer_report": "report_1", "revision": "2"}},
		[]any{b.read(path)["amount"], b.read(path)["description"], b.read(path)["metadata"]})
	b.advanceTo(april)
	invoice := b.newestInvoice()["id"].(string)
	require.Equal(t, invoice, b.read(path)["invoice"])
	b.mustPost(path, "amount", "190")
	require.EqualValues(t, 190, b.newestInvoice()["total"])
	b.advanceTo(april.Add(time.Hour))
	got := b.post(path, "amount", "200")
	require.Equal(t, 400, got.status)
	require.Contains(t, got.message(), "can no longer be changed because its invoice "+invoice)
	require.Equal(t, 400, b.call("DELETE", path, "", "").status)
	require.EqualValues(t, 190, b.newestInvoice()["total"])
	require.Equal(t, 400, b.charge("5", "", "invoice", invoice).status)

	pending := b.charge("7", "").body["id"].(string)
	require.Equal(t, 400, b.post("/v1/invoiceitems/"+pending, "period[start]", "5", "period[end]", "4").status)
	require.Equal(t, true, b.call("DELETE", "/v1/invoiceitems/"+pending, "", "").body["deleted"])
	require.Equal(t, 404, b.post("/v1/invoiceitems/"+pending, "amount", "8").status)
}

func TestDraftAcceptsAtMost250InvoiceItems(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.advanceTo(april)
	invoice := b.newestInvoice()["id"].(string)
	for range 250 {
		require.Equal(t, 200, b.charge("1", "", "invoice", invoice).status)
	}
	require.Contains(t, b.charge("1", "", "invoice", invoice).message(), "at most 250")
	require.EqualValues(t, 250, b.newestInvoice()["total"])
	require.Equal(t, 400, b.charge("1", "", "invoice", "in_9").status)
}

// TestUsageOlderThan35DaysIsRefused checks that usage is refused more than 35 days after it happened,
// even if its invoice is still a draft.
func TestUsageOlderThan35DaysIsRefused(t *testing.T) {
	t.Parallel()
	b := plain(t, func(in *stripetest.Seed) { in.Subscriptions[0].CancelAtPeriodEnd = true })
	b.advanceTo(april)
	b.mustPost("/v1/invoices/"+b.newestInvoice()["id"].(string), "auto_advance", "false")
	b.advanceTo(noon.AddDate(0, 0, 35))
	b.reportCalls(10, noon)
	b.Advance(time.Second)
	require.Contains(t, b.event("calls", "10", noon, "").message(), "more than 35 days in past")
	require.EqualValues(t, 25, b.mustPost("/v1/invoices/" + b.newestInvoice()["id"].(string) + "/finalize")["total"])
}

// TestInvoiceCanBeCreatedWithoutSubscription checks that a call can create an invoice for a customer without a
// subscription.
func TestInvoiceCanBeCreatedWithoutSubscription(t *testing.T) {
	t.Parallel()
	b := plain(t, func(in *stripetest.Seed) { in.Subscriptions = nil })
	require.Equal(t, 200, b.call("POST", "/v1/invoiceitems", "customer=cus_1&currency=usd&amount=70", "").status)
	empty := b.mustPost("/v1/invoices", "customer", "cus_1")
	require.Equal(t, []any{"manual", "draft", 0.0, false}, []any{empty["billing_reason"], empty["status"], empty["total"], empty["auto_advance"]})
	in := b.mustPost("/v1/invoices", "customer", "cus_1", "pending_invoice_items_behavior", "include", "auto_advance", "true",
		"collection_method", "send_invoice", "days_until_due", "14", "metadata[report]", "r_1")
	require.Equal(t, []any{70.0, map[string]any{"report": "r_1"}}, []any{in["total"], in["metadata"]})
	b.Advance(time.Hour)
	require.Equal(t, []string{"open 70", "draft 0"}, fields(b.firstPage("/v1/invoices?customer=cus_1"), "status", "total"))
	require.Equal(t, 400, b.post("/v1/invoices", "customer", "cus_9").status)
	require.Equal(t, 400, b.post("/v1/invoices", "customer", "cus_1", "subscription", "sub_1").status)
}
