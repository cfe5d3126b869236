package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Revenue is the total of the billing periods that end in a month, in one currency.
type Revenue struct {
	Month     time.Time // start of the month
	Currency  string
	Billed    metering.Decimal // charges of closed periods that a provider bills in live mode
	Estimated metering.Decimal // charges of open periods so far
	Unbilled  metering.Decimal // charges of closed periods that no provider bills in live mode
	Customers int64            // number of customers with usage in these periods
}

// Amount returns the sum of Billed, Estimated and Unbilled.
func (r Revenue) Amount() metering.Decimal { return r.Billed.Add(r.Estimated).Add(r.Unbilled) }

// Revenue returns the revenue of the tenant's customers by month and currency, newest month first. It
// covers billing periods that end in the month of the given instant or later, including months that have not begun.
// Closed periods count with their stored charges and later adjustments. Charges of open periods are
// computed as in their statements. All figures are from one snapshot.
func (l Ledger) Revenue(ctx context.Context, tenant metering.TenantID, since, now time.Time) (months []Revenue, err error) {
	err = pg.AtOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		r := &revenueReader{ctx: ctx, tx: tx, tenant: tenant, now: metering.Instant(now), sums: make(map[revenueKey]*Revenue), theirs: make(providerPrices), read: l.read}
		for _, read := range []func() error{r.catalog, func() error { return r.monthsSince(since) }, r.closed, r.adjusted, r.open} {
			if err := read(); err != nil {
				return err
			}
		}
		months = r.list()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read revenue: %w", err)
	}
	return months, nil
}

type revenueKey struct {
	month    time.Time
	currency string
}

// revenueReader reads the billing periods of a tenant's customers in batches, and sums their revenue. Other
// readers of this package use only the batches. If recounts is true, the usage of customers with several billing
// schedules is read again, because meters or by differ from the facts of these customers.
type revenueReader struct {
	ctx    context.Context
	tx     pgx.Tx
	tenant metering.TenantID
	now    time.Time
	read   ReadPrice
	theirs providerPrices      // provider prices of the batches so far
	only   metering.CustomerID // 0 for all customers
	after  metering.CustomerID // last customer of the batches so far
	ahead  [][]int64           // ids of the customers of the next batches, as far as known

	began     bool                                 // the first batch has begun
	periodsOf func(billing.Facts) []billing.Period // returns the periods to read; nil for open ones
	recounts  bool                                 // read usage of customers with several schedules again

	timezone *time.Location
	meters   []metering.Meter
	prices   map[metering.MeterID][]billing.Price
	by       billing.ByDimension // the dimensions by which usage is read
	months   []time.Time         // starts of the months from the first requested one to the current one
	sums     map[revenueKey]*Revenue
}

// newRevenueReader returns a reader of the billing periods that a query selects.
func newRevenueReader(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, now time.Time, read ReadPrice, q PeriodQuery) (*revenueReader, error) {
	r := &revenueReader{ctx: ctx, tx: tx, tenant: tenant, now: metering.Instant(now), theirs: make(providerPrices), read: read, periodsOf: q.Periods}
	if err := r.catalog(); err != nil {
		return nil, err
	}
	r.meters = slices.DeleteFunc(r.meters, func(m metering.Meter) bool { return !q.Needs(m.ID) })
	return r, nil
}

// catalog reads the tenant's time zone, meters and prices.
func (r *revenueReader) catalog() (err error) {
	var zone string
	if err := r.tx.QueryRow(r.ctx, `select timezone from tenants where id = $1`, r.tenant).Scan(&zone); err != nil {
		return err
	}
	if r.timezone, err = billingZone(zone); err != nil {
		return err
	}
	if r.meters, err = catalog.CollectMeters(r.ctx, r.tx, `order by m.id`, r.tenant); err != nil {
		return err
	}
	r.prices, err = catalog.AllPrices(r.ctx, r.tx, r.tenant)
	r.by = billing.DimensionsOf(r.prices)
	return err
}

