package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
)

// pricing sends a request about a price, confirms it if necessary, and returns the pricing of the response.
func (b *bundle) pricing(t *testing.T, method, path, body string) (p client.Pricing) {
	t.Helper()
	a := b.confirmed(t, method, path, body)
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	return p
}

// versionsOf returns the version numbers of a price.
func versionsOf(p client.Pricing) (versions []int64) {
	for _, v := range p.Versions {
		versions = append(versions, v.Version)
	}
	return versions
}

// TestFreeUsageRequiresPriceOfZero checks that a body without a price is refused, because it would make usage free.
// Free usage needs a price of 0.
func TestFreeUsageRequiresPriceOfZero(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	for _, body := range []string{`{}`, `{"included_units":100}`, `{"currency":"USD"}`} {
		p := b.send(t, "PUT", "/v1/meters/calls/pricing", body).problem(t, 422, "invalid")
		require.Equal(t, []api.FieldProblem{{Location: "body", Message: "must contain base_price or overage_rate; use 0 for free usage"}}, p.Errors, body)
	}
	require.Equal(t, "0", b.pricing(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":0}`).Current.OverageRate.String())
}

func TestFirstPriceAppliesFromItsEffectiveTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`)
	b.at(t, b.now().UTC().Format(time.RFC3339), "a", "142")
	b.send(t, "PUT", "/v1/customers/acme/plan", `{"plan":"pro"}`)
	for _, path := range []string{"/v1/meters/calls/pricing", "/v1/plans/pro/pricing/calls"} {
		p := b.pricing(t, "PUT", path, `{"overage_rate":1,"effective_from":"2100-01-01T00:00:00Z"}`)
		require.Nil(t, p.Current)
		require.Equal(t, 2100, p.Versions[0].EffectiveFrom.Year())
		require.Equal(t, "0 USD", b.preview(t), "nothing is charged before")
		require.Equal(t, 200, b.send(t, "DELETE", path+"/"+fmt.Sprint(p.Versions[0].Version), "").status)
	}
	p := b.pricing(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":1}`)
	require.Nil(t, p.Current.EffectiveFrom)
	require.Equal(t, "142 USD", b.preview(t))
	log := b.send(t, "GET", "/v1/audit-log?action=price.set", "").body
	require.Contains(t, log, `"effective_from":null`)
	require.NotContains(t, log, "0001")
}

