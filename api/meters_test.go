package api_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

// sent sends a request about a meter, checks the status and returns the meter of the response.
func (b *bundle) sent(t *testing.T, status int, method, path, body string) (m client.Meter) {
	t.Helper()
	a := b.send(t, method, path, body)
	require.Equal(t, status, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &m))
	return m
}

func TestMeterStoresAndShowsUsageScale(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Zero(t, b.sent(t, 201, "POST", "/v1/meters", `{"slug":"whole","event_type":"call"}`).UsageScale)
	require.EqualValues(t, 3, b.sent(t, 201, "POST", "/v1/meters", `{"slug":"calls","event_type":"call","usage_scale":3}`).UsageScale)
	require.EqualValues(t, 3, b.sent(t, 200, "PATCH", "/v1/meters/calls", `{"name":"Calls"}`).UsageScale, "it was not named")
	require.EqualValues(t, 6, b.sent(t, 200, "PATCH", "/v1/meters/calls", `{"usage_scale":6}`).UsageScale)
	require.Zero(t, b.sent(t, 200, "PATCH", "/v1/meters/calls", `{"usage_scale":0}`).UsageScale)
	for _, odd := range []string{"-1", "7", "1.5", `"3"`, "4294967296"} {
		for _, p := range []struct{ method, path, body string }{
			{"POST", "/v1/meters", `{"slug":"odd","event_type":"call","usage_scale":` + odd + `}`},
			{"PATCH", "/v1/meters/calls", `{"usage_scale":` + odd + `}`},
		} {
			require.Equal(t, "body.usage_scale", b.send(t, p.method, p.path, p.body).problem(t, 422, "invalid").Errors[0].Location, odd)
		}
	}
	require.Equal(t, "Calls", b.sent(t, 200, "GET", "/v1/meters/calls", "").Name)
	require.Zero(t, b.sent(t, 200, "GET", "/v1/meters/calls", "").UsageScale)
}

func TestUsageScaleChangeStartsNoBackfillAndPutsCustomersOutOfSync(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.at(t, b.now().UTC().Format(time.RFC3339), "a", "1.2345")
	acme := b.reported(t)
	outOfSync := func() []metering.CustomerID {
		page, err := b.store.Ledger.OutOfSync(t.Context(), b.tenant.ID, 0, 10, b.now())
		require.NoError(t, err)
		return page.Customers
	}
	require.Empty(t, outOfSync())
	before, err := b.store.Meters.Get(t.Context(), b.tenant.ID, "calls")
	require.NoError(t, err)

	require.EqualValues(t, "complete", b.sent(t, 200, "PATCH", "/v1/meters/calls", `{"usage_scale":3}`).Status)
	after, err := b.store.Meters.Get(t.Context(), b.tenant.ID, "calls")
	require.NoError(t, err)
	require.Equal(t, before.Version, after.Version)
	require.Empty(t, b.temporal.started, "there is nothing to count")
	require.Equal(t, []metering.CustomerID{acme}, outOfSync())
	require.Contains(t, b.send(t, "GET", "/v1/audit-log", "").body, `"meter.update"`)

	b.sent(t, 200, "PATCH", "/v1/meters/calls", `{"usage_scale":0}`)
	require.Empty(t, outOfSync(), "that is what the provider knows")
}

// reported saves a provider and completes a report of acme's usage as accepted.
func (b *bundle) reported(t *testing.T) metering.CustomerID {
	t.Helper()
	planned := b.planned(t)
	require.NoError(t, b.store.Ledger.Complete(t.Context(), b.tenant.ID, planned.Leased.ReportID, billing.Accepted, "tested", b.now()))
	acme, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	return acme.ID
}

// TestChangedMeterIsShownWithNewDefinition checks that a changed meter is shown with its new definition. Until the
// new definition applies, the meter also shows the current one.
func TestChangedMeterIsShownWithNewDefinition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "model")
	b.meter(t, "other", "other")
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","properties":{"model":"a","region":"eu"}}`)
	patched := b.sent(t, 200, "PATCH", "/v1/meters/calls", `{"group_by":["region"],"aggregation":"count"}`)
	require.Equal(t, []string{"region"}, patched.GroupBy)
	require.Equal(t, "count backfilling", string(patched.Aggregation)+" "+string(patched.Status))
	require.Equal(t, []string{"model"}, patched.Current.GroupBy)
	require.EqualValues(t, "sum", patched.Current.Aggregation)
	require.Equal(t, patched, b.sent(t, 200, "GET", "/v1/meters/calls", ""))
	var list client.ListMeter
	require.NoError(t, json.Unmarshal([]byte(b.send(t, "GET", "/v1/meters", "").body), &list))
	require.Equal(t, patched, list.Data[0])
	require.Nil(t, list.Data[1].Current)
	require.Nil(t, list.Data[1].Backfill)
	require.Zero(t, patched.Backfill.CountedDays)
	require.Zero(t, patched.Backfill.Days, "no worker has started")
	next, err := b.store.Meters.Next(t.Context(), b.tenant.ID)
	require.NoError(t, err)
	for _, version := range next {
		days, err := b.store.Backfills.Plan(t.Context(), b.tenant.ID, version.ID)
		require.NoError(t, err)
		require.EqualValues(t, len(days), b.sent(t, 200, "GET", "/v1/meters/calls", "").Backfill.Days)
		_, err = b.store.Backfills.CountDay(t.Context(), b.tenant.ID, version.ID, days[0])
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, b.sent(t, 200, "GET", "/v1/meters/calls", "").Backfill.CountedDays)
	require.Equal(t, 200, b.send(t, "GET", "/v1/usage?meter=calls&customer=acme&filter.model=a", "").status, "that is how it counts until then")
}
