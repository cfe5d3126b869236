package activities_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// newBeside returns a subscriber with a second subscription, which has other periods and its own meter seats at one
// cent per unit.
func newBeside(t *testing.T) (s *subscriber, second metering.Range) {
	t.Helper()
	s = newRegular(t)
	return s, s.subscribeBeside()
}

// subscribeBeside creates the meter seats and a second subscription that bills it, and returns the subscription's
// period.
func (s *subscriber) subscribeBeside() (second metering.Range) {
	s.Helper()
	second = metering.Range{Start: s.first.Start.AddDate(0, 0, -5), End: s.first.End.AddDate(0, 0, 15)}
	require.NoError(s, s.fake.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: stripeKey},
		Meters:  []stripetest.Meter{{ID: "mtr_seats", EventName: "seats"}},
		Prices:  []stripetest.Price{{ID: "price_seats", LookupKey: "seats", UnitAmount: "1", Meter: "mtr_seats"}},
		Subscriptions: []stripetest.Subscription{{
			ID: "sub_2", Customer: "cus_1", Start: second.Start.Unix(), End: second.End.Unix(), Items: []stripetest.Item{{ID: "si_seats", Price: "price_seats"}},
		}},
	}))
	m := dbtest.Meter(s, s.store, s.tenant, "seats", "seats")
	dbtest.Price(s, s.store, s.tenant, billing.Price{
		MeterID: m.ID, Terms: billing.Terms{OverageRate: metering.MustDecimal("0.01"), Currency: "USD"}, EffectiveFrom: s.fake.Now(),
	})
	return second
}

// usedAt ingests usage at the given time.
func (s *subscriber) usedAt(at time.Time, meter, value string) {
	s.Helper()
	_, err := s.writer.Ingest(s.Context(), s.tenant, []metering.Event{dbtest.Event(s, meter, "acme", metering.Instant(at), value, "", "")})
	require.NoError(s, err)
}

// streams returns the customer's stored periods, each as the number of its billing schedule and the meters' totals at
// the close that are above 0. It marks a period that does not begin at the end of the previous one of its schedule.
func (s *subscriber) streams() (all []string) {
	s.Helper()
	rows, err := s.conn.Query(s.Context(), `
		select p.stream || case when p.starts_at <> lag(p.ends_at, 1, p.starts_at) over (partition by p.stream order by p.starts_at) then ' after a gap' else '' end || coalesce((
		  select ': ' || string_agg(m.slug || ' ' || t.usage, ', ' order by m.slug)
		  from billing_period_totals t
		  join meters m on m.tenant_id = t.tenant_id and m.id = t.meter_id
		  where t.tenant_id = p.tenant_id
		    and t.period_id = p.id
		    and t.usage > 0), '')
		from billing_periods p
		where p.tenant_id = $1
		order by p.stream, p.starts_at`, s.tenant)
	require.NoError(s, err)
	all, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s, err)
	return all
}

// hearAll handles Stripe's event that an invoice is final for each invoice after the first known ones. It returns the
// number of all invoices.
func (s *subscriber) hearAll(known int) int {
	s.Helper()
	invoices := s.fake.State().Accounts[0].Invoices
	for _, i := range invoices[known:] {
		s.hear(i.ID)
	}
	return len(invoices)
}

