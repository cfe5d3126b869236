package worker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// exampleMeter is a meter with its price in Odometer and its price at Stripe.
type exampleMeter struct {
	slug                           string
	base, included, rate, currency string
	price                          stripetest.Price
}

// exampleMeters lists the examples' meters with their prices in Odometer and at Stripe. 10 dollars cover 100 calls,
// each further call costs half a cent, and a seat costs 3 cents. In yen, 500 cover 100 calls, each further call
// costs 1.5, and a seat costs 20.
var exampleMeters = []exampleMeter{
	{"calls", "10", "100", "0.005", "USD", including("usd", "1000", "0.5")},
	{"seats", "0", "0", "0.03", "USD", stripetest.Price{Currency: "usd", UnitAmount: "3", Meter: "mtr_delta"}},
	{"calls-jp", "500", "100", "1.5", "JPY", including("jpy", "500", "1.5")},
	{"seats-jp", "0", "0", "20", "JPY", stripetest.Price{Currency: "jpy", UnitAmount: "20", Meter: "mtr_last"}},
}

// including returns a price of Stripe with a flat amount for 100 units.
func including(currency, flat, beyond string) stripetest.Price {
	return stripetest.Price{Currency: currency, TiersMode: "graduated", Tiers: []stripetest.Tier{
		{UpTo: "100", FlatAmount: flat}, {UpTo: "inf", UnitAmount: beyond},
	}}
}

// example is a period of a customer, with amounts computed by hand.
type example struct {
	customer string
	slugs    [2]string
	use      [2]string // units
	owed     [2]string
	invoice  [2]string // amounts of Stripe's lines, in the currency's smallest unit
	late     [2]string // units that arrive after the period is closed
	owedLate [2]string
	next     [2]string // amounts of Stripe's lines for late usage, on the next invoice
}

var examples = []example{
	{
		customer: "dollars", slugs: [2]string{"calls", "seats"},
		use:     [2]string{"342", "7"},
		owed:    [2]string{"11.21", "0.21"}, // 10 + 242 × 0.005; 7 × 0.03
		invoice: [2]string{"1121", "21"},
		late:    [2]string{"11", "2"},
		// 353 calls cost 11.265, which Stripe rounds half up to 11.27; 2 × 0.03
		owedLate: [2]string{"0.06", "0.06"},
		next:     [2]string{"6", "6"},
	},
	{
		customer: "yen", slugs: [2]string{"calls-jp", "seats-jp"},
		use:     [2]string{"342", "7"},
		owed:    [2]string{"863", "140"}, // 500 + 242 × 1.5; 7 × 20
		invoice: [2]string{"863", "140"},
		late:    [2]string{"7", "1"},
		// 349 calls cost 873.5, which is rounded to 874
		owedLate: [2]string{"11", "20"},
		next:     [2]string{"11", "20"},
	},
}

// exampleSystem is a system of real processes with the fake of Stripe. Tests access it only from outside.
type exampleSystem struct {
	testing.TB
	caller
	tenant string
	fake   *stripetest.Fake
	clock  *proc.Clock
	end    time.Time // of the period
}

// untilEnd is the time from the start of the test to the end of the period. All usage is of the test's first second.
const untilEnd = 50 * time.Minute

// newExamples starts the processes, and creates the customers, meters and prices of the examples.
func newExamples(t *testing.T) *exampleSystem {
	t.Helper()
	clock := proc.NewClock(t)
	fake := stripetest.New(stripetest.Options{Now: clock.Now})
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	_, database := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: database, TemporalAddress: temporalAddress(t), Clock: clock, Env: []string{"STRIPE_API_BASE=" + server.URL}})
	tenant, key := system.Tenant(t)
	s := &exampleSystem{t, caller{system.API(t).URL, key}, tenant, fake, clock, clock.Now().Add(untilEnd).Truncate(time.Second)}
	system.Worker(t)
	seed := &stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: stripeKey},
		Meters:  []stripetest.Meter{{ID: "mtr_delta", EventName: "delta"}, {ID: "mtr_last", EventName: "last", Formula: "last"}},
	}
	for _, m := range exampleMeters {
		m.price.ID, m.price.LookupKey = "price_"+m.slug, m.slug
		seed.Prices = append(seed.Prices, m.price)
	}
	for _, e := range examples {
		id := e.customer
		seed.Customers = append(seed.Customers, stripetest.Customer{ID: "cus_" + id})
		seed.Subscriptions = append(seed.Subscriptions, stripetest.Subscription{
			ID: "sub_" + id, Customer: "cus_" + id, Start: s.end.AddDate(0, -1, 0).Unix(), End: s.end.Unix(),
			Items: []stripetest.Item{{ID: "si_0" + id, Price: "price_" + e.slugs[0]}, {ID: "si_1" + id, Price: "price_" + e.slugs[1]}},
		})
	}
	require.NoError(t, fake.Seed(seed))
	s.must(t, 200, http.MethodPut, "/v1/billing/provider", map[string]any{"type": "stripe", "secret_key": stripeKey, "webhook_secret": webhookSecret})
	for _, m := range exampleMeters {
		s.must(t, 201, http.MethodPost, "/v1/meters", map[string]any{"slug": m.slug, "event_type": m.slug, "name": m.slug})
		s.must(t, 200, http.MethodPut, "/v1/meters/"+m.slug+"/pricing", map[string]any{
			"base_price": json.Number(m.base), "included_units": json.Number(m.included), "overage_rate": json.Number(m.rate), "currency": m.currency,
		})
	}
	for _, e := range examples {
		s.must(t, 201, http.MethodPost, "/v1/customers", map[string]any{"external_id": e.customer, "billing_provider_id": "cus_" + e.customer})
	}
	return s
}

