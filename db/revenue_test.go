package db_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// town is a tenant with many customers.
type town struct {
	*biller
	random    *rand.Rand
	meters    []metering.Meter
	customers []metering.Customer
	month     metering.Range // the month in which the customers were created
}

// newTown returns a town with meters in two currencies, a meter without a price, and a plan. Its customers were created
// in a month that ended long ago.
func newTown(t *testing.T, customers int) *town {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &town{biller: newBiller(t), random: rand.New(rand.NewPCG(seed, 0))}
	w.month = billing.CalendarPeriod(clock.Month(clock.Now(), -6), time.UTC)
	w.created(w.month.Start.AddDate(0, 0, 3))
	w.price("1.5", "10", "0.125")
	w.meters = []metering.Meter{w.meter, dbtest.Meter(t, w.store, w.tenant, "storage", "stored"), dbtest.Meter(t, w.store, w.tenant, "free", "freed")}
	plan, err := w.store.Plans.Create(t.Context(), w.tenant, metering.Operator, metering.Plan{Slug: "pro"})
	require.NoError(t, err)
	w.priceOf(w.meters[1].ID, 0, "JPY")
	w.priceOf(w.meters[0].ID, plan.ID, "JPY")
	w.customers = []metering.Customer{w.customer}
	for i := range customers - 1 {
		w.customer = dbtest.Customer(t, w.store, w.tenant, fmt.Sprintf("customer-%d", i))
		w.created(w.now)
		if i%4 == 0 {
			w.assign(plan.ID, w.month.Start)
		}
		w.customers = append(w.customers, w.customer)
	}
	return w
}

func (w *town) priceOf(meter metering.MeterID, plan metering.PlanID, currency string) {
	dbtest.Price(w, w.store, w.tenant, billing.Price{
		MeterID: meter, PlanID: plan, EffectiveFrom: w.now,
		Terms: billing.Terms{BasePrice: metering.Whole(2), IncludedUnits: metering.Whole(5), OverageRate: metering.MustDecimal("0.75"), Currency: currency},
	})
}

// use ingests events at random instants of a range. The first customer has an event of each meter at the end of the
// range. Each other customer has an event of each meter with a probability of 1/one.
func (w *town) use(within metering.Range, one int) {
	var events []metering.Event
	for i, c := range w.customers {
		for _, m := range w.meters {
			at := within.Start.Add(time.Duration(w.random.Int64N(int64(within.End.Sub(within.Start)))))
			switch {
			case i == 0:
				at = within.End.Add(-time.Second)
			case w.random.IntN(one) > 0:
				continue
			}
			value := fmt.Sprintf("%d.%03d", w.random.IntN(200), w.random.IntN(1000))
			event := dbtest.Event(w, m.EventType, c.ExternalID, at, value, "", "")
			event.ReceivedAt = w.now
			events = append(events, event)
		}
	}
	_, err := w.writer.Ingest(w.Context(), w.tenant, events)
	require.NoError(w, err)
}

// each calls do for every nth customer.
func (w *town) each(nth int, do func(i int)) {
	for i, c := range w.customers {
		if w.customer = c; i%nth == 0 {
			do(i)
		}
	}
}

func (w *town) sync(nth int) {
	w.each(nth, func(int) {
		for planned := w.plan(anew); len(planned.Send) > 0; planned = w.plan(anew) {
			for _, r := range planned.Send {
				w.lease(r.ID)
				if r.Kind == billing.QuantityReport {
					w.counted(r.ID)
					continue
				}
				w.complete(r.ID, billing.Accepted)
			}
		}
	})
}

func (w *town) close() {
	w.each(1, func(int) { w.closePeriods() })
}

// subscribe stores that every nth customer follows a subscription at the provider, and that the others have no link
// there. Some of the subscriptions bill in whole units.
func (w *town) subscribe(nth int, period metering.Range) {
	w.each(1, func(i int) {
		if i%nth != 0 {
			require.NoError(w, w.store.Links.Save(w.Context(), w.tenant, w.customer.ID, w.connection, billing.Side{}, w.now))
			return
		}
		side := billing.Side{Customer: fmt.Sprintf("cus_%d", i), Subscription: fmt.Sprintf("sub_%d", i), Period: period}
		for _, m := range w.meters {
			d := asDelta
			d.MeterID, d.Target, d.WholeUnits = m.ID, "mtr_"+m.Slug, i%2 == 0
			side.Destinations = append(side.Destinations, d)
		}
		w.exec(`update customers set billing_provider_id = $3 where tenant_id = $1 and id = $2`, w.tenant, w.customer.ID, side.Customer)
		require.NoError(w, w.store.Links.Save(w.Context(), w.tenant, w.customer.ID, w.connection, side, w.now))
	})
}