// TestPriceWithoutCurrencyKeepsPreviousCurrency checks the default of currency: the currency of the version in
// force, else of the price that the new price replaces, else the tenant's.
func TestPriceWithoutCurrencyKeepsPreviousCurrency(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.meter(t, "other", "other")
	const own, ofMeter, ofPlan, ofCustomer = "/v1/meters/other/pricing", "/v1/meters/calls/pricing", "/v1/plans/pro/pricing/calls", "/v1/customers/acme/pricing/calls"
	latest := func(path, body string) string {
		t.Helper()
		versions := b.pricing(t, "PUT", path, body).Versions
		return versions[len(versions)-1].Currency
	}
	require.Equal(t, "USD", latest(own, `{"overage_rate":1}`), "the tenant's")
	require.Equal(t, "EUR", latest(ofMeter, `{"overage_rate":0.05,"currency":"EUR"}`))
	require.Equal(t, "EUR", latest(ofMeter, `{"overage_rate":0.06}`))

	b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`)
	require.Equal(t, "EUR", latest(ofPlan, `{"overage_rate":0.05}`), "of the meter's price")
	b.meter(t, "moved", "moved")
	require.Equal(t, "EUR", latest("/v1/meters/moved/pricing", `{"overage_rate":1,"currency":"EUR"}`))
	past := b.now().Add(-time.Hour).UTC().Format(time.RFC3339)
	require.Equal(t, "USD", latest("/v1/meters/moved/pricing", `{"overage_rate":1,"currency":"USD","effective_from":"`+past+`"}`))
	require.Equal(t, "USD", latest("/v1/plans/pro/pricing/moved", `{"overage_rate":1}`), "of the meter's price in force")
	require.Equal(t, "CHF", latest(ofPlan, `{"overage_rate":0.05,"currency":"CHF"}`))
	require.Equal(t, "CHF", latest(ofPlan, `{"overage_rate":0.06}`), "of the version that begins at the same time")
	later := b.now().AddDate(0, 0, 90).UTC().Format(time.RFC3339)
	require.Equal(t, "CHF", latest(ofPlan, `{"overage_rate":0.06,"effective_from":"`+later+`"}`))

	b.ahead.Store(int64(32 * 24 * time.Hour))
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	require.Equal(t, "EUR", latest(ofCustomer, `{"overage_rate":0.05}`), "of the meter's price")
	require.Equal(t, 200, b.confirmed(t, "PUT", "/v1/customers/acme/plan", `{"plan":"pro"}`).status)
	require.Equal(t, 200, b.confirmed(t, "POST", ofCustomer+"/end", `{}`).status)
	require.Equal(t, "CHF", latest(ofCustomer, `{"overage_rate":0.05,"effective_from":"`+later+`"}`), "of the plan's price")
	require.Contains(t, b.send(t, "POST", ofCustomer+"/preview", `{"base_price":5}`).body, `"currency":"CHF"`, "the preview has the same default")
}

// TestNullEffectiveFromIsRefused checks that null is refused as effective_from in each request that accepts the field.
// In responses, null stands for the beginning. The default of requests is another time.
func TestNullEffectiveFromIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`)
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	for _, c := range [][3]string{
		{"PUT", "/v1/meters/calls/pricing", `"overage_rate":1`},
		{"POST", "/v1/meters/calls/pricing/preview", `"overage_rate":1`},
		{"PUT", "/v1/plans/pro/pricing/calls", `"overage_rate":1`},
		{"POST", "/v1/plans/pro/pricing/calls/preview", `"overage_rate":1`},
		{"PUT", "/v1/customers/acme/pricing/calls", `"overage_rate":1`},
		{"POST", "/v1/customers/acme/pricing/calls/preview", `"overage_rate":1`},
		{"POST", "/v1/customers/acme/pricing/calls/end", `"confirm":""`},
		{"PUT", "/v1/customers/acme/plan", `"plan":"pro"`},
	} {
		p := b.send(t, c[0], c[1], `{`+c[2]+`,"effective_from":null}`).problem(t, 422, "invalid")
		require.Equal(t, []api.FieldProblem{{Location: "body.effective_from", Message: "must not be null; omit it for the default"}}, p.Errors, c[1])
	}
	require.NotContains(t, b.send(t, "GET", "/v1/audit-log", "").body, `"price.set"`)
}

