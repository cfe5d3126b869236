package api_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

type shownAutoSync struct {
	Enabled   bool
	Schedule  string
	Paused    bool
	AppliedAt *time.Time  `json:"applied_at"`
	NextRuns  []time.Time `json:"next_runs"`
	LastRuns  []struct {
		WorkflowID string `json:"workflow_id"`
		Status     string
		Outcome    map[string]int
	} `json:"last_runs"`
}

// autoSync reads or changes the automatic sync, and returns the result.
func (b *bundle) autoSync(t *testing.T, method, body string) (shown shownAutoSync) {
	t.Helper()
	a := b.send(t, method, "/v1/billing/auto-sync", body)
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &shown))
	return shown
}

func TestAutoSyncFollowsItsSettings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, shownAutoSync{Schedule: "hourly", NextRuns: []time.Time{}, LastRuns: b.autoSync(t, http.MethodGet, "").LastRuns}, b.autoSync(t, http.MethodGet, ""))
	b.send(t, http.MethodPost, "/v1/billing/auto-sync/trigger", "").problem(t, 409, "conflict")
	b.send(t, http.MethodPut, "/v1/billing/auto-sync", `{"enabled":true,"schedule":"now and then"}`).problem(t, 422, "invalid")

	saved := b.autoSync(t, http.MethodPut, `{"enabled":true,"schedule":"*/15 8-18 * * 1-5"}`)
	require.True(t, saved.Enabled)
	require.NotNil(t, saved.AppliedAt)
	require.Len(t, saved.NextRuns, 1)
	require.Equal(t, 202, b.send(t, http.MethodPost, "/v1/billing/auto-sync/trigger", "").status)
	begun := b.autoSync(t, http.MethodGet, "").LastRuns
	require.Len(t, begun, 1)
	require.Empty(t, begun[0].Status, "Temporal does not say")
	b.temporal.runs.begin(begun[0].WorkflowID)
	require.Equal(t, "running", b.autoSync(t, http.MethodGet, "").LastRuns[0].Status)
	b.temporal.runs.end(begun[0].WorkflowID, workflows.BulkSyncResult{Customers: 12, Sent: 9, Failed: 2, Busy: 1, Closed: 3})
	ended := b.autoSync(t, http.MethodGet, "").LastRuns[0]
	require.Equal(t, "succeeded", ended.Status)
	require.Equal(t, map[string]int{"customers": 12, "reports": 9, "failed": 2, "busy": 1, "closed": 3}, ended.Outcome)
	require.Equal(t, "15m", b.autoSync(t, http.MethodPut, `{"enabled":true,"schedule":"15m"}`).Schedule)
	require.Equal(t, []time.Duration{15 * time.Minute}, b.temporal.schedules.every(), "the schedule follows")
	often := b.send(t, http.MethodPut, "/v1/billing/auto-sync", `{"enabled":true,"schedule":"4m"}`)
	often.problem(t, 422, "invalid")
	require.Contains(t, often.body, "a duration of whole minutes from 5m to 24h")
	require.True(t, b.autoSync(t, http.MethodPut, `{"enabled":true,"schedule":"daily","paused":true}`).Paused)
	require.Empty(t, b.temporal.schedules.every())
	require.False(t, b.autoSync(t, http.MethodPut, `{"enabled":false,"schedule":"daily"}`).Enabled)
	require.Empty(t, b.temporal.schedules.all)
}

func TestAutoSyncSettingsSavedWithoutTemporalAreAppliedLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.temporal.down.Store(true)
	saved := b.autoSync(t, http.MethodPut, `{"enabled":true,"schedule":"hourly"}`)
	require.True(t, saved.Enabled)
	require.Nil(t, saved.AppliedAt)
	b.send(t, http.MethodPost, "/v1/billing/auto-sync/trigger", "").problem(t, 503, "unavailable")
	list, err := b.store.AutoSyncs.ToApply(t.Context(), false)
	require.NoError(t, err)
	found := false
	for _, a := range list {
		found = found || a.Tenant.ID == b.tenant.ID
	}
	require.True(t, found, "the worker applies them")
}

func TestAutoSyncSettingsMissingInScheduleAreNotShownAsApplied(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NotNil(t, b.autoSync(t, http.MethodPut, `{"enabled":true,"schedule":"hourly"}`).AppliedAt)
	b.temporal.schedules.drops.Store(true)
	require.Nil(t, b.autoSync(t, http.MethodPut, `{"enabled":true,"schedule":"daily"}`).AppliedAt)
	b.temporal.schedules.drops.Store(false)
	require.NotNil(t, b.autoSync(t, http.MethodPut, `{"enabled":true,"schedule":"daily"}`).AppliedAt)
}

