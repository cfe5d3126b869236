package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// unrated returns all unrated usage since an instant. It requires that pages and totals agree with it.
func (b *biller) unrated(since time.Time) (lines []ledger.UnratedUsage) {
	b.Helper()
	list := func(after *ledger.UnratedKey, limit int) ledger.UnratedPage {
		page, err := b.store.Unrated.List(b.Context(), b.tenant, since, b.now, after, limit)
		require.NoError(b, err)
		return page
	}
	lines = list(nil, 1<<20).Lines
	var paged []ledger.UnratedUsage
	for page := list(nil, 3); ; page = list(page.Next, 3) {
		paged = append(paged, page.Lines...)
		if page.Next == nil {
			break
		}
	}
	require.Equal(b, lines, paged, "in pages")

	totals, err := b.store.Unrated.Totals(b.Context(), b.tenant, since, b.now)
	require.NoError(b, err)
	want := make(map[string]ledger.UnratedTotal)
	customers := make(map[string]bool)
	for _, l := range lines {
		of := fmt.Sprint(l.Reason, " ", l.Currency)
		t := want[of]
		t.Reason, t.Currency = l.Reason, l.Currency
		if t.Lines++; t.Lines == 1 || l.Period.Start.Before(t.Since) {
			t.Since = l.Period.Start
		}
		if who := fmt.Sprint(of, l.Customer); !customers[who] {
			customers[who] = true
			t.Customers++
		}
		if l.Estimate != nil {
			t.Estimate = t.Estimate.Add(*l.Estimate)
		}
		want[of] = t
	}
	require.Len(b, totals, len(want))
	for _, t := range totals {
		require.Equal(b, fmt.Sprint(want[fmt.Sprint(t.Reason, " ", t.Currency)]), fmt.Sprint(t))
	}
	return lines
}

// estimates sums the estimates of lines by reason and currency, and counts lines without an estimate by reason.
func estimates(lines []ledger.UnratedUsage) map[string]string {
	sums, counts := make(map[string]metering.Decimal), make(map[string]int)
	for _, l := range lines {
		if l.Estimate == nil {
			counts[string(l.Reason)]++
			continue
		}
		of := fmt.Sprint(l.Reason, " ", l.Currency)
		sums[of] = sums[of].Add(*l.Estimate)
	}
	text := make(map[string]string)
	for of, sum := range sums {
		text[of] = sum.String()
	}
	for of, n := range counts {
		text[of] = fmt.Sprint(n, " lines")
	}
	return text
}

// TestUnratedEstimatesEqualUnbilledChargesOfStatements checks that the estimates equal the charges of the statements
// to the digit. First a webhook bills all meters except the one without a price, then no provider bills, then Stripe
// bills some customers.
func TestUnratedEstimatesEqualUnbilledChargesOfStatements(t *testing.T) {
	t.Parallel()
	w := newTown(t, 20)
	w.use(metering.Range{Start: w.now, End: w.month.End}, 1)
	require.Equal(t, map[string]string{"no_price": "20 lines"}, estimates(w.unrated(w.month.Start)))

	w.use(metering.Range{Start: w.month.Start.AddDate(0, -1, 0), End: w.month.Start}, 1)
	early := w.unrated(w.month.Start.AddDate(0, -1, 0))
	require.Len(t, early, 20+20*len(w.meters), "usage of the month before the customers' first period")
	for _, l := range early {
		if l.Reason == billing.BeforeFirstPeriod {
			require.Equal(t, billing.PeriodBefore, l.State)
			require.Equal(t, metering.Range{Start: w.month.Start.AddDate(0, -1, 0), End: w.month.Start}, metering.Range{Start: l.Period.Start.UTC(), End: l.Period.End.UTC()})
			require.Equal(t, l.MeterSlug == "free", l.Estimate == nil)
		}
	}
	require.Equal(t, map[string]string{"no_price": "20 lines"}, estimates(w.unrated(w.month.Start)), "since a later month")

	w.exec(`update billing_connections set retired_at = validated_at where tenant_id = $1`, w.tenant)
	key := w.month.Start.Format("2006-01 ")
	estimated := w.revenue()
	require.Equal(t, map[string]string{
		"no_price": "20 lines", "no_provider USD": estimated[key+"USD"].Estimated.String(), "no_provider JPY": estimated[key+"JPY"].Estimated.String(),
	}, estimates(w.unrated(w.month.Start)))

	w.now = over(w.month)
	w.close()
	unbilled := w.revenue()
	require.Equal(t, unbilled[key+"USD"].Unbilled.String(), estimates(w.unrated(w.month.Start))["closed_unbilled USD"])
	require.Equal(t, unbilled[key+"JPY"].Unbilled.String(), estimates(w.unrated(w.month.Start))["closed_unbilled JPY"])
	require.Empty(t, estimates(w.unrated(w.month.End))["closed_unbilled USD"], "the closed period has ended before")

	w.useMode("acct_1", true)
	running := billing.CalendarPeriod(w.month.End, time.UTC)
	w.use(metering.Range{Start: running.Start, End: w.now}, 1)
	w.subscribe(2, running)
	var want metering.Decimal
	for i, c := range w.customers {
		if i%2 == 0 {
			continue
		}
		statements, err := dbtest.Items(w.store.Ledger.Statements(t.Context(), w.tenant, c.ID, billing.PeriodPlace{Start: w.now.AddDate(1, 0, 0)}, 10, w.now))
		require.NoError(t, err)
		for _, s := range statements {
			for _, l := range s.Lines {
				if s.ClosedAt == nil && l.PriceVersion > 0 && l.Currency == "JPY" {
					want = want.Add(l.Charge)
				}
			}
		}
	}
	found := w.unrated(w.month.End)
	require.Equal(t, want.String(), estimates(found)["no_provider_link JPY"])
	for _, l := range found {
		require.Equal(t, billing.NoProviderLink, l.Reason, "the others' meters have a place at the provider")
		require.Equal(t, billing.PeriodOpen, l.State)
	}
}

