package stripetest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
	"github.com/odometer-metering/odometer/providers/stripetest/openapi"
)

const (
	key   = "sk_test_1"
	older = "2023-10-16" // API version with validated responses
)

var (
	march = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	april = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	noon  = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
)

var (
	validator = sync.OnceValues(openapi.Validator)
	answers   = sync.OnceValues(openapi.Answers)
)

// bundle is a served fake.
type bundle struct {
	*stripetest.Fake
	t   *testing.T
	url string
}

// setup returns a fake with two subscriptions of cus_1 for the whole of March. cus_1 pays 2.5 cents per unit of
// a legacy price and of meters of all kinds.
func setup(t *testing.T) bundle { return setupWith(t, &bytes.Buffer{}) }

// setupWith returns the fake of setup, resumed from a journal.
func setupWith(t *testing.T, journal io.ReadWriter) bundle {
	t.Helper()
	validate, err := validator()
	require.NoError(t, err)
	fake := stripetest.New(stripetest.Options{Now: func() time.Time { return noon }, Validate: validate})
	require.NoError(t, fake.Resume(journal))
	in := stripetest.Seed{
		Account:   stripetest.Account{ID: "acct_1", Key: key},
		Customers: []stripetest.Customer{{ID: "cus_1"}},
		Meters: []stripetest.Meter{
			{ID: "sum"}, {ID: "count", Formula: "count"}, {ID: "last", Formula: "last"},
			{ID: "hour", EventTimeWindow: "hour"}, {ID: "day", EventTimeWindow: "day"}, {ID: "off", Status: "inactive"},
		},
		Subscriptions: []stripetest.Subscription{
			{ID: "sub_1", Customer: "cus_1", Start: march.Unix(), End: april.Unix()},
			{ID: "sub_2", Customer: "cus_1", Start: march.Unix(), End: april.Unix(), BillingThresholds: true},
		},
	}
	for _, meter := range []string{"", "sum", "count", "last", "hour", "day"} {
		in.Prices = append(in.Prices, stripetest.Price{ID: "price_" + meter, Meter: meter, UnitAmount: "2.5"})
		in.Subscriptions[0].Items = append(in.Subscriptions[0].Items, stripetest.Item{ID: "si_" + meter, Price: "price_" + meter})
	}
	in.Subscriptions[1].Items = []stripetest.Item{{ID: "si_thresholds", Price: "price_"}}
	require.NoError(t, fake.Seed(&in))
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	return bundle{fake, t, server.URL}
}

// reply is a decoded response.
type reply struct {
	status int
	header http.Header
	body   map[string]any
}

// message returns the message of Stripe's error.
func (r reply) message() string {
	problem, _ := r.body["error"].(map[string]any)
	return fmt.Sprint(problem["message"])
}

// call sends a form, which is empty for a GET call. It sends no Idempotency-Key header if idempotencyKey is
// empty.
func (b bundle) call(method, path, form, idempotencyKey string) reply {
	b.t.Helper()
	return b.callAs(key, method, path, form, idempotencyKey)
}

// callAs makes a call with another key.
func (b bundle) callAs(key, method, path, form, idempotencyKey string) reply {
	b.t.Helper()
	return b.callIn(older, key, method, path, form, idempotencyKey)
}

// callIn makes a call in an API version. In the version older, it validates the body of a successful response.
func (b bundle) callIn(version, key, method, path, form, idempotencyKey string) reply {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(form))
	require.NoError(b.t, err)
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Stripe-Version", version)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if idempotencyKey != "" {
		request.Header.Set("Idempotency-Key", idempotencyKey)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(b.t, err)
	defer response.Body.Close()
	r := reply{response.StatusCode, response.Header, nil}
	require.NoError(b.t, json.NewDecoder(response.Body).Decode(&r.body))
	if version == older && r.status == http.StatusOK && r.body != nil && strings.HasPrefix(path, "/v1/") {
		check, err := answers()
		require.NoError(b.t, err)
		require.NoError(b.t, check(r.body), "%s %s: not an answer of Stripe's", method, path)
	}
	return r
}

// record sets or increments the usage record of an item.
func (b bundle) record(item, action string, quantity int, at time.Time) reply {
	b.t.Helper()
	return b.call("POST", "/v1/subscription_items/"+item+"/usage_records",
		fmt.Sprintf("action=%s&quantity=%d&timestamp=%d", action, quantity, at.Unix()), "")
}