// read sends a request, requires the status 200, and decodes the answer.
func (s *exampleSystem) read(method, path string, body, into any) {
	s.Helper()
	status, answer := s.awaitAnswer(s, method, path, body)
	require.Equal(s, http.StatusOK, status, "%s", answer)
	require.NoError(s, json.Unmarshal(answer, into), "%s", answer)
}

// use ingests usage of the example's meters, at the start of the test.
func (s *exampleSystem) use(e example, units [2]string) {
	s.Helper()
	for i, slug := range e.slugs {
		var got struct{ Accepted int }
		s.read(http.MethodPost, "/v1/events", map[string]any{
			"event_type": slug, "customer_id": e.customer, "value": json.Number(units[i]), "timestamp": s.end.Add(-untilEnd),
			"idempotency_key": uuid.NewString(), // a repeated request is counted once
		}, &got)
		require.Equal(s, 1, got.Accepted)
	}
}

// preview returns the amounts of the example's meters in the preview, for the period and for late usage. If the
// customer was synced, it requires the reason for which each other meter is excluded.
func (s *exampleSystem) preview(e example, synced bool) (now, late [2]string) {
	s.Helper()
	var items []struct {
		Slug     string      `json:"meter_slug"`
		Amount   json.Number `json:"amount"`
		Currency string      `json:"currency"`
		Excluded struct{ Message string }
		LateFor  *struct {
			End time.Time `json:"end"`
		} `json:"late_for"`
	}
	s.read(http.MethodGet, "/v1/billing/preview?customer="+url.QueryEscape(e.customer), nil, &items)
	for _, item := range items {
		i := slices.Index(e.slugs[:], item.Slug)
		if i < 0 {
			if synced {
				require.Equal(s, "no subscription item of the customer has a price with lookup key "+item.Slug+", or a price or Stripe meter with metadata meter_slug="+item.Slug, item.Excluded.Message)
			}
			continue // the meter has the other currency
		}
		require.Empty(s, item.Excluded.Message)
		m := slices.IndexFunc(exampleMeters, func(m exampleMeter) bool { return m.slug == item.Slug })
		require.Equal(s, exampleMeters[m].currency, item.Currency)
		if item.LateFor == nil {
			now[i] = item.Amount.String()
		} else {
			require.True(s, item.LateFor.End.Equal(s.end))
			late[i] = item.Amount.String()
		}
	}
	return now, late
}

// ledger syncs the customer and returns the amounts in the ledger, for the period and for late usage.
func (s *exampleSystem) ledger(e example) (now, late [2]string) {
	s.Helper()
	var sync struct {
		Status, Error string
		Lines         []struct {
			Slug   string `json:"meter_slug"`
			Amount json.Number
			Kind   string
			State  string
			Period struct{ End time.Time }
		}
	}
	answer := s.ended(s, e.customer)
	require.NoError(s, json.Unmarshal(answer, &sync), "%s", answer)
	require.Equal(s, "succeeded", sync.Status, sync.Error)
	for _, line := range sync.Lines {
		require.Contains(s, []string{"accepted", "counted"}, line.State)
		require.True(s, line.Period.End.Equal(s.end), line.Slug)
		to := &now
		if line.Kind == "charge" {
			to = &late
		}
		to[slices.Index(e.slugs[:], line.Slug)] = line.Amount.String()
	}
	return now, late
}