func TestFuturePriceVersionCanBeWithdrawnOrReplaced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`)
	for _, path := range []string{"/v1/meters/calls/pricing", "/v1/plans/pro/pricing/calls"} {
		first := b.pricing(t, "PUT", path, `{"overage_rate":1}`).Versions[0].Version
		b.pricing(t, "PUT", path, `{"overage_rate":2}`)
		p := b.pricing(t, "PUT", path, `{"overage_rate":3}`)
		require.Equal(t, []int64{first, first + 2}, versionsOf(p), "two never begin at once")
		require.Equal(t, "3", p.Versions[1].OverageRate.String())

		withdraw := func(version int64) answer { return b.send(t, "DELETE", fmt.Sprintf("%s/%d", path, version), "") }
		require.Contains(t, withdraw(first).problem(t, 409, "conflict").Detail, "has taken effect")
		withdraw(first+1).problem(t, 404, "not_found")
		withdraw(99).problem(t, 404, "not_found")
		require.Equal(t, 200, withdraw(first+2).status)
		require.Equal(t, []int64{first}, versionsOf(b.pricing(t, "GET", path, "")))
		withdraw(first+2).problem(t, 404, "not_found")
		require.Equal(t, []int64{first, first + 3}, versionsOf(b.pricing(t, "PUT", path, `{"overage_rate":4}`)), "a number is given once")
	}
	b.ahead.Store(int64(32 * 24 * time.Hour))
	require.Equal(t, "4", b.pricing(t, "GET", "/v1/meters/calls/pricing", "").Current.OverageRate.String())
	b.send(t, "DELETE", "/v1/meters/calls/pricing/4", "").problem(t, 409, "conflict")
}

// TestPriceOfRunningPeriodRequiresConfirmation checks that the confirmation lists the changes, computed by the rules
// that charge the price.
func TestPriceOfRunningPeriodRequiresConfirmation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.meter(t, "other", "other")
	b.pricing(t, "PUT", "/v1/meters/other/pricing", `{"overage_rate":100}`)
	b.pricing(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":0.125}`)
	b.ingest(t, "/v1/events/batch", `{"events":[{"customer_id":"a","event_type":"call","value":4},{"customer_id":"b","event_type":"call","value":3},
		{"customer_id":"c","event_type":"other"},{"customer_id":"d","event_type":"call","value":0}]}`)
	period := billing.CalendarPeriod(b.now(), time.UTC)
	start := period.Start.Format(time.RFC3339)
	const path = "/v1/meters/calls/pricing"
	// Before: 0.5 and 0.375, rounded to 0.38, in total 0.88. At double the rate: 1 and 0.75, in total 1.75.
	c := b.unconfirmed(t, "PUT", path, `{"overage_rate":0.25,"effective_from":"`+start+`"}`)
	require.Equal(t, "USD 0.88 1.75 2", changesOf(c))
	require.Equal(t, 4, c.Customers, "the other two are charged so for what they use from now on")
	require.Equal(t, []api.ChangedPeriods{{Start: period.Start, End: period.End, Customers: 4}}, c.Periods)
	require.Empty(t, c.Uncounted)
	require.Equal(t, "CHF 0 40 4, USD 0.88 0 2", changesOf(b.unconfirmed(t, "PUT", path, `{"base_price":10,"currency":"CHF","effective_from":"`+start+`"}`)))
	require.Len(t, b.pricing(t, "GET", path, "").Versions, 1)
	justNow := period.Start.Add(time.Second).Format(time.RFC3339)
	require.Equal(t, 200, b.send(t, "PUT", path, `{"overage_rate":9,"effective_from":"`+justNow+`"}`).status, "no period has begun since")

	require.Contains(t, b.send(t, "GET", "/v1/billing/revenue", "").body, `"amount":100.88`)
	from := `,"effective_from":"` + start + `"}`
	require.Equal(t, "0.25", b.pricing(t, "PUT", path, `{"overage_rate":0.25`+from).Current.OverageRate.String())
	require.Contains(t, b.send(t, "GET", "/v1/billing/revenue", "").body, `"amount":101.75`)
	require.Equal(t, []int64{1, 2, 4}, versionsOf(b.pricing(t, "PUT", path, `{"overage_rate":0.5`+from)), "what was wrong from the period's start on can be mended")
	require.Contains(t, b.send(t, "GET", "/v1/billing/revenue", "").body, `"amount":103.5`)

	// Amounts exclude events that are not counted yet.
	b.ingest(t, "/v1/events", `{"customer_id":"a","event_type":"stored","value":4}`)
	b.meter(t, "storage", "stored")
	c = b.unconfirmed(t, "PUT", "/v1/meters/storage/pricing", `{"overage_rate":2}`)
	require.Empty(t, changesOf(c))
	require.Equal(t, []string{b.meterID(t, "storage")}, c.Uncounted)
	b.send(t, "POST", "/v1/meters/storage/pricing/preview", `{"overage_rate":2}`).problem(t, 503, "meter_backfilling")
}

