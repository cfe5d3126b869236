package db_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/metering"
)

// attention lists all items that need attention, in pages of the given size. It returns the items and
// the last page.
func (b *biller) attention(f db.AttentionFilter, size int) (items []db.AttentionItem, last db.AttentionList) {
	b.Helper()
	for {
		list, err := b.store.Attention.List(b.Context(), b.tenant, f, nil, b.now, size)
		require.NoError(b, err)
		items = append(items, list.Items...)
		if len(list.Items) < size {
			return items, list
		}
		key := list.Items[size-1].Key()
		f.After = &key
	}
}

// fail finishes a sync of the customer with a failure, or successfully if failure is empty.
func (b *biller) fail(customer metering.CustomerID, failure string) {
	b.Helper()
	_, err := b.store.Syncs.Request(b.Context(), b.tenant, "key_1", customer, metering.Manual, b.now)
	require.NoError(b, err)
	begun, err := b.store.Syncs.Begin(b.Context(), b.tenant, customer, b.now)
	require.NoError(b, err)
	_, err = b.store.Syncs.Finish(b.Context(), b.tenant, customer, begun.PassID, ledger.Answer{Error: failure}, b.now)
	require.NoError(b, err)
}

func TestEveryFailingCustomerNeedsAttentionUntilASyncSucceeds(t *testing.T) {
	t.Parallel()
	const failing = 26
	b := newBiller(t)
	began := b.now
	var customers []metering.CustomerID
	for i := range failing {
		customers = append(customers, dbtest.Customer(t, b.store, b.tenant, fmt.Sprintf("customer-%d", i)).ID)
		for range 2 { // Since is the time of the first failure
			b.fail(customers[i], fmt.Sprintf("cause %d", i%2))
			b.now = b.now.Add(time.Minute)
		}
	}
	for _, size := range []int{7, 100} {
		items, last := b.attention(db.AttentionFilter{}, size)
		require.Len(t, items, failing)
		require.EqualValues(t, failing, last.Counts[db.FailedSync])
		require.Len(t, last.Counts, len(db.AttentionKind("").Values()))
		require.Len(t, last.Causes, 2)
		require.EqualValues(t, failing/2, last.Causes[0].Items)
		require.Equal(t, items[0].Cause, items[failing/2-1].Cause, "the items are ordered by cause")
	}
	items, _ := b.attention(db.AttentionFilter{Kind: db.FailedSync, Cause: "cause 0"}, 100)
	require.Len(t, items, failing/2)
	require.Equal(t, "customer-0", items[0].ExternalID)
	require.Equal(t, began.UTC().Truncate(time.Microsecond), items[0].Since.UTC())

	for _, fixed := range customers[6:] {
		b.fail(fixed, "")
	}
	items, last := b.attention(db.AttentionFilter{}, 100)
	require.Len(t, items, 6, "those that still fail, even if later ones were fixed")
	require.EqualValues(t, 6, last.Counts[db.FailedSync])
	require.NoError(t, b.store.Syncs.Record(t.Context(), b.tenant, customers[0], ledger.Answer{}, b.now, b.now))
	items, _ = b.attention(db.AttentionFilter{}, 100)
	require.Len(t, items, 5, "Auto-Sync has synced one")
	other := newBiller(t)
	items, _ = other.attention(db.AttentionFilter{}, 100)
	require.Empty(t, items)
}

func TestFailedSyncShowsAffectedAmount(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.price("10", "0", "2")
	b.use("3")
	b.request()
	begun := b.begin()
	report := b.next(begun.After)
	b.lease(report.ID)
	b.complete(report.ID, billing.Rejected)
	answer := ledger.Answer{Error: "the webhook answered 400"}
	answer.Reports = append(answer.Reports, report.ID)
	b.finish(begun.PassID, answer)
	b.request()
	items, _ := b.attention(db.AttentionFilter{}, 100)
	require.Len(t, items, 1)
	require.Equal(t, []any{db.FailedSync, "the webhook answered 400", "acme", true}, []any{items[0].Kind, items[0].Cause, items[0].ExternalID, items[0].Syncing})
	require.Len(t, items[0].Amounts, 1)
	require.Equal(t, "16 USD", items[0].Amounts[0].Amount.String()+" "+items[0].Amounts[0].Currency)
}

