package stripe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// contract checks the behavior that this package expects of Stripe, against the server at base.
type contract struct {
	*testing.T
	client    *stripe.Client
	base, key string
	run       string        // distinguishes the objects of this run
	start     time.Time     // start of the billed period
	pause     time.Duration // before each attempt of eventually
	timeout   time.Duration // for Stripe's background work

	version                  string // API version that call uses
	clock, customer, product string
	items                    map[string]stripe.Item // by short name; in begin also by lookup key
	period                   metering.Range
}

// TestStripeKeepsItsContract checks that the fake behaves as this package expects of Stripe. With
// STRIPE_LIVE it checks Stripe itself: see make stripe-live.
func TestStripeKeepsItsContract(t *testing.T) {
	t.Parallel()
	c := contractWith(t)
	account, err := c.client.Validate(t.Context(), c.key)
	require.NoError(t, err)
	require.False(t, account.Livemode)
	c.subscribe()
	c.reportUsage()
	c.checkRefusals()
	c.charge()
	c.advance(c.period.End.Add(2 * time.Hour))
	c.checkLegacyInvoice()
	c.checkMeteredInvoice()
}

// contractWith returns a contract with a fake or, if STRIPE_LIVE is set, with Stripe.
func contractWith(t *testing.T) *contract {
	t.Helper()
	c := &contract{T: t, base: os.Getenv("STRIPE_API_BASE"), key: os.Getenv("STRIPE_SECRET_KEY"), run: uuid.NewString()[:8], version: "2023-10-16"}
	now := time.Now()
	if os.Getenv("STRIPE_LIVE") == "" {
		c.key, c.base, now = key, fakeContract(t), noon
		c.pause, c.timeout = time.Millisecond, 10*time.Second
	} else {
		require.NoError(t, checkTestKey(c.key))
		c.pause, c.timeout = 2*time.Second, 15*time.Minute
	}
	c.client = stripe.New(c.base)
	if c.base == "" {
		c.base = "https://api.stripe.com"
	}
	t.Logf("asking %s", c.base)
	// Stripe accepts events of the last 35 days, and does not document which clock applies. By both clocks,
	// the test's events are recent enough.
	c.start = now.Add(-25 * 24 * time.Hour).UTC().Truncate(time.Hour)
	return c
}

// checkTestKey returns an error unless the key is a test mode key. It is called before any request, because
// the contract creates customers and invoices.
func checkTestKey(key string) error {
	if !strings.HasPrefix(key, "sk_test_") && !strings.HasPrefix(key, "rk_test_") {
		return errors.New("STRIPE_SECRET_KEY must be a test mode key, which begins with sk_test_ or rk_test_; nothing was sent")
	}
	return nil
}

func TestContractTestAcceptsOnlyTestModeKeys(t *testing.T) {
	t.Parallel()
	for key, ok := range map[string]bool{
		"sk_test_1": true, "rk_test_1": true, "sk_live_1": false, "rk_live_1": false, "pk_test_1": false, "whsec_1": false, "x sk_test_1": false, "": false,
	} {
		require.Equal(t, ok, checkTestKey(key) == nil, key)
	}
}

// fakeContract serves a fake with an empty account. At the end of the test, it checks that no customers,
// active prices, active meters or subscriptions are left.
func fakeContract(t *testing.T) (base string) {
	t.Helper()
	validate, err := validator()
	require.NoError(t, err)
	fake := stripetest.New(stripetest.Options{Now: func() time.Time { return noon }, Validate: func(r *http.Request) error {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		r.Body = io.NopCloser(strings.NewReader(strings.Replace(string(body), "formula%5D=last", "formula%5D=sum", 1))) // stripe-mock does not know the formula last
		return validate(r)
	}})
	require.NoError(t, fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: key}}))
	server := httptest.NewServer(fake)
	t.Cleanup(func() {
		defer server.Close()
		require.Empty(t, fake.State().Accounts[0].Customers)
		left := &contract{T: t, base: server.URL, key: key, version: "2023-10-16"}
		for _, path := range []string{"/v1/prices?active=true", "/v1/billing/meters?status=active", "/v1/subscriptions"} {
			answer, err := left.call(http.MethodGet, path)
			require.NoError(t, err)
			require.Empty(t, answer["data"], path)
		}
	})
	return server.URL
}

// call sends a request and decodes the response. form contains alternating names and values.
func (c *contract) call(method, path string, form ...string) (map[string]any, error) {
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	ctx, cancel := context.WithTimeout(context.Background(), stripe.Timeout) // cleanups call it after the test's context has ended
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(values.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Stripe-Version", c.version)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var body map[string]any
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %d %v", method, path, response.StatusCode, body["error"])
	}
	return body, nil
}

