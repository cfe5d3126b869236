package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/expect"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// sendModelCall maps each client to a function that sends a call of a language model, for a customer with the
// name of the client. The cost is a sum of floats, 0.30000000000000004.
var sendModelCall = map[string]func(t *testing.T, url, key string){
	"go": func(t *testing.T, url, key string) {
		tenth, fifth := 0.1, 0.2
		answer, err := proc.Dial(t, url, key).IngestEventWithResponse(t.Context(), client.Event{
			EventType: "llm", CustomerId: "go",
			Properties: &map[string]any{"model": "large", "prompt_tokens": 1250, "completion_tokens": 310, "cost": tenth + fifth},
		})
		require.NoError(t, expect.Status("send event", answer, err, http.StatusOK))
	},
	"typescript": func(t *testing.T, url, key string) {
		program := block{Name: "send.mjs", Text: `
import { createClient } from "@odometer-metering/client";
const client = createClient({ baseUrl: process.env.ODOMETER_URL, apiKey: process.env.ODOMETER_KEY });
const properties = { model: "large", prompt_tokens: 1250, completion_tokens: 310, cost: 0.1 + 0.2 };
const { error } = await client.POST("/v1/events", { body: { event_type: "llm", customer_id: "typescript", properties } });
if (error) throw new Error(error.detail);
`}
		runScript(t, `npm init --yes >/dev/null
npm install --no-audit --no-fund "$ODOMETER/client/typescript"
node send.mjs`, []block{program}, "ODOMETER_URL="+url, "ODOMETER_KEY="+key, "ODOMETER="+clients(t))
	},
	"python": func(t *testing.T, url, key string) {
		program := block{Name: "send.py", Text: `
import os
from odometer_client import Client
properties = {"model": "large", "prompt_tokens": 1250, "completion_tokens": 310, "cost": 0.1 + 0.2}
client = Client(os.environ["ODOMETER_URL"], os.environ["ODOMETER_KEY"])
client.ingest_event({"event_type": "llm", "customer_id": "python", "properties": properties})
`}
		runScript(t, `python3 -m venv .venv
.venv/bin/pip install --quiet "$ODOMETER/client/python"
.venv/bin/python send.py`, []block{program}, "ODOMETER_URL="+url, "ODOMETER_KEY="+key, "ODOMETER="+clients(t))
	},
}

// TestDrillModelCallSentByEachClientIsBilled sends an event from each client, which three meters count. The
// statement and the invoice at Stripe have the same amounts:
//
//	1250 input tokens at 0.002 USD  2.50
//	310 output tokens at 0.01 USD   3.10
//	0.3 USD of cost at 1.2 USD      0.36
//	total                           5.96
func TestDrillModelCallSentByEachClientIsBilled(t *testing.T) {
	t.Parallel()
	fake := stripetest.New(stripetest.Options{})
	stripe := httptest.NewServer(fake)
	t.Cleanup(stripe.Close)
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: temporalAddress(t), Env: []string{"STRIPE_API_BASE=" + stripe.URL}})
	_, key := system.Tenant(t)
	service := system.API(t).URL
	system.Worker(t)
	seedModelPrices(t, fake)
	set := func(method, path, body string, status int) {
		t.Helper()
		got, answer := call(t, method, service+path, key, body)
		require.Equal(t, status, got, answer)
	}
	set("PUT", "/v1/billing/provider", `{"type":"stripe","secret_key":"sk_test_models","webhook_secret":"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"}`, http.StatusOK)
	for slug, m := range map[string]struct{ property, rate string }{
		"input": {"prompt_tokens", "0.002"}, "output": {"completion_tokens", "0.01"}, "cost": {"cost", "1.2"},
	} {
		set("POST", "/v1/meters", fmt.Sprintf(`{"slug":%q,"event_type":"llm","value_property":%q,"usage_scale":6}`, slug, m.property), http.StatusCreated)
		set("PUT", "/v1/meters/"+slug+"/pricing", fmt.Sprintf(`{"overage_rate":%s}`, m.rate), http.StatusOK)
	}

	for name, send := range sendModelCall {
		t.Run(name, func(t *testing.T) {
			set("POST", "/v1/customers", fmt.Sprintf(`{"external_id":%q,"billing_provider_id":"cus_%s"}`, name, name), http.StatusCreated)
			send(t, service, key)
			api := proc.Dial(t, service, key)
			dbtest.Eventually(t, func() error {
				answer, err := api.SyncBillingWithResponse(t.Context(), client.SyncBilling{CustomerExternalId: name})
				return expect.Status("sync", answer, err, http.StatusOK)
			})
			requireModelStatement(t, api, name)
		})
	}
	fake.Advance(21 * 24 * time.Hour) // the invoices are final
	invoices := fake.State().Accounts[0].Invoices
	require.Len(t, invoices, len(sendModelCall))
	for _, invoice := range invoices {
		require.Equal(t, "open", invoice.Status)
		require.Equal(t, "596", invoice.Total.String(), invoice.Customer)
		var lines []string
		for _, l := range invoice.Lines {
			lines = append(lines, fmt.Sprintf("%s × %s = %s cents", l.Quantity, l.Price, l.Amount))
		}
		require.Equal(t, []string{"1250 × price_input = 250 cents", "310 × price_output = 310 cents", "0.3 × price_cost = 36 cents"}, lines)
	}
}