// compare requires that the revenue equals the sum of all statements, and returns the revenue.
func (w *town) compare() map[string]ledger.Revenue {
	w.Helper()
	want, got := w.stated(), w.revenue()
	require.Equal(w, digits(want), digits(got))
	return got
}

// compareInTest is compare for statements that are billed in test mode. It adds billed to unbilled revenue in both
// sums, because revenue counts these statements as unbilled.
func (w *town) compareInTest() {
	w.Helper()
	want, got := w.stated(), w.revenue()
	for _, all := range []map[string]ledger.Revenue{want, got} {
		for key, r := range all {
			r.Billed, r.Unbilled = metering.Decimal{}, r.Unbilled.Add(r.Billed)
			all[key] = r
		}
	}
	require.Equal(w, digits(want), digits(got))
}

// stated returns the sum of all statements, by month and currency.
func (w *town) stated() map[string]ledger.Revenue {
	w.Helper()
	want := make(map[string]ledger.Revenue)
	for _, c := range w.customers {
		counted := make(map[string]bool)
		statements, err := dbtest.Items(w.store.Ledger.Statements(w.Context(), w.tenant, c.ID, billing.PeriodPlace{Start: w.now.AddDate(10, 0, 0)}, 1000, w.now))
		require.NoError(w, err)
		for _, s := range statements {
			for _, l := range s.Lines {
				if l.PriceVersion == 0 {
					continue
				}
				key := s.End.Add(-time.Nanosecond).UTC().Format("2006-01 ") + l.Currency
				r := want[key]
				switch {
				case s.ClosedAt == nil:
					r.Estimated = r.Estimated.Add(l.Charge)
				case l.Billed:
					r.Billed = r.Billed.Add(withThePeriod(l)).Add(l.LateCharge)
				default:
					r.Unbilled = r.Unbilled.Add(l.Charge)
				}
				if l.Events > 0 && !counted[key] {
					counted[key] = true
					r.Customers++
				}
				want[key] = r
			}
		}
	}
	return want
}

// withThePeriod returns the amount of a closed line that is billed with its period. An amount that is lacking is rolled
// forward together with late usage.
func withThePeriod(l billing.StatementLine) (amount metering.Decimal) {
	amount = l.Charge
	for _, s := range l.Working {
		if s.Name == billing.StepAmount {
			amount = s.Amount
		}
	}
	return amount
}

func (w *town) revenue() map[string]ledger.Revenue {
	w.Helper()
	months, err := w.store.Ledger.Revenue(w.Context(), w.tenant, w.month.Start, w.now)
	require.NoError(w, err)
	got := make(map[string]ledger.Revenue)
	for _, m := range months {
		got[m.Month.UTC().Format("2006-01 ")+m.Currency] = m
	}
	return got
}

func digits(of map[string]ledger.Revenue) map[string]string {
	all := make(map[string]string)
	for key, r := range of {
		all[key] = fmt.Sprint("billed ", r.Billed, ", estimated ", r.Estimated, ", unbilled ", r.Unbilled, ", of ", r.Customers)
	}
	return all
}

// TestRevenueIsTheSumOfAllStatementsToTheDigit bills some customers by a webhook and some not at all. It then bills in
// test mode, and then in live mode, by calendar periods and by subscriptions. Late events arrive for the first two
// months.
func TestRevenueIsTheSumOfAllStatementsToTheDigit(t *testing.T) {
	t.Parallel()
	w := newTown(t, 24)
	w.use(metering.Range{Start: w.now, End: w.month.End}, 1)
	w.compare()
	w.sync(2)
	w.compare()
	first, second := w.month, billing.CalendarPeriod(w.month.End, time.UTC)
	w.now = first.End.Add(time.Hour)
	w.use(second, 2)
	w.compare()
	w.now = over(first)
	w.each(2, func(int) { w.closePeriods() })
	w.exec(`update billing_connections set retired_at = validated_at where tenant_id = $1`, w.tenant)
	w.close() // no provider bills the periods of the others
	w.compare()

	w.useMode("acct_1", false)
	w.subscribe(3, metering.Range{Start: second.Start, End: second.End})
	w.sync(1)
	w.now = over(second)
	w.close()
	w.compareInTest()

	w.useMode("acct_1", true)
	third := billing.CalendarPeriod(second.End, time.UTC)
	w.use(third, 2)
	w.subscribe(3, metering.Range{Start: w.now.Add(12345 * time.Second), End: third.End.AddDate(0, 0, 12)})
	w.compare()
	w.now = w.now.AddDate(0, 0, 5)
	w.subscribe(3, metering.Range{Start: w.now.AddDate(0, 0, -2), End: third.End.AddDate(0, 0, 12)})
	ahead := w.compare()[third.End.Format("2006-01 JPY")]
	require.Positive(t, ahead.Customers, "customers with a subscription's period that ends in a later month")
	w.use(first, 3)
	w.use(second, 3)
	w.sync(1)
	w.compare()
	w.now = third.End.AddDate(0, 0, 14)
	w.use(metering.Range{Start: third.End, End: w.now}, 2)
	w.compare()
	w.sync(2)
	w.close()
	all := w.compare()
	for _, is := range []bool{
		!all[first.Start.Format("2006-01 USD")].Billed.IsZero(), !all[first.Start.Format("2006-01 JPY")].Unbilled.IsZero(),
		all[second.Start.Format("2006-01 USD")].Billed.IsZero(), !all[second.Start.Format("2006-01 USD")].Unbilled.IsZero(),
	} {
		require.True(t, is, "%v", digits(all))
	}
}

