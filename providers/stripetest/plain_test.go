package stripetest_test

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

// plain returns a fake with one subscription, at noon on 10 March. cus_1 pays 2.5 cents per call in sub_1, for the
// whole of March. price_better is 2 cents per call. Each change edits the seed.
func plain(t *testing.T, change ...func(*stripetest.Seed)) bundle {
	t.Helper()
	validate, err := validator()
	require.NoError(t, err)
	fake := stripetest.New(stripetest.Options{Now: func() time.Time { return noon }, Validate: validate})
	require.NoError(t, fake.Resume(&bytes.Buffer{}))
	in := stripetest.Seed{
		Account:   stripetest.Account{ID: "acct_1", Key: key},
		Customers: []stripetest.Customer{{ID: "cus_1", Email: "a@example.com"}},
		Meters:    []stripetest.Meter{{ID: "calls"}},
		Prices: []stripetest.Price{
			{ID: "price_calls", Meter: "calls", UnitAmount: "2.5"}, {ID: "price_better", Meter: "calls", UnitAmount: "2"},
		},
		Subscriptions: []stripetest.Subscription{{
			ID: "sub_1", Customer: "cus_1", Start: march.Unix(), End: april.Unix(), Items: []stripetest.Item{{ID: "si_1", Price: "price_calls"}},
		}},
	}
	for _, c := range change {
		c(&in)
	}
	require.NoError(t, fake.Seed(&in))
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	return bundle{fake, t, server.URL}
}

// reportCalls reports a number of calls at an instant.
func (b bundle) reportCalls(calls int, at time.Time) {
	b.t.Helper()
	require.Equal(b.t, 200, b.event("calls", fmt.Sprint(calls), at, "").status)
}

// advanceTo moves the clock to an instant.
func (b bundle) advanceTo(at time.Time) { b.Advance(at.Sub(b.Now())) }

// read returns an object or a list.
func (b bundle) read(path string) map[string]any {
	b.t.Helper()
	answered := b.call("GET", path, "", "")
	require.Equal(b.t, 200, answered.status, answered.message())
	return answered.body
}

// firstPage returns the objects on the first page of a list.
func (b bundle) firstPage(path string) (all []map[string]any) {
	b.t.Helper()
	for _, o := range b.read(path)["data"].([]any) {
		all = append(all, o.(map[string]any))
	}
	return all
}

// fields returns the named fields of each object as text.
func fields(all []map[string]any, names ...string) (texts []string) {
	for _, o := range all {
		var values []string
		for _, name := range names {
			values = append(values, fmt.Sprint(o[name]))
		}
		texts = append(texts, strings.Join(values, " "))
	}
	return texts
}

// invoices returns the reason, status and total of the invoices of sub_1, oldest first.
func (b bundle) invoices() (texts []string) {
	b.t.Helper()
	all := b.firstPage("/v1/invoices?subscription=sub_1&limit=100")
	for n := range all {
		texts = append(texts, fields(all[len(all)-1-n:len(all)-n], "billing_reason", "status", "total")...)
	}
	return texts
}

// newestInvoice returns the latest invoice of sub_1.
func (b bundle) newestInvoice() map[string]any {
	b.t.Helper()
	return b.firstPage("/v1/invoices?subscription=sub_1&limit=1")[0]
}

// lines returns the quantity and the amount of each line of an invoice.
func (b bundle) lines(invoice any) []string {
	b.t.Helper()
	return fields(b.firstPage(fmt.Sprintf("/v1/invoices/%s/lines?limit=100", invoice)), "quantity", "amount")
}

// mustPost posts alternating names and values, and returns the body of the response, which must be successful.
func (b bundle) mustPost(path string, form ...string) map[string]any {
	b.t.Helper()
	answered := b.post(path, form...)
	require.Equal(b.t, 200, answered.status, answered.message())
	return answered.body
}

// postModern posts with a newer API version. This version has parameters that the document of stripe-mock lacks.
func (b bundle) postModern(path string, form ...string) reply {
	b.t.Helper()
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	return b.callIn("2025-09-30.clover", key, "POST", path, values.Encode(), "")
}
