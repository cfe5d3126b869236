package api_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// failing creates customers of the tenant, each with a failed last sync.
func (b *bundle) failing(t *testing.T, customers int) {
	t.Helper()
	for i := range customers {
		c := dbtest.Customer(t, b.store, b.tenant.ID, fmt.Sprintf("failing-%d", i))
		_, err := b.store.Syncs.Request(t.Context(), b.tenant.ID, metering.Operator, c.ID, metering.Manual, b.now())
		require.NoError(t, err)
		begun, err := b.store.Syncs.Begin(t.Context(), b.tenant.ID, c.ID, b.now())
		require.NoError(t, err)
		_, err = b.store.Syncs.Finish(t.Context(), b.tenant.ID, c.ID, begun.PassID, ledger.Answer{Error: "the webhook answered 400"}, b.now())
		require.NoError(t, err)
	}
}

// listAttention returns a page of the attention list.
func (b *bundle) listAttention(t *testing.T, query string) (page client.AttentionPage) {
	t.Helper()
	a := b.send(t, "GET", "/v1/billing/attention?"+query, "")
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &page))
	return page
}

func TestAttentionItemsAreCountedAndPaged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	b.failing(t, 3)
	first := b.listAttention(t, "page_size=2")
	require.EqualValues(t, 3, first.TotalItems)
	require.Len(t, first.Counts, len(db.AttentionKind("").Values()))
	require.Len(t, first.Causes, 1)
	require.Equal(t, "the webhook answered 400", first.Causes[0].Cause)
	item := first.Data[0]
	require.Equal(t, []string{"sync_failed", "failing-0", "Fix the cause, then sync the customer again. If a report is in state in_doubt, you can also resolve it with POST /v1/billing/reports/{id}/resolve.", "/v1/billing/syncs/" + item.Id},
		[]string{string(item.Kind), item.Customer.ExternalId, item.Action, item.Url})
	second := b.listAttention(t, "page_size=2&page_token="+*first.NextPageToken)
	require.Len(t, second.Data, 1)
	require.False(t, second.HasMore)
	none := b.listAttention(t, "kind=webhook_failing")
	require.Empty(t, none.Data)
	require.EqualValues(t, 3, none.TotalItems, "counts are of all kinds")
	b.send(t, "GET", "/v1/billing/attention?cause=%00", "").problem(t, 422, "invalid")
	b.send(t, "POST", "/v1/billing/attention/retry", `{"customers":["a","b\u0000"]}`).problem(t, 422, "invalid")
	for body, field := range map[string]string{`{"cause":""}`: "body.cause", `{"customers":[]}`: "body.customers"} {
		p := b.send(t, "POST", "/v1/billing/attention/retry", body).problem(t, 422, "invalid")
		require.Equal(t, field, p.Errors[0].Location, "it would retry all")
	}
	b.send(t, "GET", "/v1/billing/attention?kind=bored", "").problem(t, 422, "invalid")
	b.send(t, "GET", "/v1/billing/attention?kind=sync_failed&page_token="+*first.NextPageToken, "").problem(t, 422, "invalid")
}

func TestFailedSyncsAreRetriedOncePerKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	b.failing(t, 3)
	retry := func(body string, headers ...string) (r client.RetriedSyncs) {
		a := b.send(t, "POST", "/v1/billing/attention/retry", body, headers...)
		require.Equal(t, 202, a.status, a.body)
		require.NoError(t, json.Unmarshal([]byte(a.body), &r))
		return r
	}
	require.Equal(t, client.RetriedSyncs{Customers: 1}, retry(`{"customers":["failing-1"]}`, "Idempotency-Key: k"))
	require.Equal(t, client.RetriedSyncs{Customers: 1}, retry(`{"customers":["failing-1"]}`, "Idempotency-Key: k"), "a repeat requests nothing")
	b.send(t, "POST", "/v1/billing/attention/retry", `{}`, "Idempotency-Key: k").problem(t, 422, "invalid")
	require.Equal(t, client.RetriedSyncs{Customers: 3, Joined: 1}, retry(`{"cause":"the webhook answered 400"}`))
	require.Equal(t, client.RetriedSyncs{}, retry(`{"cause":"another"}`))
	require.True(t, b.listAttention(t, "").Data[0].Syncing)
	require.Contains(t, b.send(t, "GET", "/v1/audit-log", "").body, `"action":"sync.retry_failed"`)
}