// create creates an object. At the end of the test it makes the call removal, such as DELETE
// /v1/customers/{id}.
func (c *contract) create(path, removal string, form ...string) (id string) {
	c.Helper()
	made, err := c.call(http.MethodPost, path, form...)
	require.NoError(c, err)
	id = made["id"].(string)
	c.Logf("made %s", id)
	method, path, _ := strings.Cut(strings.ReplaceAll(removal, "{id}", id), " ")
	path, parameter, _ := strings.Cut(path, "?")
	c.Cleanup(func() {
		var form []string
		if name, value, ok := strings.Cut(parameter, "="); ok {
			form = []string{name, value}
		}
		if _, err := c.call(method, path, form...); err != nil {
			c.Errorf("remove %s: %v", id, err)
			return
		}
		c.Logf("removed %s", id)
	})
	return id
}

// unix returns the time in Unix seconds.
func unix(t time.Time) string { return fmt.Sprint(t.Unix()) }

// name returns the name of an object in this run.
func (c *contract) name(what string) string { return "odometer-" + what + "-" + c.run }

// makeCustomer creates a customer with a test clock, and a product.
func (c *contract) makeCustomer() {
	c.clock = c.create("/v1/test_helpers/test_clocks", "DELETE /v1/test_helpers/test_clocks/{id}", "frozen_time", unix(c.start), "name", c.name("contract"))
	c.customer = c.create("/v1/customers", "DELETE /v1/customers/{id}", "test_clock", c.clock, "email", "contract@example.com")
	c.product = c.create("/v1/products", "POST /v1/products/{id}?active=false", "name", c.name("contract"))
}

// subscribe creates a customer with an item of each kind, and advances the clock to ten minutes after the
// start of the period.
func (c *contract) subscribe() {
	c.makeCustomer()
	c.createSubscription([]string{c.price("storage", "2.5", "")})
	c.createSubscription([]string{
		c.price("calls", "3", c.meter("calls", "default_aggregation[formula]", "sum")),
		c.price("minutes", "1", c.meter("minutes", "default_aggregation[formula]", "sum", "event_time_window", "hour",
			"customer_mapping[type]", "by_id", "customer_mapping[event_payload_key]", "who", "value_settings[event_payload_key]", "amount")),
		c.price("seats", "100", c.meter("seats", "default_aggregation[formula]", "last")),
	})
	c.advance(c.start.Add(10 * time.Minute))

	items, err := c.client.Items(c.Context(), c.key, c.customer)
	require.NoError(c, err)
	require.Len(c, items, 4)
	c.items = map[string]stripe.Item{}
	for what, method := range map[string]billing.Method{
		"storage": stripe.UsageRecord, "calls": stripe.MeterDelta, "minutes": stripe.MeterWindow, "seats": stripe.MeterLast,
	} {
		item, why := stripe.Match(items, c.name(what), nil)
		require.Empty(c, why)
		got, why := item.Method()
		require.Empty(c, why)
		require.Equal(c, method, got)
		require.Equal(c, "USD", item.Currency)
		require.Equal(c, c.start, item.PeriodStart)
		c.items[what] = item
	}
	c.period = metering.Range{Start: c.start, End: c.items["calls"].PeriodEnd}
}

// meter creates a Stripe meter, and returns its id.
func (c *contract) meter(what string, form ...string) string {
	return c.create("/v1/billing/meters", "POST /v1/billing/meters/{id}/deactivate", append(form, "display_name", what, "event_name", c.name(what))...)
}

// price creates a metered price, and returns its id. meter is the id of a Stripe meter; "" is legacy metered billing.
func (c *contract) price(what, cents, meter string) string {
	form := []string{
		"product", c.product, "currency", "usd", "unit_amount_decimal", cents, "lookup_key", c.name(what),
		"recurring[interval]", "month", "recurring[usage_type]", "metered",
	}
	if meter != "" {
		form = append(form, "recurring[meter]", meter)
	}
	return c.create("/v1/prices", "POST /v1/prices/{id}?active=false", form...)
}

// createSubscription creates a subscription of the customer to the prices.
func (c *contract) createSubscription(prices []string, form ...string) {
	form = append(form, "customer", c.customer, "collection_method", "send_invoice", "days_until_due", "30")
	for n, price := range prices {
		form = append(form, fmt.Sprintf("items[%d][price]", n), price)
	}
	removal := "DELETE /v1/subscriptions/{id}"
	if slices.Contains(form, "cancel_at_period_end") {
		removal = "GET /v1/subscriptions/{id}" // the subscription has ended by then
	}
	c.create("/v1/subscriptions", removal, form...)
}