// TestSecondSubscriptionHasItsOwnBillingSchedule checks that two subscriptions have separate periods. The same time
// can lie in a closed period of one subscription and in an open period of the other. Each unit is billed by
// the subscription with an item for its meter.
func TestSecondSubscriptionHasItsOwnBillingSchedule(t *testing.T) {
	t.Parallel()
	s, second := newBeside(t)
	s.ingest("delta", "3")
	s.ingest("seats", "5")
	require.Equal(t, 2, s.report())
	require.Equal(t, "5", s.fake.Quantity("si_seats").String())
	require.Equal(t, []string{"0", "1"}, s.streams())
	require.Zero(t, s.report(), "nothing has changed")

	s.fake.Advance(s.first.End.Add(2 * time.Hour).Sub(s.fake.Now()))
	heard := s.hearAll(0)
	require.Equal(t, 1, heard)
	s.closeAndReport(nil)
	require.Equal(t, []string{"0: delta 3", "0", "1"}, s.streams())

	s.usedAt(s.first.Start.AddDate(0, 0, 10), "seats", "2") // in an open period of the meter's schedule
	s.usedAt(s.first.Start.AddDate(0, 0, 10), "delta", "1") // in a closed period of the meter's schedule
	require.Equal(t, []string{"2 and 0 late, final: false", "5 and 0 late, final: false"}, s.windows("seats"))
	require.Equal(t, []string{"0 and 1 late, final: true", "3 and 0 late, final: true"}, s.windows("delta"))
	s.quiesce(nil)
	require.Equal(t, "7", s.fake.Quantity("si_seats").String())
	require.Len(t, s.pending(), 1, "what came late is charged")
	require.Equal(t, "1000000", s.pending()[0].Amount.String())

	s.fake.Advance(second.End.Add(2 * time.Hour).Sub(s.fake.Now()))
	heard = s.hearAll(heard)
	require.Equal(t, 2, heard)
	s.closeAndReport(nil)
	require.Equal(t, []string{"0: delta 3", "0", "1: seats 7", "1"}, s.streams())
	s.usedAt(second.End.Add(-time.Hour), "seats", "4")
	s.usedAt(second.End.Add(-time.Hour), "delta", "6") // in an open period of the meter's schedule
	s.quiesce(nil)
	require.Equal(t, "6", s.fake.Quantity("si_delta").String())
	require.Equal(t, []string{"sub_1 1000000", "sub_2 4"}, s.pendingOf())
	s.requireReconciled("seats", "7 of 7 are invoiced: agreed")
	s.requireReconciled("delta", "3 of 3 are invoiced: agreed")
	s.requireAgreement()
}

// TestSchedulesWithoutSubscriptionHaveTheirOwnStandaloneInvoices ends both subscriptions of a customer that is billed in
// amounts. Both billing schedules then have the same calendar months, each with its own usage.
func TestSchedulesWithoutSubscriptionHaveTheirOwnStandaloneInvoices(t *testing.T) {
	t.Parallel()
	s, second := newBeside(t)
	s.charge()
	s.ingest("delta", "3")
	s.ingest("seats", "500")
	s.report()
	for _, subscription := range []string{"sub_1", "sub_2"} {
		s.happens(http.MethodDelete, "/v1/subscriptions/"+subscription, "")
	}
	month := billing.CalendarPeriod(second.End.AddDate(0, 1, 0), time.UTC)
	s.fake.Advance(month.Start.Add(time.Hour).Sub(s.fake.Now()))
	s.report()
	s.ingest("delta", "2")
	s.usedAt(second.Start.AddDate(0, 0, 6), "seats", "700") // late
	s.fake.Advance(month.End.Add(73 * time.Hour).Sub(s.fake.Now()))
	for range 3 {
		s.read()
		s.closePeriods(nil)
		s.quiesce(nil)
		s.hearAll(0)
	}
	var totals []string
	for _, in := range s.fake.State().Accounts[0].Invoices {
		if in.Reason == "manual" {
			require.Equal(t, "open", in.Status)
			totals = append(totals, in.Total.String())
		}
	}
	require.ElementsMatch(t, []string{"2000000", "700"}, totals)
}

// windows returns the hourly windows with usage of a meter in the first period.
func (s *subscriber) windows(meter string) (all []string) {
	s.Helper()
	m, err := s.store.Meters.Get(s.Context(), s.tenant, meter)
	require.NoError(s, err)
	within := metering.Range{Start: s.first.Start.Truncate(time.Hour).Add(time.Hour), End: s.first.End.Truncate(time.Hour)}
	page, err := s.store.Usage.Windows(s.Context(), s.tenant, usage.WindowQuery{Customer: s.customer, Meter: m, Range: within, Granularity: metering.Hour, Limit: 100})
	require.NoError(s, err)
	for _, w := range page.Windows {
		all = append(all, fmt.Sprintf("%s and %s late, final: %v", w.Value, w.LateValue, w.Final))
	}
	slices.Sort(all)
	return all
}

// pendingOf returns the subscription and the amount of each pending invoice item.
func (s *subscriber) pendingOf() (all []string) {
	for _, p := range s.pending() {
		all = append(all, p.Subscription+" "+p.Amount.String())
	}
	return all
}