func TestUnratedUsageHasReasonWhyProviderDoesNotBillIt(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.use("120")
	reasons := func() (list []string) {
		for _, l := range b.unrated(month.Start) {
			list = append(list, fmt.Sprint(l.Reason, " ", l.Excluded.Detail, " ", l.Usage, " ", *l.Estimate))
		}
		return list
	}
	require.Equal(t, []string{"no_provider_link  120 10.1"}, reasons(), "before anything was read at the provider")
	b.link("sub_1", month, billing.Destination{Excluded: billing.NoTarget("no item has the lookup key")})
	require.Equal(t, []string{"no_subscription_item no item has the lookup key 120 10.1"}, reasons())
	b.link("sub_1", month, asDelta)
	require.Empty(t, reasons())
	b.link("sub_1", metering.Range{Start: b.now.Add(time.Hour), End: month.End}, asDelta)
	require.Equal(t, []string{"before_subscription  120 10.1"}, reasons())
}

// TestTenantWithoutPricesAndProviderHasNoUnratedUsage checks that a tenant with neither prices nor a provider has no
// unrated usage.
func TestTenantWithoutPricesAndProviderHasNoUnratedUsage(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	dbtest.Meter(t, store, tenant, "calls", "call")
	outcomes := ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "5", "", ""))
	require.Equal(t, []usage.Outcome{{}}, outcomes)
	page, err := store.Unrated.List(t.Context(), tenant, november, november.AddDate(1, 0, 0), nil, 10)
	require.NoError(t, err)
	require.Equal(t, ledger.UnratedPage{}, page)
	totals, err := store.Unrated.Totals(t.Context(), tenant, november, november.AddDate(1, 0, 0))
	require.NoError(t, err)
	require.Empty(t, totals)
}

// TestUsageThatMovesFirstPeriodEarlierIsNotUnrated checks that usage is not unrated if it moves the first period to an
// earlier month. Events can move the first period until its start is decided.
func TestUsageThatMovesFirstPeriodEarlierIsNotUnrated(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.created(month.Start.Add(time.Hour))
	b.useAt("7", month.Start.AddDate(0, 0, -2))
	require.Empty(t, b.unrated(month.Start.AddDate(0, -3, 0)))
	b.useAt("7", month.Start.AddDate(0, -1, -2))
	late := b.unrated(month.Start.AddDate(0, -3, 0))
	require.Len(t, late, 1, "the month before is over for longer than the grace")
	require.Equal(t, billing.BeforeFirstPeriod, late[0].Reason)
	starts, err := b.store.Unrated.FirstStarts(t.Context(), b.tenant, []string{"acme", "none"}, b.now)
	require.NoError(t, err)
	require.Len(t, starts, 1)
	require.True(t, starts["acme"].Equal(month.Start.AddDate(0, -1, 0)))
}