func TestAttentionListContainsEachKind(t *testing.T) {
	t.Parallel()
	b, in := heldBiller(t)
	hold := b.takenHold(in)
	b.decide(b.lookAt(hold), billing.HoldDecision{State: billing.HoldDisagrees, Reasons: []billing.HoldReason{{Code: billing.HoldNotCounted, MeterID: b.meter.ID}}})

	slow := dbtest.Customer(t, b.store, b.tenant, "slow")
	request := func(at time.Time) {
		_, err := b.store.Syncs.Request(t.Context(), b.tenant, "key_1", slow.ID, metering.Manual, at)
		require.NoError(t, err)
	}
	request(b.now.Add(-ledger.SyncDelayedAfter))
	require.Zero(t, func() int64 { _, l := b.attention(db.AttentionFilter{}, 100); return l.Counts["sync_delayed"] }(), "it is not late yet")
	b.exec(`update billing_syncs set requested_at = requested_at - interval '1 s' where tenant_id = $1`, b.tenant)
	b.exec(`insert into usage_discrepancies (tenant_id, customer_id, meter_id, day, rollup_sum, rollup_count, event_sum, event_count, found_at)
		values ($1, 0, $2, '2026-05-04', 1, 1, 2, 2, $3)`, b.tenant, b.meter.ID, b.now)
	for _, url := range []string{"gone", "failing", "off", "well"} {
		_, err := b.store.Webhooks.Create(t.Context(), b.tenant, metering.Operator, metering.Endpoint{
			URL: "https://example.com/" + url, EventTypes: []metering.MessageKind{metering.MessageSyncSucceeded}, Sealed: []byte("sealed"), LastFour: "abcd",
		}, b.now)
		require.NoError(t, err)
	}
	b.exec(`update webhook_endpoints set disabled_at = $2, disabled_because = 'gone' where tenant_id = $1 and url like '%gone'`, b.tenant, b.now)
	b.exec(`update webhook_endpoints set disabled_at = $2, disabled_because = 'tenant' where tenant_id = $1 and url like '%off'`, b.tenant, b.now)
	b.exec(`update webhook_endpoints set failing_since = $2 where tenant_id = $1 and url like '%failing'`, b.tenant, b.now)
	b.exec(`update meter_versions set status = 'backfilling', created_at = $2 where tenant_id = $1`, b.tenant, b.now.Add(-db.BackfillStuckAfter-time.Second))

	items, last := b.attention(db.AttentionFilter{}, 3)
	shown := map[db.AttentionKind][]string{}
	for _, i := range items {
		require.NotEmpty(t, i.Kind.Action())
		shown[i.Kind] = append(shown[i.Kind], fmt.Sprint(i.ID, " ", i.Reference, " ", i.ExternalID, ": ", i.Cause))
		require.EqualValues(t, 1, last.Counts[i.Kind])
	}
	require.Equal(t, map[db.AttentionKind][]string{
		"hold_disagrees":    {hold.String() + " in_1 acme: not counted"},
		"usage_discrepancy": {"2026-05-04/all/" + b.meter.ID.String() + " api-calls : totals differ from the events"},
		"webhook_disabled":  shown["webhook_disabled"],
		"webhook_failing":   shown["webhook_failing"],
		"sync_delayed":      {shown["sync_delayed"][0][:36] + "  slow: no worker has started the sync"},
		"backfill_stuck":    {b.meter.ID.String() + " api-calls : none of its past events was counted for an hour"},
	}, shown)
	require.Contains(t, shown["webhook_disabled"][0], " https://example.com/gone : the receiver answered 410")
	require.Contains(t, shown["webhook_failing"][0], " https://example.com/failing : deliveries fail")
	require.NotNil(t, items[0].Until, "a hold has a deadline")
	require.Len(t, items[0].Amounts, 1)

	b.fail(slow.ID, "refused")
	request(b.now.Add(-time.Hour))
	_, last = b.attention(db.AttentionFilter{}, 100)
	require.Equal(t, []int64{1, 0}, []int64{last.Counts[db.FailedSync], last.Counts["sync_delayed"]}, "a customer is one item")
}

func TestADisputedReconciliationNeedsAttentionUntilItIsDecided(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	period := b.closed(b.month)
	b.storeReconciliation(period, billing.ReconciliationDisputed)
	list := func() db.AttentionList {
		l, err := b.store.Attention.List(t.Context(), b.tenant, db.AttentionFilter{}, nil, b.month.End, 10)
		require.NoError(t, err)
		return l
	}
	found := list()
	require.Len(t, found.Items, 1)
	item := found.Items[0]
	require.Equal(t, []string{period.String() + "/" + b.meter.ID.String(), "calls", "acme", billing.ReasonNotBilled.Text().Message}, []string{item.ID, item.Reference, item.ExternalID, item.Cause})
	require.Len(t, item.Amounts, 1)
	_, err := b.decide(period, billing.Waive, "for the test")
	require.NoError(t, err)
	require.Empty(t, list().Items)
}