// requireAgreement checks that the preview, the statements, the search for customers that are out of sync, and the
// revenue agree. The preview contains each meter once, except for late usage. Statements contain a meter only in
// periods of its billing schedule.
func (s *subscriber) requireAgreement() {
	s.Helper()
	lines, err := s.store.Ledger.Preview(s.Context(), s.tenant, s.customer, s.fake.Now())
	require.NoError(s, err)
	shown := make(map[string]string)
	for _, l := range lines {
		if l.LateFor == nil {
			require.NotContains(s, shown, l.MeterSlug)
			shown[l.MeterSlug] = l.Usage.String() + l.Excluded.Text().Message
		}
	}
	require.Equal(s, "0", shown["seats"])
	require.Equal(s, "6", shown["delta"])
	first, err := dbtest.Items(s.store.Ledger.Statements(s.Context(), s.tenant, s.customer, billing.PeriodPlace{Start: s.fake.Now()}, 1, s.fake.Now()))
	require.NoError(s, err)
	rest, err := dbtest.Items(s.store.Ledger.Statements(s.Context(), s.tenant, s.customer, first[0].Place(), 9, s.fake.Now()))
	require.NoError(s, err)
	all := slices.Concat(first, rest)
	require.Len(s, all, 4)
	for _, p := range all {
		_, seats := p.Line(meterNamed(s, "seats"))
		_, delta := p.Line(meterNamed(s, "delta"))
		require.Equal(s, p.Stream == 1, seats)
		require.Equal(s, p.Stream == 0, delta)
	}
	at := func(p billing.Period) bool { return p.Contains(s.first.Start.AddDate(0, 0, 10)) }
	explained, err := s.store.Ledger.StatementOf(s.Context(), s.tenant, s.customer, meterNamed(s, "seats"), at, s.fake.Now())
	require.NoError(s, err)
	require.Equal(s, 1, explained.Stream)
	found, err := s.store.Ledger.OutOfSync(s.Context(), s.tenant, 0, 10, s.fake.Now())
	require.NoError(s, err)
	require.Empty(s, found.Customers)
	months, err := s.store.Ledger.Revenue(s.Context(), s.tenant, s.first.Start.AddDate(0, -1, 0), s.fake.Now())
	require.NoError(s, err)
	var sum metering.Decimal
	for _, m := range months {
		sum = sum.Add(m.Amount())
	}
	require.Equal(s, "100000.11", sum.String(), "3 + 1 + 6 units at 10,000, and 7 + 4 at a cent")
}

// meterNamed returns the ID of the meter with the slug.
func meterNamed(s *subscriber, slug string) metering.MeterID {
	s.Helper()
	m, err := s.store.Meters.Get(s.Context(), s.tenant, slug)
	require.NoError(s, err)
	return m.ID
}

// TestAmountsAreChargedOnInvoicesOfTheMetersSubscription checks that amounts are charged on the invoices of the
// subscription with the meter's price.
func TestAmountsAreChargedOnInvoicesOfTheMetersSubscription(t *testing.T) {
	t.Parallel()
	s, second := newBeside(t)
	s.charged = true
	s.bill(metering.BillsAmounts, second.Start)
	s.ingest("delta", "3")
	s.ingest("seats", "5")
	require.Equal(t, 2, s.report())
	require.Equal(t, []string{"sub_1 3000000", "sub_2 5"}, s.pendingOf())
	s.fake.Advance(s.first.End.Add(2 * time.Hour).Sub(s.fake.Now()))
	heard := s.hearAll(0)
	s.closeAndReport(nil)
	require.Equal(t, []string{"0: delta 3", "0", "1"}, s.streams())
	s.usedAt(s.first.Start.AddDate(0, 0, 10), "seats", "2")
	s.quiesce(nil)
	require.Equal(t, []string{"sub_2 7"}, s.pendingOf())
	s.requireReconciled("delta", "30000 of 30000 are invoiced: agreed")

	s.fake.Advance(second.End.Add(2 * time.Hour).Sub(s.fake.Now()))
	s.hearAll(heard)
	s.closeAndReport(nil)
	require.Equal(t, []string{"0: delta 3", "0", "1: seats 7", "1"}, s.streams())
	s.requireReconciled("seats", "0.07 of 0.07 are invoiced: agreed")
}

// TestCurrentPeriodStaysBilledInQuantitiesAfterSwitchToAmounts checks that current periods are still billed in
// quantities after the tenant switches to amounts.
func TestCurrentPeriodStaysBilledInQuantitiesAfterSwitchToAmounts(t *testing.T) {
	t.Parallel()
	s, _ := newBeside(t)
	s.ingest("seats", "5")
	require.Equal(t, 1, s.report())
	s.bill(metering.BillsAmounts, s.fake.Now())
	s.ingest("seats", "2")
	require.Equal(t, 1, s.report())
	require.Equal(t, "7", s.fake.Quantity("si_seats").String())
	require.Empty(t, s.pending())
}