// requireModelStatement compares the bill of a customer with the amounts computed by hand.
func requireModelStatement(t *testing.T, api *client.ClientWithResponses, customer string) {
	t.Helper()
	periods, err := api.ListBillingPeriodsWithResponse(t.Context(), &client.ListBillingPeriodsParams{Customer: customer})
	require.NoError(t, expect.Status("list periods", periods, err, http.StatusOK))
	require.NotEmpty(t, periods.JSON200.Data)
	require.LessOrEqual(t, len(periods.JSON200.Data), 2) // two if the customer was billed by calendar months first
	statement, err := api.GetStatementWithResponse(t.Context(), *periods.JSON200.Data[0].Id, nil)
	require.NoError(t, expect.Status("get statement", statement, err, http.StatusOK))
	lines := make(map[string]string)
	for _, l := range statement.JSON200.Lines {
		lines[l.MeterSlug] = fmt.Sprintf("%s of %d event for %s %s", l.Usage, l.EventCount, l.Amount, l.Currency)
	}
	require.Equal(t, map[string]string{
		"input": "1250 of 1 event for 2.5 USD", "output": "310 of 1 event for 3.1 USD", "cost": "0.3 of 1 event for 0.36 USD",
	}, lines)
	require.Len(t, statement.JSON200.Totals, 1)
	require.Equal(t, "5.96", statement.JSON200.Totals[0].Amount.String())
}

// seedModelPrices subscribes a customer for each client to the prices of the three meters.
func seedModelPrices(t *testing.T, fake *stripetest.Fake) {
	t.Helper()
	seed := &stripetest.Seed{Account: stripetest.Account{ID: "acct_models", Key: "sk_test_models", Decimals: true}}
	for _, p := range []struct{ slug, cents string }{{"input", "0.2"}, {"output", "1"}, {"cost", "120"}} {
		seed.Meters = append(seed.Meters, stripetest.Meter{ID: "mtr_" + p.slug, EventName: p.slug})
		seed.Prices = append(seed.Prices, stripetest.Price{ID: "price_" + p.slug, LookupKey: p.slug, UnitAmount: p.cents, Meter: "mtr_" + p.slug})
	}
	now := time.Now()
	for name := range sendModelCall {
		seed.Customers = append(seed.Customers, stripetest.Customer{ID: "cus_" + name})
		s := stripetest.Subscription{ID: "sub_" + name, Customer: "cus_" + name, Start: now.AddDate(0, 0, -10).Unix(), End: now.AddDate(0, 0, 20).Unix()}
		for _, p := range seed.Prices {
			s.Items = append(s.Items, stripetest.Item{ID: "si_" + p.LookupKey + "_" + name, Price: p.ID})
		}
		seed.Subscriptions = append(seed.Subscriptions, s)
	}
	require.NoError(t, fake.Seed(seed))
}