// advance advances the test clock, and waits until Stripe has caught up with it.
func (c *contract) advance(to time.Time) {
	c.Helper()
	_, err := c.call(http.MethodPost, "/v1/test_helpers/test_clocks/"+c.clock+"/advance", "frozen_time", unix(to))
	require.NoError(c, err)
	c.eventually(func() error {
		answer, err := c.call(http.MethodGet, "/v1/test_helpers/test_clocks/"+c.clock)
		if err == nil && answer["status"] != "ready" {
			err = fmt.Errorf("the clock is %s", answer["status"])
		}
		return err
	})
	c.Logf("it is %s by the test clock", to.Format(time.RFC3339))
}

// eventually repeats check until it returns nil. The test fails after the timeout.
func (c *contract) eventually(check func() error) {
	c.Helper()
	dbtest.Within(c, c.timeout, func() error {
		<-time.After(c.pause) // all users of the account share Stripe's rate limit
		return check()
	})
}

// report returns a report for an item. what is the item's short name.
func (c *contract) report(what string, version int, value int64, at time.Time) stripe.Report {
	i := c.items[what]
	method, _ := i.Method()
	id := fmt.Sprintf("%s-%d", c.name(what), version)
	return stripe.Report{
		Method: method, ItemID: i.ItemID, EventName: i.MeterEventName, CustomerKey: i.CustomerKey, ValueKey: i.ValueKey,
		Customer: c.customer, Value: whole(value), Timestamp: at, Identifier: id, IdempotencyKey: "key-" + id,
	}
}

// send sends a report, and repeats it while Stripe is unavailable. It returns Stripe's answer.
func (c *contract) send(r stripe.Report) (answer stripe.Answer, err error) {
	c.eventually(func() error {
		answer, err = c.client.Send(c.Context(), c.key, r)
		if metering.CodeOf(err) == metering.CodeProviderDown {
			return err
		}
		return nil
	})
	return answer, err
}

// reportUsage reports two values with each method, repeats the second report, and reads Stripe's counts.
func (c *contract) reportUsage() {
	now := c.start.Add(3 * time.Minute)
	for what, values := range map[string][2]int64{"storage": {40, 26}, "calls": {40, -15}, "minutes": {40, 7}, "seats": {40, 9}} {
		var last time.Time
		var r stripe.Report
		for version, value := range values {
			method, _ := c.items[what].Method()
			last = stripe.Timestamp(method, now, last, c.period)
			r = c.report(what, version, value, last)
			answer, err := c.send(r)
			require.NoError(c, err, what)
			require.Equal(c, http.StatusOK, answer.Status)
			require.NotEmpty(c, answer.RequestID)
		}
		again, err := c.send(r)
		require.NoError(c, err, what)
		require.True(c, again.Replayed, "the same key: the saved answer")
		r.IdempotencyKey += "-another"
		other, err := c.send(r)
		require.NoError(c, err, what)
		require.Equal(c, r.Method != stripe.UsageRecord, other.Duplicate, "the identifier of %s: taken before", what)
		c.Logf("told of %s", what)
	}
	for what, want := range map[string]string{"storage": "26", "calls": "25", "minutes": "7", "seats": "9"} {
		c.eventually(func() error { return c.counted(what, want) })
		c.Logf("Stripe has counted %s of %s", want, what)
	}
}

// counted returns an error unless the usage that Stripe has counted for an item equals want.
func (c *contract) counted(what, want string) error {
	i := c.items[what]
	var got metering.Decimal
	var err error
	if i.MeterID == "" {
		got, err = c.client.RecordSummary(c.Context(), c.key, i.ItemID, stripe.RecordTime(c.start))
	} else {
		got, err = c.client.Summary(c.Context(), c.key, i.MeterID, c.customer, c.period.Start, c.period.End)
	}
	if err == nil && got.String() != want {
		err = fmt.Errorf("Stripe has counted %s of %s, not %s", got, what, want)
	}
	return err
}