// TestPricePreviewShowsChargesAndSetsNoPrice checks that a preview uses the rules that charge the price, and sets no
// price.
func TestPricePreviewShowsChargesAndSetsNoPrice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`)
	b.ingest(t, "/v1/events/batch", `{"events":[{"customer_id":"a","event_type":"call","value":4},{"customer_id":"b","event_type":"call","value":3}]}`)
	b.send(t, "PUT", "/v1/customers/b/plan", `{"plan":"pro"}`)
	const path = "/v1/meters/calls/pricing"
	preview := func(path, body string) (p client.PricePreview) {
		t.Helper()
		a := b.send(t, "POST", path+"/preview", body)
		require.Equal(t, 200, a.status, a.body)
		require.NoError(t, json.Unmarshal([]byte(a.body), &p))
		return p
	}
	impact := func(currency, before, after string, largest ...client.CustomerImpact) []client.PreviewedImpact {
		return []client.PreviewedImpact{{Currency: currency, Before: json.Number(before), After: json.Number(after), Customers: int64(len(largest)), Largest: largest}}
	}
	of := func(customer, before, after string) client.CustomerImpact {
		return client.CustomerImpact{ExternalId: customer, Before: json.Number(before), After: json.Number(after)}
	}
	first := preview(path, `{"overage_rate":0.125}`)
	require.Nil(t, first.EffectiveFrom, "a first price holds from the beginning")
	require.Equal(t, impact("USD", "0", "0.88", of("a", "0", "0.5"), of("b", "0", "0.38")), first.Changes) // 0.5 and 0.375, rounded to 0.38
	require.Equal(t, first.Changes, first.IfInForce)
	require.Empty(t, b.pricing(t, "GET", path, "").Versions, "nothing is set")

	b.pricing(t, "PUT", path, `{"overage_rate":0.125}`)
	next := preview(path, `{"overage_rate":0.25}`)
	require.True(t, billing.CalendarPeriod(b.now(), time.UTC).End.Equal(*next.EffectiveFrom))
	require.Empty(t, next.Changes, "it begins with the next period")
	require.Equal(t, impact("USD", "0.88", "1.75", of("a", "0.5", "1"), of("b", "0.38", "0.75")), next.IfInForce)
	start := billing.CalendarPeriod(b.now(), time.UTC).Start.Format(time.RFC3339)
	require.Equal(t, next.IfInForce, preview(path, `{"overage_rate":0.25,"effective_from":"`+start+`"}`).Changes)
	require.Equal(t, impact("USD", "0.38", "3", of("b", "0.38", "3")), preview("/v1/plans/pro/pricing/calls", `{"overage_rate":1}`).Changes, "of who has the plan")

	p := b.send(t, "POST", path+"/preview", `{"included_units":1}`).problem(t, 422, "invalid")
	require.Equal(t, "body", p.Errors[0].Location)
}

// TestAPreviewListsTheCustomersWithTheLargestDifferences previews a price that charges eleven
// customers more and one customer less.
func TestAPreviewListsTheCustomersWithTheLargestDifferences(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.pricing(t, "PUT", "/v1/meters/calls/pricing", `{"base_price":20,"overage_rate":1}`)
	var events []string
	for n := range 11 {
		events = append(events, fmt.Sprintf(`{"customer_id":"c%d","event_type":"call","value":%d}`, n, 6+n))
	}
	b.ingest(t, "/v1/events/batch", `{"events":[`+strings.Join(events, ",")+`,{"customer_id":"d","event_type":"call","value":1}]}`)
	a := b.send(t, "POST", "/v1/meters/calls/pricing/preview", `{"base_price":10,"overage_rate":3}`)
	var p client.PricePreview
	require.NoError(t, json.Unmarshal([]byte(a.body), &p), a.body)
	require.Len(t, p.IfInForce, 1)
	var shown []string
	for _, c := range p.IfInForce[0].Largest {
		shown = append(shown, fmt.Sprintf("%s %s %s", c.ExternalId, c.Before, c.After))
	}
	require.Equal(t, []string{
		"c10 36 58", "c9 35 55", "c8 34 52", "c7 33 49", "c6 32 46", "c5 31 43", "c4 30 40", "c3 29 37", "d 21 13", "c2 28 34",
	}, shown, "the differences of c3 and d are equal, and d is newer")
	require.Equal(t, int64(12), p.IfInForce[0].Customers)
}

func TestThePricesOfMetersAreListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, slug := range []string{"a", "b", "c", "free"} {
		b.meter(t, slug, "call")
	}
	b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`)
	for i, slug := range []string{"c", "a", "b"} {
		b.pricing(t, "PUT", "/v1/meters/"+slug+"/pricing", fmt.Sprintf(`{"overage_rate":%d}`, i))
		b.pricing(t, "PUT", "/v1/meters/"+slug+"/pricing", `{"overage_rate":9}`)
	}
	b.pricing(t, "PUT", "/v1/plans/pro/pricing/b", `{"base_price":5}`)
	list := func(query string) (page client.ListPricing) {
		t.Helper()
		a := b.send(t, "GET", "/v1/pricing"+query, "")
		require.Equal(t, 200, a.status, a.body)
		require.NoError(t, json.Unmarshal([]byte(a.body), &page))
		return page
	}
	shown := func(page client.ListPricing) (lines []string) {
		for _, p := range page.Data {
			lines = append(lines, fmt.Sprintf("%s %s of %d", p.MeterSlug, p.Current.OverageRate, len(p.Versions)))
		}
		return lines
	}
	first := list("?page_size=2")
	require.Equal(t, []string{"a 1 of 2", "b 2 of 2"}, shown(first))
	require.Equal(t, []string{"c 0 of 2"}, shown(list("?page_size=2&page_token="+*first.NextPageToken)))
	require.Equal(t, []string{"b 0 of 1"}, shown(list("?plan=pro")))
	b.send(t, "GET", "/v1/pricing?plan=none", "").problem(t, 404, "not_found")
}