// monthsSince sets r.months.
func (r *revenueReader) monthsSince(since time.Time) error {
	first := billing.CalendarPeriod(since, r.timezone)
	for _, month := range billing.ExtendPeriods(first, r.now, r.timezone) {
		r.months = append(r.months, month.Start.UTC())
	}
	return nil
}

// inMonth returns the revenue of a month in a currency. It adds the entry if there is none.
func (r *revenueReader) inMonth(key revenueKey) *Revenue {
	in, known := r.sums[key]
	if !known {
		in = &Revenue{Month: key.month, Currency: key.currency}
		r.sums[key] = in
	}
	return in
}

// list returns the revenue, newest month first.
func (r *revenueReader) list() (all []Revenue) {
	for _, in := range r.sums {
		all = append(all, *in)
	}
	slices.SortFunc(all, func(a, b Revenue) int {
		return cmp.Or(b.Month.Compare(a.Month), cmp.Compare(a.Currency, b.Currency))
	})
	return all
}

// SQL of a closed period p with a total t: the number of the period's month, and the condition that a
// provider bills the total in live mode.
const (
	revenueMonth = `width_bucket(p.ends_at - interval '1 microsecond', @months::timestamptz[])`
	isBilled     = `(t.billed and not t.test)`
)

// closed adds the stored charges of closed periods.
func (r *revenueReader) closed() error {
	return r.addStored(`
		select month, currency, coalesce(sum(billed), 0), coalesce(sum(unbilled), 0), count(*) filter (where events > 0)
		from (
		  select ` + revenueMonth + ` as month, t.currency, sum(t.charge) filter (where ` + isBilled + `) as billed,
		    sum(t.charge) filter (where not ` + isBilled + `) as unbilled, sum(t.event_count) as events
		  from billing_periods p
		  join billing_period_totals t on t.tenant_id = p.tenant_id and t.period_id = p.id and (t.price_version > 0 or t.terms is not null or t.charge <> 0)
		  where p.tenant_id = @tenant
		    and p.closed_at is not null
		    and p.ends_at > @since
		  group by p.customer_id, 1, 2) of_customer
		group by 1, 2`)
}

// adjusted adds the adjustments of closed periods. An adjustment is billed if the total that it adjusts is
// billed, unless the late policy only reports late usage.
func (r *revenueReader) adjusted() error {
	return r.addStored(`
		select ` + revenueMonth + `, a.currency, coalesce(sum(a.amount) filter (where a.billed and ` + isBilled + `), 0),
		  coalesce(sum(a.amount) filter (where not (a.billed and ` + isBilled + `)), 0), 0
		from billing_adjustments a
		join billing_periods p on p.tenant_id = a.tenant_id and p.id = a.period_id
		join billing_period_totals t on t.tenant_id = a.tenant_id and t.period_id = a.period_id and t.meter_key = a.meter_key and t.component = a.component
		where a.tenant_id = @tenant
		  and p.ends_at > @since
		group by 1, 2`)
}

// addStored adds the stored amounts that a query selects, by month and currency.
func (r *revenueReader) addStored(sql string) error {
	if len(r.months) == 0 {
		return nil // all requested months are in the future
	}
	rows, err := r.tx.Query(r.ctx, sql, pgx.NamedArgs{"tenant": r.tenant, "months": r.months, "since": r.months[0]})
	if err != nil {
		return err
	}
	var (
		month            int
		currency         string
		billed, unbilled metering.Decimal
		customers        int64
	)
	_, err = pgx.ForEachRow(rows, []any{&month, &currency, &billed, &unbilled, &customers}, func() error {
		in := r.inMonth(revenueKey{r.months[month-1], currency})
		in.Billed, in.Unbilled, in.Customers = in.Billed.Add(billed), in.Unbilled.Add(unbilled), in.Customers+customers
		return nil
	})
	return err
}