// checkRefusals checks that Stripe refuses an unknown key and invalid reports.
func (c *contract) checkRefusals() {
	_, err := c.client.Validate(c.Context(), "sk_test_"+strings.Repeat("0", 24))
	require.ErrorContains(c, err, "rejected the API key")

	former := c.report("storage", 9, 1, c.start)
	_, err = c.send(former)
	require.ErrorIs(c, err, stripe.ErrOutsidePeriod)

	wrong := c.report("storage", 10, 1, c.start.Add(time.Second))
	wrong.ItemID = c.items["calls"].ItemID
	_, err = c.send(wrong)
	require.ErrorIs(c, err, stripe.ErrNotLegacy)

	old := c.report("calls", 11, 1, c.start.Add(-36*24*time.Hour))
	_, err = c.send(old)
	require.Equal(c, metering.CodeProviderRefuse, metering.CodeOf(err), "more than 35 days ago by both clocks")

	euros := c.late(12, 1)
	euros.Currency = "EUR"
	_, err = c.send(euros)
	require.ErrorContains(c, err, "bills the customer in another currency")
	c.Log("Stripe refused what it must not take")
}

// late returns the report of a charge for usage of the previous period.
func (c *contract) late(version int, cents int64) stripe.Report {
	id := fmt.Sprintf("%s-%d", c.name("late"), version)
	return stripe.Report{
		Method: stripe.InvoiceItem, Customer: c.customer, SubscriptionID: c.items["calls"].SubscriptionID, Currency: "USD", Value: whole(cents),
		Description: "Usage reported late", Period: metering.Range{Start: c.start.AddDate(0, -1, 0), End: c.start},
		Identifier: id, IdempotencyKey: "key-" + id,
	}
}

// charge adds two amounts to the next invoice, and finds them.
func (c *contract) charge() {
	for version, cents := range []int64{250, -30} {
		r := c.late(version, cents)
		_, err := c.send(r)
		require.NoError(c, err)
		again, err := c.send(r)
		require.NoError(c, err)
		require.True(c, again.Replayed)
		require.True(c, c.isBilled(r.Identifier))
	}
	require.False(c, c.isBilled(c.late(12, 1).Identifier), "it was refused")
	c.Log("put two amounts on the next invoice, and found them")
}

// isBilled reports whether the customer has an invoice item with the identifier.
func (c *contract) isBilled(identifier string) bool {
	found, err := c.client.InvoiceItem(c.Context(), c.key, c.customer, identifier, c.start)
	require.NoError(c, err)
	return found
}

// final waits for the final invoice of the period for an item's subscription. It returns the invoice, and
// its lines by item id and identifier.
func (c *contract) final(what string) (final stripe.Invoice, lines map[string]stripe.InvoiceLine) {
	c.eventually(func() error {
		made, err := c.call(http.MethodGet, "/v1/invoices?limit=100&subscription="+c.items[what].SubscriptionID)
		if err != nil {
			return err
		}
		for _, object := range made["data"].([]any) {
			if in := object.(map[string]any); in["billing_reason"] == "subscription_cycle" {
				final, err = c.client.Invoice(c.Context(), c.key, in["id"].(string))
			}
		}
		if err == nil && final.FinalizedAt.IsZero() {
			err = fmt.Errorf("the invoice of %s is not final", what)
		}
		return err
	})
	billed := metering.Range{Start: final.PeriodStart, End: final.PeriodEnd}
	require.Equal(c, c.period, billed)
	require.Equal(c, c.customer, final.CustomerID)
	require.Equal(c, c.items[what].SubscriptionID, final.SubscriptionID)
	require.Equal(c, "USD", final.Currency)
	lines = map[string]stripe.InvoiceLine{}
	for _, line := range final.Lines {
		lines[line.ItemID+line.Identifier] = line
		require.False(c, line.Proration)
	}
	c.Logf("%s: %s %s for %s", final.ID, final.Total, final.Currency, what)
	return final, lines
}

// checkLegacyInvoice checks the final invoice of the usage records.
func (c *contract) checkLegacyInvoice() {
	final, lines := c.final("storage")
	requireDecimal(c, "0.65", final.Total, "26 × 2.5 cents")
	requireDecimal(c, "26", lines[c.items["storage"].ItemID].Quantity)
}

// checkMeteredInvoice checks the final invoice of the meter events and the two charges.
func (c *contract) checkMeteredInvoice() {
	final, lines := c.final("calls")
	requireDecimal(c, "12.02", final.Total, "25 × 3 + 7 × 1 + 9 × 100 + 250 - 30 cents")
	for what, want := range map[string][2]string{"calls": {"25", "0.75"}, "minutes": {"7", "0.07"}, "seats": {"9", "9"}} {
		line := lines[c.items[what].ItemID]
		requireDecimal(c, want[0], line.Quantity, what)
		requireDecimal(c, want[1], line.Amount, what)
	}
	for version, want := range []string{"2.5", "-0.3"} {
		requireDecimal(c, want, lines[c.late(version, 0).Identifier].Amount)
		require.True(c, c.isBilled(c.late(version, 0).Identifier), "on an invoice too")
	}
}