// event sends a meter event of cus_1.
func (b bundle) event(meter, value string, at time.Time, identifier string) reply {
	b.t.Helper()
	form := url.Values{"event_name": {meter}, "payload[stripe_customer_id]": {"cus_1"}, "payload[value]": {value}}
	if !at.IsZero() {
		form.Set("timestamp", fmt.Sprint(at.Unix()))
	}
	if identifier != "" {
		form.Set("identifier", identifier)
	}
	return b.call("POST", "/v1/billing/meter_events", form.Encode(), "")
}

// requireQuantity checks the usage of an item in its current period.
func (b bundle) requireQuantity(want, item string) {
	b.t.Helper()
	require.Equal(b.t, want, b.Quantity(item).String(), item)
}

// control posts JSON to the fake's control interface.
func (b bundle) control(path string, body any, into any) int {
	b.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(b.t, err)
	response, err := http.Post(b.url+path, "application/json", bytes.NewReader(text))
	require.NoError(b.t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	if into != nil {
		require.NoError(b.t, json.Unmarshal(answer, into), string(answer))
	}
	return response.StatusCode
}

func TestMeterFormulasAndWindowsAggregateLikeStripe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := func(day, hour int) time.Time { return march.Add(time.Duration(24*(day-1)+hour) * time.Hour) }
	for n, e := range []struct {
		at    time.Time
		value string
	}{{at(2, 1), "10"}, {at(2, 1).Add(59 * time.Minute), "4"}, {at(2, 2), "6"}, {at(3, 0), "1"}, {at(1, 5), "8"}} {
		for _, meter := range []string{"sum", "count", "last", "hour", "day"} {
			require.Equal(t, 200, b.event(meter, e.value, e.at, fmt.Sprint(meter, n)).status)
		}
	}
	b.requireQuantity("29", "si_sum")
	b.requireQuantity("5", "si_count")
	b.requireQuantity("1", "si_last")  // the event with the latest timestamp
	b.requireQuantity("19", "si_hour") // 4 + 6 + 1 + 8
	b.requireQuantity("15", "si_day")  // 8 + 6 + 1

	windows := b.State().Accounts[0].Customers[0].Items[5].Windows
	require.Len(t, windows, 3)
	require.Equal(t, at(2, 0), windows[0].Start)
	require.Equal(t, "6", windows[0].Value.String())
}

func TestWindowCutByPeriodEndIsBilledInNextPeriod(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cut := time.Date(2026, 3, 20, 9, 30, 0, 0, time.UTC)
	require.NoError(t, b.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: key},
		Subscriptions: []stripetest.Subscription{{ID: "sub_3", Customer: "cus_1", Start: march.Unix(), End: cut.Unix(),
			Items: []stripetest.Item{{ID: "si_cut", Price: "price_hour"}}}},
	}))
	b.Advance(cut.Sub(noon) - time.Minute)
	require.Equal(t, 200, b.event("hour", "3", cut.Add(-31*time.Minute), "a").status)
	require.Equal(t, 200, b.event("hour", "4", cut.Add(-10*time.Minute), "b").status)
	b.requireQuantity("3", "si_cut")
	b.Advance(time.Minute)
	b.requireQuantity("4", "si_cut")
}

func TestPeriodIsInvoicedOnceOneHourAfterItsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, 200, b.record("si_", "set", 41, march.Add(time.Second)).status)
	require.Equal(t, 200, b.event("sum", "10", noon, "1").status)
	b.Advance(april.Sub(noon) - time.Second)
	require.Empty(t, b.State().Accounts[0].Invoices)

	b.Advance(time.Second)
	draft := b.State().Accounts[0].Invoices[0]
	require.Equal(t, "draft", draft.Status)
	require.Equal(t, 400, b.record("si_", "set", 50, march.Add(time.Second)).status, "legacy usage has no grace")
	require.Equal(t, 200, b.event("sum", "-3", noon, "2").status)
	require.Equal(t, 200, b.event("sum", "100", april, "3").status)
	b.requireQuantity("100", "si_sum")

	b.Advance(time.Hour)
	require.Equal(t, 200, b.event("sum", "9", noon, "4").status, "taken, and paid by nobody")
	b.Advance(24 * time.Hour)
	invoices := b.State().Accounts[0].Invoices
	require.Len(t, invoices, 2, "one for each subscription")
	final := invoices[0]
	require.Equal(t, draft.ID, final.ID)
	require.Equal(t, "open", final.Status)
	require.Equal(t, "121", final.Total.String()) // 41 × 2.5 = 102.5, up; 7 × 2.5 = 17.5, up
	require.Equal(t, "103", final.Lines[0].Amount.String())
	require.Equal(t, "7", final.Lines[1].Quantity.String())
	require.Equal(t, "18", final.Lines[1].Amount.String())
	require.Equal(t, "9", final.Lines[1].Late.String())
	require.True(t, final.Lines[0].Late.IsZero())

	answered := b.call("GET", "/v1/invoices?customer=cus_1&status=open&subscription=sub_1", "", "")
	require.Equal(t, final.ID, answered.body["data"].([]any)[0].(map[string]any)["id"])
}