func TestBookedLateUsageIsBilledOrUnbilledRevenueByPolicy(t *testing.T) {
	t.Parallel()
	for policy, want := range map[metering.LatePolicy]string{
		metering.AdjustLate: "billed 15, estimated 0, unbilled 0, of 1",
		metering.ReportLate: "billed 10, estimated 0, unbilled 5, of 1",
	} {
		b, _, month := newLongAgo(t)
		b.exec(`update tenants set late_policy = $2 where id = $1`, b.tenant, policy)
		b.use("10")
		b.now = over(month)
		b.acceptAll()
		require.Equal(t, 1, b.closePeriods().Closed)
		b.useAt("5", month.Start.AddDate(0, 0, 20))
		revenue := func() string {
			months, err := b.store.Ledger.Revenue(t.Context(), b.tenant, month.Start, b.now)
			require.NoError(t, err)
			require.Len(t, months, 2, "one of them is the current month")
			return digits(map[string]ledger.Revenue{"": months[1]})[""]
		}
		require.Equal(t, "billed 10, estimated 0, unbilled 0, of 1", revenue(), "late usage is not revenue until it is booked")
		b.acceptAll()
		require.Equal(t, want, revenue())
	}
}

func TestRevenueIncludesPeriodsThatEndInRequestedMonths(t *testing.T) {
	t.Parallel()
	b, _, month := newLongAgo(t)
	b.use("10")
	b.now = over(month)
	for since, want := range map[time.Time]int{month.Start: 2, month.End.Add(-time.Microsecond): 2, month.End: 1, b.now.AddDate(0, 0, 31): 0} {
		for _, closed := range []bool{false, true} {
			if closed {
				b.acceptAll()
				b.closePeriods()
			}
			months, err := b.store.Ledger.Revenue(t.Context(), b.tenant, since, b.now)
			require.NoError(t, err)
			require.Len(t, months, want, "since %s", since)
		}
	}
}

// TestReadsOfAllCustomersYieldToOtherCallers checks that operations over all customers yield to other callers at least
// twice. If a yield fails, the operation fails with the same error.
func TestReadsOfAllCustomersYieldToOtherCallers(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	_, err := dbtest.Conn(t).Exec(t.Context(), `
		insert into customers (tenant_id, external_id, created_at)
		select $1, n, $2 from generate_series(1, 4001) n`, b.tenant, b.now)
	require.NoError(t, err)
	price := billing.Price{MeterID: b.meter.ID, Terms: billing.Terms{Currency: "USD"}}
	reads := map[string]func(ctx context.Context) error{
		"revenue": func(ctx context.Context) error {
			_, err := b.store.Ledger.Revenue(ctx, b.tenant, b.now, b.now)
			return err
		},
		"unrated usage": func(ctx context.Context) error {
			_, err := b.store.Unrated.Totals(ctx, b.tenant, b.now, b.now)
			return err
		},
		"the impact of a price": func(ctx context.Context) error {
			_, err := b.store.Ledger.PriceImpact(ctx, b.tenant, price, b.now)
			return err
		},
	}
	for name, read := range reads {
		turns := 0
		require.NoError(t, read(pg.WithYield(t.Context(), func(context.Context) error { turns++; return nil })))
		require.GreaterOrEqual(t, turns, 2, name)
		lost := errors.New("no turn came")
		require.ErrorIs(t, read(pg.WithYield(t.Context(), func(context.Context) error { return lost })), lost, name)
	}
}
