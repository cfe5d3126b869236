package api_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestListsExcludeArchivedResources(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`)
	for list, one := range map[string]string{"/v1/customers": "acme", "/v1/meters": "calls", "/v1/plans": "pro"} {
		path := list + "/" + one
		require.Contains(t, b.send(t, "GET", path, "").body, `"archived_at":null`)
		for range 2 {
			a := b.send(t, "POST", path+"/archive", "")
			require.Equal(t, 200, a.status, a.body)
			require.Contains(t, a.body, `"archived_at":"20`)
			require.NotContains(t, b.send(t, "GET", list, "").body, one)
			require.Contains(t, b.send(t, "GET", list+"?archived=true", "").body, one)
			require.Contains(t, b.send(t, "GET", path, "").body, one)
		}
		if list == "/v1/plans" {
			b.send(t, "PUT", "/v1/customers/acme/plan", `{"plan":"pro"}`).problem(t, 422, "invalid")
		}
		require.Contains(t, b.send(t, "POST", path+"/unarchive", "").body, `"archived_at":null`)
		require.Contains(t, b.send(t, "GET", list, "").body, one)
		b.send(t, "POST", list+"/nobody/archive", "").problem(t, 404, "not_found")
		b.send(t, "POST", list+"/nobody/unarchive", "").problem(t, 404, "not_found")
	}
	for _, noun := range []string{"customer", "meter", "plan"} {
		require.Len(t, b.audited(t, noun+".archive"), 1, "again changes nothing")
		require.Len(t, b.audited(t, noun+".unarchive"), 1)
	}
}

func TestAnArchivedMeterCountsNoFurtherEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":5}`)
	b.send(t, "POST", "/v1/meters/calls/archive", "")
	result := b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":3}`)
	require.Equal(t, []string{`the meter of event type "call" is archived: the event is stored but not counted until meter "calls" is unarchived or another meter for the type is created`}, result.Warnings)
	require.Equal(t, `{"total":5}`, b.total(t, "acme"))
	require.Contains(t, b.send(t, "GET", "/v1/usage/summary?customer=acme&start=2020-01-01T00:00:30Z", "").body, `"total_usage":5`, "where hours are cut too")
	require.Contains(t, b.send(t, "GET", "/v1/usage?meter=calls&customer=acme&start=2020-01-01T00:00:30Z", "").body, `"total":5`)
	b.send(t, "PATCH", "/v1/meters/calls", `{"aggregation":"count"}`).problem(t, 409, "conflict")
	require.Equal(t, 200, b.send(t, "PATCH", "/v1/meters/calls", `{"name":"Calls"}`).status)

	b.send(t, "PATCH", "/v1/tenant", `{"strict":true}`)
	b.send(t, "POST", "/v1/events", `{"event_type":"call","customer_id":"acme"}`).problem(t, 422, "invalid")
	b.send(t, "PATCH", "/v1/tenant", `{"strict":false}`)
	require.Contains(t, b.send(t, "POST", "/v1/meters/calls/unarchive", "").body, `"status":"backfilling"`)
}