// TestMeterMovesToAnotherBillingScheduleAtItsPeriodEnd checks a meter with a price that moves to another subscription.
// The previous subscription bills the meter until the end of the period in which it was reported there. Then the other
// subscription bills it. No usage is billed twice. Late usage is billed by the subscription that billed the meter at
// that time.
func TestMeterMovesToAnotherBillingScheduleAtItsPeriodEnd(t *testing.T) {
	t.Parallel()
	s := newRegular(t)
	s.ingest("delta", "3")
	s.ingest("last", "4")
	require.Equal(t, 2, s.report())
	second := metering.Range{Start: s.first.Start.AddDate(0, 0, 5), End: s.first.Start.AddDate(0, 0, 33)}
	s.fake.Advance(second.Start.Add(time.Hour).Sub(s.fake.Now()))
	require.NoError(t, s.fake.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: stripeKey},
		Meters:  []stripetest.Meter{{ID: "mtr_beside", EventName: "beside"}},
		Prices:  []stripetest.Price{{ID: "price_beside", UnitAmount: "1000000", Meter: "mtr_beside", Metadata: map[string]string{"meter_slug": "delta"}}},
		Subscriptions: []stripetest.Subscription{{
			ID: "sub_2", Customer: "cus_1", Start: second.Start.Unix(), End: second.End.Unix(), Items: []stripetest.Item{{ID: "si_beside", Price: "price_beside"}},
		}},
	}))
	s.mapTo("price_beside")
	s.ingest("delta", "2")
	require.Zero(t, s.report(), "the former subscription has it for this period, and no item")
	require.Equal(t, []string{"0"}, s.streams())

	s.fake.Advance(s.first.End.Add(2 * time.Hour).Sub(s.fake.Now()))
	heard := s.hearAll(0)
	s.usedAt(s.first.End.Add(time.Hour), "delta", "10")
	s.quiesce(nil)
	require.Equal(t, "10", s.fake.Quantity("si_beside").String())
	s.closeAndReport(nil)
	require.Equal(t, []string{"0: delta 5, last 4", "0", "1"}, s.streams())
	require.Equal(t, []string{"sub_1 2000000"}, s.pendingOf(), "what the former one was not reported is carried there")

	s.fake.Advance(second.End.Add(2 * time.Hour).Sub(s.fake.Now()))
	s.hearAll(heard)
	s.usedAt(s.first.End.Add(2*time.Hour), "delta", "20") // in time
	s.usedAt(s.first.End.Add(-2*time.Hour), "delta", "1")
	s.closeAndReport(nil)
	require.Equal(t, []string{"0: delta 5, last 4", "0", "1: delta 30", "1"}, s.streams())
	require.Equal(t, []string{"sub_1 2000000", "sub_1 1000000", "sub_2 20000000"}, s.pendingOf())
	require.Equal(t, "10000000", s.billedOn("sub_2"))

	_, err := s.store.Ledger.DigestClosed(t.Context(), 1000)
	require.NoError(t, err)
	require.Equal(t, []string{"0 delta: 2", "0 last: 1", "1 delta: 2"}, s.digested())
}

// mapTo maps the meter delta to a price.
func (s *subscriber) mapTo(price string) {
	s.Helper()
	active, err := s.store.Providers.Active(s.Context(), s.tenant)
	require.NoError(s, err)
	active.Mapping = map[string]string{"delta": price}
	_, err = s.store.Providers.Save(s.Context(), s.tenant, metering.Operator, active)
	require.NoError(s, err)
}

// billedOn returns the total of a subscription's invoices.
func (s *subscriber) billedOn(subscription string) string {
	var sum metering.Decimal
	for _, i := range s.fake.State().Accounts[0].Invoices {
		if i.Subscription == subscription {
			sum = sum.Add(i.Total)
		}
	}
	return sum.String()
}

// digested returns the number of events in the digest of each closed period and meter, if it is above 0.
func (s *subscriber) digested() []string {
	s.Helper()
	rows, err := s.conn.Query(s.Context(), `
		select format('%s %s: %s', p.stream, m.slug, t.digest_events)
		from billing_period_totals t
		join billing_periods p on p.tenant_id = t.tenant_id and p.id = t.period_id
		join meters m on m.tenant_id = t.tenant_id and m.id = t.meter_id
		where t.tenant_id = $1
		  and t.digest_events > 0
		order by 1`, s.tenant)
	require.NoError(s, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s, err)
	return all
}