// invoice returns a customer's n-th invoice at Stripe, counted from 0. usage contains the amount for the usage of
// each subscription item, and items the amount of each invoice item.
func (s *exampleSystem) invoice(e example, n int) (id string, usage, items []string) {
	s.Helper()
	for _, in := range s.fake.State().Accounts[0].Invoices {
		if in.Subscription != "sub_"+e.customer {
			continue
		}
		if n--; n >= 0 {
			continue
		}
		var billed []string
		for _, line := range in.Lines {
			if line.InvoiceItem != "" {
				items = append(items, line.Amount.String())
				continue
			}
			if i := slices.Index(billed, line.Item); i >= 0 {
				usage[i] = metering.MustDecimal(usage[i]).Add(line.Amount).String()
				continue
			}
			billed, usage = append(billed, line.Item), append(usage, line.Amount.String())
		}
		return in.ID, usage, items
	}
	s.Fatalf("%s has no such invoice", e.customer)
	return "", nil, nil
}

// TestPreviewLedgerAndStripeInvoiceHaveSameAmounts runs both examples to the end of the period, closes the period,
// and bills late usage with the next period.
func TestPreviewLedgerAndStripeInvoiceHaveSameAmounts(t *testing.T) {
	t.Parallel()
	s := newExamples(t)
	for _, e := range examples {
		s.use(e, e.use)
		now, late := s.preview(e, false)
		require.Equal(t, e.owed, now, "the preview")
		require.Empty(t, late[0]+late[1])
		now, _ = s.ledger(e)
		require.Equal(t, e.owed, now, "the ledger")
	}
	s.clock.To(t, s.end.Add(time.Second))
	s.fake.Advance(time.Hour)
	s.must(t, http.StatusOK, http.MethodPatch, "/v1/tenant", map[string]any{"grace_hours": 0}) // so that closing waits only for the clock
	for _, e := range examples {
		id, usage, _ := s.invoice(e, 0)
		require.Equal(t, e.invoice[:], usage, "Stripe's invoice")
		s.happened("invoice.finalized", id)
		s.awaitClosedPeriod(e)
		s.use(e, e.late)
		_, late := s.preview(e, true)
		require.Equal(t, e.owedLate, late, "the preview")
		var now [2]string
		now, late = s.ledger(e)
		require.Equal(t, [2]string{}, now, "nothing more is reported of the closed period")
		require.Equal(t, e.owedLate, late, "the ledger")
		_, late = s.preview(e, true)
		require.Equal(t, e.owedLate, late, "it is owed with this period, reported or not")
	}
	s.fake.Advance(32 * 24 * time.Hour)
	for _, e := range examples {
		_, _, items := s.invoice(e, 1)
		require.ElementsMatch(t, e.next[:], items, "Stripe's next invoice")
	}
}

// happened delivers an event of the fake, signed at the current time of the system, because the fake's clock is
// ahead.
func (s *exampleSystem) happened(kind, object string) {
	s.Helper()
	payload, _, err := s.fake.Event(&stripetest.Webhook{Type: kind, Object: object})
	require.NoError(s, err)
	dbtest.Eventually(s, func() error { // Stripe repeats an event that was not answered with 2xx
		request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+"/v1/provider-webhooks/stripe/"+s.tenant, bytes.NewReader(payload))
		if err != nil {
			return err
		}
		request.Header.Set("Stripe-Signature", stripetest.Sign(payload, webhookSecret, s.clock.Now()))
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			err = fmt.Errorf("answered %d", response.StatusCode)
		}
		return errors.Join(err, response.Body.Close())
	})
}

// awaitClosedPeriod waits until the period is closed, and checks its lines.
func (s *exampleSystem) awaitClosedPeriod(e example) {
	s.Helper()
	dbtest.Eventually(s, func() error {
		var periods struct {
			Data []struct {
				End      time.Time
				ClosedAt *time.Time `json:"closed_at"`
				Lines    []struct {
					Slug   string `json:"meter_slug"`
					Amount json.Number
					Billed bool
				}
			}
		}
		s.read(http.MethodGet, "/v1/billing/periods?customer="+e.customer, nil, &periods)
		for _, p := range periods.Data {
			if !p.End.Equal(s.end) || p.ClosedAt == nil {
				continue
			}
			for _, l := range p.Lines {
				i := slices.Index(e.slugs[:], l.Slug)
				require.Equal(s, i >= 0, l.Billed, l.Slug)
				if i >= 0 {
					require.Equal(s, e.owed[i], l.Amount.String())
				}
			}
			return nil
		}
		return fmt.Errorf("not closed: %+v", periods)
	})
}