// TestMeterCanBeArchivedDuringItsBackfill checks that a meter can be archived during its backfill, which then
// ends. Events that the backfill has not counted are counted by a new backfill after the meter is unarchived. If the
// backfill was of a changed definition, the meter keeps the previous one.
func TestMeterCanBeArchivedDuringItsBackfill(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":5}`)
	b.meter(t, "calls", "call")
	meter, err := b.store.Meters.Get(t.Context(), b.tenant.ID, "calls")
	require.NoError(t, err)
	require.Equal(t, metering.Backfilling, meter.Version.Status)
	archived := b.send(t, "POST", "/v1/meters/calls/archive", "")
	require.Contains(t, archived.body, `"status":"complete"`)
	require.NotContains(t, archived.body, `"archived_at":null`)
	require.Equal(t, `{"total":0}`, b.total(t, "acme"))
	require.Contains(t, b.send(t, "GET", "/v1/usage/summary?customer=acme&start=2020-01-01T00:00:30Z", "").body, `"total_usage":0`, "where hours are cut too")
	require.NoError(t, b.store.Backfills.Complete(t.Context(), b.tenant.ID, meter.Version.ID), "its run ends without an error")
	require.Equal(t, `{"total":0}`, b.total(t, "acme"))

	require.Contains(t, b.send(t, "POST", "/v1/meters/calls/unarchive", "").body, `"status":"backfilling"`)
	require.Equal(t, 503, b.send(t, "GET", "/v1/usage/total?customer=acme&meter=calls", "").status, "its first backfill is not over: periods do not close without it")
	b.countPast(t, t)
	require.Equal(t, `{"total":5}`, b.total(t, "acme"))

	require.Contains(t, b.send(t, "PATCH", "/v1/meters/calls", `{"aggregation":"count"}`).body, `"status":"backfilling"`)
	archived = b.send(t, "POST", "/v1/meters/calls/archive", "")
	require.Contains(t, archived.body, `"status":"complete"`)
	require.Equal(t, `{"total":5}`, b.total(t, "acme"), "as the version that was read has counted")
	updates := b.audited(t, "meter.update") // newest first
	require.Len(t, updates, 2)
	require.JSONEq(t, `{"aggregation":"count"}`, string(updates[0].Before))
	require.JSONEq(t, `{"aggregation":"sum"}`, string(updates[0].After))
	require.NotContains(t, b.send(t, "POST", "/v1/meters/calls/unarchive", "").body, `"aggregation":"count"`, "the change is canceled")
	b.countPast(t, t)
	require.Equal(t, `{"total":5}`, b.total(t, "acme"))

	b.send(t, "POST", "/v1/meters/calls/archive", "")
	require.Len(t, b.audited(t, "meter.update"), 2, "no change was being backfilled")
	b.send(t, "POST", "/v1/meters/calls/unarchive", "")
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":5}`)
	b.send(t, "POST", "/v1/meters/calls/archive", "")
	require.Equal(t, `{"total":5}`, b.total(t, "acme"), "the version that is read was archived before the event came")
	require.Contains(t, b.send(t, "GET", "/v1/usage/summary?customer=acme&start=2020-01-01T00:00:30Z", "").body, `"total_usage":5`, "where hours are cut too")
}

func TestNewEventUnarchivesItsCustomer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	sent := `{"event_type":"call","customer_id":"acme","idempotency_key":"k1"}`
	b.ingest(t, "/v1/events", sent)
	b.send(t, "POST", "/v1/customers/acme/archive", "")
	b.ingest(t, "/v1/events", sent)
	require.NotContains(t, b.send(t, "GET", "/v1/customers", "").body, "acme", "a repeat is no usage")
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme"}`)
	require.Contains(t, b.send(t, "GET", "/v1/customers", "").body, "acme")
	require.Equal(t, `{"total":2}`, b.total(t, "acme"))
	require.Len(t, b.audited(t, "customer.unarchive"), 1)
}

// TestArchivedOrErasedCustomerIsChargedBasePrices checks that a customer is still charged base prices after it is
// archived or erased, and after its plan and meter are archived. Archiving affects lists, and erasing affects names;
// neither affects charges. Assigning a plan with a base price of 0 ends the charges.
func TestArchivedOrErasedCustomerIsChargedBasePrices(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	must := func(method, path, body string) string {
		t.Helper()
		answer := b.confirmed(t, method, path, body)
		require.Less(t, answer.status, 300, answer.body)
		return answer.body
	}
	estimated := func(want string) {
		t.Helper()
		require.Contains(t, must("GET", "/v1/billing/revenue", ""), `"estimated":`+want+`,`)
	}
	must("PUT", "/v1/meters/calls/pricing", `{"base_price":9}`)
	for slug, price := range map[string]string{"pro": "25", "former": "0"} {
		must("POST", "/v1/plans", `{"slug":"`+slug+`"}`)
		must("PUT", "/v1/plans/"+slug+"/pricing/calls", `{"base_price":`+price+`}`)
	}
	must("POST", "/v1/customers", `{"external_id":"acme"}`)
	estimated("9")
	must("PUT", "/v1/customers/acme/plan", `{"plan":"pro","effective_from":"2020-01-01T00:00:00Z"}`)
	for _, archived := range []string{"/v1/customers/acme", "/v1/plans/pro", "/v1/meters/calls"} {
		must("POST", archived+"/archive", "")
		require.Equal(t, "25 USD", b.preview(t), archived)
		estimated("25")
	}
	var erased struct {
		ExternalID string `json:"external_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(must("POST", "/v1/customers/acme/erase", `{"confirm":"acme","reason":"asked for"}`)), &erased))
	estimated("25")
	must("PUT", "/v1/customers/"+erased.ExternalID+"/plan", `{"plan":"former","effective_from":"2020-01-01T00:00:00Z"}`)
	estimated("0")
}