func TestPeriodsKeepTheirDayThroughShortMonths(t *testing.T) {
	t.Parallel()
	b := setup(t)
	start, end := time.Date(2026, 2, 28, 7, 0, 0, 0, time.UTC), time.Date(2026, 3, 31, 7, 0, 0, 0, time.UTC)
	require.NoError(t, b.Seed(&stripetest.Seed{
		Account:       stripetest.Account{ID: "acct_1", Key: key},
		Subscriptions: []stripetest.Subscription{{ID: "sub_3", Customer: "cus_1", Start: start.Unix(), End: end.Unix()}},
	}))
	b.Advance(100 * 24 * time.Hour)
	var ends []string
	for _, in := range b.State().Accounts[0].Invoices {
		if in.Subscription == "sub_3" {
			ends = append(ends, in.PeriodEnd.Format("01-02 15:04"))
		}
	}
	require.Equal(t, []string{"03-31 07:00", "04-30 07:00", "05-31 07:00"}, ends)
}

func TestLegacyPriceAggregatesUsageAsConfigured(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: key}}
	in.Subscriptions = []stripetest.Subscription{{ID: "sub_3", Customer: "cus_1", Start: march.Unix(), End: april.Unix()}}
	aggregates := map[string][2]string{"sum": {"6", "0"}, "max": {"3", "0"}, "last_during_period": {"2", "0"}, "last_ever": {"2", "2"}}
	for aggregate := range aggregates {
		in.Prices = append(in.Prices, stripetest.Price{ID: "legacy_" + aggregate, AggregateUsage: aggregate})
		in.Subscriptions[0].Items = append(in.Subscriptions[0].Items, stripetest.Item{ID: "si_" + aggregate + "_", Price: "legacy_" + aggregate})
	}
	require.NoError(t, b.Seed(&in))
	for aggregate, want := range aggregates {
		item := "si_" + aggregate + "_"
		for n, quantity := range []int{1, 3, 2} {
			require.Equal(t, 200, b.record(item, "set", quantity, march.Add(time.Duration(n+1)*time.Hour)).status)
		}
		b.requireQuantity(want[0], item)
	}
	b.Advance(april.Sub(noon) + time.Hour)
	for aggregate, want := range aggregates {
		b.requireQuantity(want[1], "si_"+aggregate+"_")
	}
}

func TestFakeIsControlledOverHTTP(t *testing.T) {
	t.Parallel()
	fake := stripetest.New(stripetest.Options{Now: func() time.Time { return noon }})
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	b := bundle{fake, t, server.URL}
	seed := json.RawMessage(`{"account":{"key":"sk_test_1"},"customers":[{"id":"cus_1"}],"meters":[{"id":"mtr_1","event_name":"calls"}],
		"prices":[{"id":"price_1","lookup_key":"calls","meter":"mtr_1","unit_amount_decimal":"0.25"}],
		"subscriptions":[{"id":"sub_1","customer":"cus_1","items":[{"id":"si_1","price":"price_1"}]}]}`)
	var seeded stripetest.Seed
	require.Equal(t, 200, b.control("/_seed", seed, &seeded))
	require.Equal(t, march.Unix(), seeded.Subscriptions[0].Start, "calendar months by default")
	require.Equal(t, "acct_fake1", seeded.Account.ID)
	require.Equal(t, 200, b.event("calls", "10", noon, "a").status)
	require.Equal(t, 200, b.control("/_seed", seeded, nil), "again, and nothing is forgotten")

	var state stripetest.State
	b.get("/_state", &state)
	require.Len(t, state.Accounts, 1)
	item := state.Accounts[0].Customers[0].Items[0]
	require.Equal(t, "10", item.Quantity.String())
	require.Equal(t, "3", item.Amount.String())
	require.Equal(t, "/v1/billing/meter_events", state.Requests[0].Path)
	require.Equal(t, 200, state.Requests[0].Status)

	var clock struct{ Now int64 }
	require.Equal(t, 200, b.control("/_clock", map[string]int64{"advance_seconds": 60}, &clock))
	require.Equal(t, noon.Add(time.Minute).Unix(), clock.Now)
	require.Equal(t, 200, b.control("/_clock", map[string]int64{"now": april.Add(time.Hour).Unix()}, nil))
	require.Equal(t, "open", b.State().Accounts[0].Invoices[0].Status)

	require.Equal(t, 204, b.control("/behave", json.RawMessage(`{"status":503,"times":2,"delay_ms":0,"drop_answer":false}`), nil))
	require.Equal(t, 503, b.event("calls", "1", noon, "b").status)
	require.Equal(t, 503, b.event("calls", "1", noon, "b").status)
	require.Equal(t, 200, b.event("calls", "1", noon, "b").status)
}

