package api_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
)

// preview returns the previewed amount and the currency of acme's only meter.
func (b *bundle) preview(t *testing.T) string {
	t.Helper()
	answer := b.send(t, http.MethodGet, "/v1/billing/preview?customer=acme", "")
	var items []client.PreviewItem
	require.NoError(t, json.Unmarshal([]byte(answer.body), &items), answer.body)
	require.Len(t, items, 1)
	return items[0].Amount.String() + " " + items[0].Currency
}

func TestPlanPriceReplacesMeterPrice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	must := func(status int, method, path, body string) string {
		answer := b.confirmed(t, method, path, body)
		require.Equal(t, status, answer.status, "%s %s: %s", method, path, answer.body)
		return answer.body
	}
	b.at(t, b.now().UTC().Format(time.RFC3339), "a", "142")
	must(200, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":1}`)
	must(201, "POST", "/v1/plans", `{"slug":"pro","name":"Pro"}`)
	must(409, "POST", "/v1/plans", `{"slug":"pro"}`)
	must(422, "POST", "/v1/plans", `{"slug":"No"}`)
	require.Contains(t, must(200, "GET", "/v1/plans", ""), `"slug":"pro"`)
	must(404, "GET", "/v1/plans/contra", "")
	must(404, "PUT", "/v1/plans/pro/pricing/nothing", `{}`)
	must(422, "PUT", "/v1/plans/pro/pricing/calls", `{"base_price":-1}`)
	require.Contains(t, must(200, "PUT", "/v1/plans/pro/pricing/calls",
		`{"base_price":10,"included_units":100,"overage_rate":0.005,"currency":"CHF"}`), `"effective_from":null`)
	require.Equal(t, "142 USD", b.preview(t))
	require.Contains(t, must(200, "GET", "/v1/customers/acme/plan", ""), `"plan":null,"versions":[]`)

	must(404, "PUT", "/v1/customers/acme/plan", `{"plan":"contra"}`)
	must(422, "PUT", "/v1/customers/acme/plan", `{}`)
	require.Contains(t, must(200, "PUT", "/v1/customers/acme/plan", `{"plan":"pro"}`), `"plan":"pro"`)
	require.Equal(t, "10.21 CHF", b.preview(t), "a customer made in this period has it at once")
	require.Contains(t, must(200, "GET", "/v1/meters/calls/pricing", ""), `"overage_rate":1`)

	b.ahead.Store(int64(32 * 24 * time.Hour))
	require.Contains(t, must(200, "PUT", "/v1/customers/acme/plan", `{"plan":null}`), `"plan":"pro"`, "until the next period")
	b.ahead.Store(int64(64 * 24 * time.Hour))
	require.Contains(t, must(200, "GET", "/v1/customers/acme/plan", ""), `"plan":null`)
	require.Equal(t, "0 USD", b.preview(t))
	require.Contains(t, must(200, "GET", "/v1/audit-log", ""), `"plan.assign"`)
}

// TestAPlanStartsWithTheNextPeriodOfAnyBillingSchedule checks the default start of an assignment for a customer with
// two billing schedules. Each schedule is charged at the plan's prices from its next period on.
func TestAPlanStartsWithTheNextPeriodOfAnyBillingSchedule(t *testing.T) {
	t.Parallel()
	b, month := setup(t).twoSchedules(t)
	b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`)
	b.pricing(t, "PUT", "/v1/plans/pro/pricing/calls", `{"overage_rate":2}`)
	assigned := b.send(t, "PUT", "/v1/customers/acme/plan", `{"plan":"pro"}`)
	require.Equal(t, 200, assigned.status, "no begun period is charged: %s", assigned.body)
	var plan client.CustomerPlan
	require.NoError(t, json.Unmarshal([]byte(assigned.body), &plan))
	require.Equal(t, month.End, plan.Versions[0].EffectiveFrom)
	require.Nil(t, plan.Plan)
}

func TestPlanOfRunningPeriodRequiresConfirmation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.pricing(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":1}`)
	b.at(t, b.now().UTC().Format(time.RFC3339), "a", "142")
	b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`)
	b.pricing(t, "PUT", "/v1/plans/pro/pricing/calls", `{"overage_rate":2}`)

	const path, from = "/v1/customers/acme/plan", `{"plan":"pro","effective_from":"2020-01-01T00:00:00Z"}`
	require.Equal(t, "USD 142 284 1", changesOf(b.unconfirmed(t, "PUT", path, from)))
	require.Equal(t, "USD 142 284 1", changesOf(b.unconfirmed(t, "PUT", path, `{"plan":"pro"}`)), "from the start of the period that the customer was made in")
	require.Equal(t, "142 USD", b.preview(t), "nothing is stored")
	require.Equal(t, 200, b.confirmed(t, "PUT", path, from).status)
	require.Equal(t, "284 USD", b.preview(t))
	require.Equal(t, 200, b.send(t, "PUT", path, from).status, "it changes nothing any more")

	b.ingest(t, "/v1/events", `{"customer_id":"acme","event_type":"stored"}`)
	b.meter(t, "storage", "stored")
	require.Equal(t, []string{b.meterID(t, "storage")}, b.unconfirmed(t, "PUT", path, `{"plan":null,"effective_from":"2020-01-01T00:00:00Z"}`).Uncounted)
	soon := b.now().Add(time.Hour).UTC().Format(time.RFC3339)
	require.Equal(t, 200, b.send(t, "PUT", path, `{"plan":null,"effective_from":"`+soon+`"}`).status)
}