// TestTwoSubscriptionsBillAllUsageAfterRandomSteps checks that, after random steps, both subscriptions together bill
// all usage at the prices of its meters.
func TestTwoSubscriptionsBillAllUsageAfterRandomSteps(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			s, second := newBeside(t)
			random, cents, heard := rand.New(rand.NewPCG(seed, 1)), metering.Decimal{}, 0
			for _, border := range []time.Time{s.first.End, second.End, s.endOf(1), second.End.AddDate(0, 1, 0)} {
				for range 10 {
					switch random.IntN(4) {
					case 0:
						s.sendWithTrouble(random)
					case 1:
						s.must(s.do.SyncBatch, s.batchInput())
					default:
						cents = cents.Add(s.useAny(random))
					}
				}
				s.quiesce(nil)
				s.fake.Advance(border.Add(2 * time.Hour).Sub(s.fake.Now()))
				heard = s.hearAll(heard)
				s.closeAndReport(nil)
			}
			var billed metering.Decimal
			for _, invoice := range s.fake.State().Accounts[0].Invoices {
				billed = billed.Add(invoice.Total)
			}
			for _, late := range s.pending() {
				billed = billed.Add(late.Amount)
			}
			require.Equal(t, cents.String(), billed.Add(s.running()).String())
		})
	}
}

// running returns the amount of the last period of billing schedule 0 so far, which no invoice contains yet.
func (s *subscriber) running() metering.Decimal {
	return s.fake.Quantity("si_delta").Add(s.fake.Quantity("si_window")).Mul(metering.Whole(1_000_000)).Add(s.fake.Quantity("si_seats"))
}

// useAny ingests usage at a random time since the start of the first period, and returns its price in cents.
func (s *subscriber) useAny(random *rand.Rand) (cents metering.Decimal) {
	s.Helper()
	meter, value := []string{"seats", "delta", "window"}[random.IntN(3)], 1+random.Int64N(9)
	s.usedAt(s.first.Start.Add(time.Duration(random.Int64N(int64(s.fake.Now().Sub(s.first.Start))))), meter, strconv.FormatInt(value, 10))
	if meter == "seats" {
		return metering.Whole(value)
	}
	return metering.Whole(value * 1_000_000)
}

// sendWithTrouble plans reports and sends the first one. The provider may fail, or its answer may be lost.
func (s *subscriber) sendWithTrouble(random *rand.Rand) {
	s.Helper()
	s.read()
	planned := s.planned(true)
	if len(planned) == 0 {
		return
	}
	b := []stripetest.Behaviour{{}, {Status: 503}, {DropAnswer: true}}[random.IntN(3)]
	b.Times = 1
	s.fake.Behave(b)
	s.sent(planned[0])
	s.fake.Behave(stripetest.Behaviour{})
}

// TestReceiverOfStatementsGetsOneBillingSchedule checks that a receiver of statements gets one billing schedule
// after it replaces Stripe. A meter of another schedule joins that schedule at the end of the meter's current
// period, which now ends with the calendar month at the latest. The meter's reported usage stays with the meter's current period.
func TestReceiverOfStatementsGetsOneBillingSchedule(t *testing.T) {
	t.Parallel()
	s, second := newBeside(t)
	s.ingest("delta", "3")
	s.ingest("seats", "5")
	require.Equal(t, 2, s.report())
	_, err := s.store.Providers.Save(t.Context(), s.tenant, metering.Operator, metering.Provider{
		Kind: metering.Webhook, Statements: true, Address: "https://billing.example.com/", SealedSecret: []byte("sealed"), ValidatedAt: s.fake.Now(),
	})
	require.NoError(t, err)
	require.Empty(t, s.feeds(0))
	_, err = s.store.Ledger.Plan(t.Context(), s.tenant, s.customer, ledger.Pass{}, func(metering.ProviderKind, billing.Message) (billing.Framed, error) {
		return billing.Framed{Body: []byte("{}")}, nil
	}, s.fake.Now())
	require.NoError(t, err)
	month := billing.CalendarPeriod(s.fake.Now(), time.UTC)
	require.Equal(t, []time.Time{slices.MinFunc([]time.Time{month.End, second.End}, time.Time.Compare)}, s.feeds(0))
}

// feeds returns the times at which meters of other billing schedules joined the given one.
func (s *subscriber) feeds(stream int) []time.Time {
	s.Helper()
	rows, err := s.conn.Query(s.Context(), `select effective_from from billing_stream_meters where tenant_id = $1 and stream = $2`, s.tenant, stream)
	require.NoError(s, err)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (at time.Time, err error) {
		err = row.Scan(&at)
		return at.UTC(), err
	})
	require.NoError(s, err)
	return all
}