// get decodes the response of the fake's control interface.
func (b bundle) get(path string, into any) {
	b.t.Helper()
	response, err := http.Get(b.url + path)
	require.NoError(b.t, err)
	defer response.Body.Close()
	require.NoError(b.t, json.NewDecoder(response.Body).Decode(into))
}

func TestInvalidControlRequestIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, bodies := range map[string][]string{
		"/behave": {`{"status":200}`, `{"mode":"odd"}`, `{"stauts":503}`, `[]`},
		"/_clock": {`{"tomorrow":true}`},
		"/_seed": {
			`{}`, `{"account":{"key":"k"},"prices":[{"meter":"none"}]}`, `{"account":{"key":"k"},"prices":[{"unit_amount_decimal":"1/2"}]}`,
			`{"account":{"key":"k"},"subscriptions":[{"customer":"none"}]}`,
			`{"account":{"key":"k"},"customers":[{"id":"c"}],"subscriptions":[{"customer":"c","items":[{"price":"none"}]}]}`,
			`{"account":{"key":"k"},"customers":[{"id":"c"}],"subscriptions":[{"customer":"c","current_period_start":5,"current_period_end":5}]}`,
		},
	} {
		for _, body := range bodies {
			require.Equal(t, 400, b.control(path, json.RawMessage(body), nil), "%s %s", path, body)
		}
	}
	require.Equal(t, 502, b.control("/_webhook", stripetest.Webhook{Type: "invoice.created", Object: "in_unknown"}, nil))
	require.Equal(t, 502, b.control("/_webhook", stripetest.Webhook{Type: "invoice.created", Object: "sub_1"}, nil))
}

func TestDeliveredEventIsSigned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var body []byte
	var header string
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		header = r.Header.Get("Stripe-Signature")
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(receiver.Close)
	var answered struct{ Status int }
	require.Equal(t, 200, b.control("/_webhook", stripetest.Webhook{
		Type: "customer.subscription.updated", Object: "sub_1", URL: receiver.URL, Secret: "whsec_1", APIVersion: "2025-03-31.basil",
	}, &answered))
	require.Equal(t, http.StatusAccepted, answered.Status)
	require.Equal(t, stripetest.Sign(body, "whsec_1", noon), header)
	var event struct {
		Type       string
		APIVersion string `json:"api_version"`
		Data       struct{ Object map[string]any }
	}
	require.NoError(t, json.Unmarshal(body, &event))
	require.Equal(t, "2025-03-31.basil", event.APIVersion)
	require.NotContains(t, event.Data.Object, "current_period_end")
}

func TestKeyAccessesOnlyItsOwnAccount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_2", Key: "sk_test_2"}, Customers: []stripetest.Customer{{ID: "cus_1"}}}))
	require.NoError(t, b.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: "sk_test_new"}}))
	for key, want := range map[string]int{"sk_test_1": 200, "sk_test_new": 200, "sk_test_2": 404, "sk_test_3": 401, "": 401} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/v1/subscriptions/sub_1", nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+key)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, response.StatusCode, key)

		request.Header.Del("Authorization")
		request.SetBasicAuth(key, "")
		response, err = http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, response.StatusCode, key)
	}
	require.Equal(t, metering.Decimal{}, b.Quantity("si_unknown"))
}