func TestSyncsAreListedNewestFirstInPages(t *testing.T) {
	t.Parallel()
	b, other := setup(t), setup(t)
	for _, x := range []*bundle{b, other} {
		c := dbtest.Customer(t, x.store, x.tenant.ID, "acme")
		_, err := x.store.Providers.Save(t.Context(), x.tenant.ID, metering.Operator, metering.Provider{
			Kind: metering.Webhook, Statements: true, Address: "https://billing.example.com/", SealedSecret: []byte("sealed"), LastFour: "abcd", ValidatedAt: b.now(),
		})
		require.NoError(t, err)
		for range 3 {
			_, err := x.store.Syncs.Request(t.Context(), x.tenant.ID, metering.Operator, c.ID, metering.Manual, b.now())
			require.NoError(t, err)
			_, err = x.store.Syncs.Begin(t.Context(), x.tenant.ID, c.ID, b.now()) // so that the next request creates another sync
			require.NoError(t, err)
		}
	}
	type page struct {
		Data []struct {
			ID         string
			ExternalID string `json:"external_id"`
		}
		HasMore       bool    `json:"has_more"`
		NextPageToken *string `json:"next_page_token"`
	}
	read := func(query string) (p page) {
		a := b.send(t, http.MethodGet, "/v1/billing/syncs?"+query, "")
		require.Equal(t, 200, a.status, a.body)
		require.NoError(t, json.Unmarshal([]byte(a.body), &p))
		return p
	}
	all := read("customer=acme")
	require.Len(t, all.Data, 3)
	require.Equal(t, "acme", all.Data[0].ExternalID)
	first := read("page_size=2&status=running")
	require.Equal(t, all.Data[:2], first.Data)
	require.True(t, first.HasMore)
	second := read("page_size=2&status=running&page_token=" + *first.NextPageToken)
	require.Equal(t, all.Data[2:], second.Data)
	require.Empty(t, read("status=failed").Data)
	b.send(t, http.MethodGet, "/v1/billing/syncs?customer=nobody", "").problem(t, 404, "not_found")
}

func TestPeriodsAndRevenueAreEstimatedUntilClosed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	meter := dbtest.Meter(t, b.store, b.tenant.ID, "calls", "call")
	_, err := b.store.Prices.Set(t.Context(), b.tenant.ID, metering.Operator, billing.Price{
		MeterID: meter.ID, Terms: billing.Terms{BasePrice: metering.Whole(10), IncludedUnits: metering.Whole(100), OverageRate: metering.MustDecimal("0.005"), Currency: "USD"},
	})
	require.NoError(t, err)
	_, err = b.writer.Ingest(t.Context(), b.tenant.ID, []metering.Event{
		dbtest.Event(t, "call", "acme", b.now(), "141.75", "", ""), dbtest.Event(t, "call", "globex", b.now(), "1", "", ""),
	})
	require.NoError(t, err)
	_, err = b.store.Providers.Save(t.Context(), b.tenant.ID, metering.Operator, metering.Provider{
		Kind: metering.Webhook, Statements: true, Address: "https://billing.example.com/", SealedSecret: []byte("sealed"), LastFour: "abcd", ValidatedAt: b.now(),
	})
	require.NoError(t, err)
	c, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	a := b.send(t, http.MethodGet, "/v1/billing/periods?customer=acme", "")
	require.Equal(t, 200, a.status, a.body)
	_, err = b.store.Ledger.Plan(t.Context(), b.tenant.ID, c.ID, ledger.Pass{}, dbtest.Frame, b.now())
	require.NoError(t, err)
	stored := b.send(t, http.MethodGet, "/v1/billing/periods?customer=acme", "").body
	require.Regexp(t, `"id":"per_\d+"`, stored)
	require.Equal(t, a.body, regexp.MustCompile(`"id":"per_\d+"`).ReplaceAllString(stored, `"id":null`), "but for its id, before and after its first sync")
	require.Contains(t, a.body, `"closed_at":null`)
	require.Contains(t, a.body, `"usage":141.75`)
	require.Contains(t, a.body, `"amount":10.21`)

	a = b.send(t, http.MethodGet, "/v1/billing/revenue?months=2", "")
	require.Equal(t, 200, a.status, a.body)
	require.Contains(t, a.body, `"amount":20.21,"customers":2`)
	require.Contains(t, a.body, `"currency":"USD"`)
	require.Contains(t, a.body, "invoiced amounts may differ because of proration, discounts or credits at the provider")

	a = b.send(t, http.MethodGet, "/v1/billing/discrepancies", "")
	require.Equal(t, 200, a.status, a.body)
	require.Contains(t, a.body, `"data":[]`)
}