func TestFailedSyncsAreRetriedTogether(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	retry := func(f ledger.RetryFilter) ledger.Retried {
		r, err := b.store.Creators().Retries.Failed(t.Context(), b.tenant, "key_1", f, b.now)
		require.NoError(t, err)
		return r
	}
	require.Empty(t, retry(ledger.RetryFilter{}).Customers)
	var customers []metering.CustomerID
	for i := range 5 {
		customers = append(customers, dbtest.Customer(t, b.store, b.tenant, fmt.Sprintf("customer-%d", i)).ID)
		b.fail(customers[i], fmt.Sprintf("cause %d", i%2))
		b.now = b.now.Add(time.Minute)
	}
	b.fail(customers[4], "")
	require.Equal(t, ledger.Retried{Customers: customers[:1]}, retry(ledger.RetryFilter{Customers: []string{"customer-0", "nobody", "customer-4"}}))
	require.Equal(t, ledger.Retried{Customers: []metering.CustomerID{customers[0], customers[2]}, Joined: 1}, retry(ledger.RetryFilter{Cause: "cause 0"}))
	require.Equal(t, ledger.Retried{Customers: customers[:4], Joined: 2}, retry(ledger.RetryFilter{}))
	var rows int
	b.scan(`select count(*) from billing_syncs where tenant_id = $1 and status = 'requested' and trigger = 'manual' and actor = 'key_1'`, []any{b.tenant}, &rows)
	require.Equal(t, 4, rows)
	require.Len(t, b.audited("sync.retry_failed"), 3)

	_, err := newBiller(t).store.Creators().Retries.Failed(t.Context(), dbtest.Tenant(t, b.store).ID, "key_1", ledger.RetryFilter{}, b.now)
	require.Equal(t, metering.CodeNoProvider, metering.CodeOf(err))
}

func TestAnAlertNeedsAttentionUntilItsPeriodEnds(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	list := func(at time.Time) (shown []string) {
		l, err := w.store.Attention.List(t.Context(), w.tenant, db.AttentionFilter{Kind: "alert_triggered"}, nil, at, 10)
		require.NoError(t, err)
		for _, i := range l.Items {
			shown = append(shown, fmt.Sprint(i.ExternalID, " ", i.Cause, ": ", i.Reference, " ", i.Amounts))
			alert, _, _ := strings.Cut(i.ID, "/fir_")
			id, ok := metering.ParseAlertID(alert)
			require.True(t, ok, i.ID)
			require.Equal(t, "/v1/alerts/"+id.String()+"/firings", i.URL)
		}
		require.EqualValues(t, len(shown), l.Counts["alert_triggered"])
		return shown
	}
	usage := w.usage("1", "2", "9")
	usage.Name = "usage"
	usage = w.alert(usage)
	w.price("10", "0", "2")
	w.alert(metering.Alert{Name: "charges", Type: metering.SpendAlert, CustomerID: w.customer.ID, Thresholds: decimals("14"), Currency: "USD"})
	quota := w.limit("4", metering.PerMonth)
	w.alert(metering.Alert{Name: "quota", Type: metering.QuotaAlert, CustomerID: w.customer.ID, MeterID: w.meter.ID, Thresholds: decimals("75")})
	require.Empty(t, list(w.now))
	w.use("3")
	w.evaluate()
	require.ElementsMatch(t, []string{"acme usage: 2 []", "acme charges: 14 USD [{16 USD}]", "acme quota: 75 % []"}, list(w.now))

	require.NoError(t, w.store.Quotas.Delete(t.Context(), w.tenant, metering.Operator, quota.ID))
	_, err := w.store.Alerts.Update(t.Context(), w.tenant, metering.Operator, usage.ID, limits.AlertChange{Thresholds: decimals("1", "9")}, w.now)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"acme usage: 1 []", "acme charges: 14 USD [{16 USD}]"}, list(w.now))
	require.Empty(t, list(w.now.AddDate(0, 0, 31)), "the periods have ended")
}

func TestASilenceNeedsAttentionUntilTheNextEvent(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.alert(metering.Alert{Name: "silence", Type: metering.SilenceAlert, CustomerID: w.customer.ID, Minutes: 60})
	items := func() int {
		items, _ := w.attention(db.AttentionFilter{Kind: "alert_triggered"}, 10)
		return len(items)
	}
	w.useAt("1", w.now.Add(-59*time.Minute))
	w.evaluate()
	require.Zero(t, items())
	w.now = w.now.Add(time.Minute)
	w.evaluate()
	require.Equal(t, 1, items())
	w.use("1")
	require.Zero(t, items())
}
