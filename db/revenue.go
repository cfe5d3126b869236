package db

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Revenue is what the billing periods that end in a month come to in one
// currency.
type Revenue struct {
	Month     time.Time // its start
	Currency  string
	Billed    metering.Decimal // closed, and a provider bills it in live mode
	Estimated metering.Decimal // not closed yet: what they come to so far
	Unbilled  metering.Decimal // closed, and no provider bills it, or only in test mode
	Customers int64            // that had usage in them
}

// Amount is all of it.
func (r Revenue) Amount() metering.Decimal { return r.Billed.Add(r.Estimated).Add(r.Unbilled) }

// Revenue is what the tenant's customers come to, by month and currency, newest
// first: of billing periods that end in the month of since or later, also ones
// that will end in a month that has not begun. Closed periods count as they were
// stored, with the adjustments that were booked of them since; of the others
// each charge is worked out as their statements have it. All is of one instant.
func (l Ledger) Revenue(ctx context.Context, tenant metering.TenantID, since, now time.Time) (months []Revenue, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
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

// revenueReader adds up revenue as it is read.
type revenueReader struct {
	ctx    context.Context
	tx     pgx.Tx
	tenant metering.TenantID
	now    time.Time
	read   ReadPrice
	theirs providerPrices      // of the batches so far
	only   metering.CustomerID // 0: all

	began     bool                                 // a batch is read
	periodsOf func(billing.Facts) []billing.Period // that are read; nil: open ones
	recounts  bool                                 // meters count in another way than the stored one

	timezone *time.Location
	meters   []metering.Meter
	prices   map[metering.MeterID][]billing.Price
	by       billing.ByDimension // that usage is read by
	months   []time.Time         // starts, from the first that is asked for to the one that now lies in
	sums     map[revenueKey]*Revenue
}

func (r *revenueReader) catalog() (err error) {
	var zone string
	if err := r.tx.QueryRow(r.ctx, `select timezone from tenants where id = $1`, r.tenant).Scan(&zone); err != nil {
		return err
	}
	if r.timezone, err = billingZone(zone); err != nil {
		return err
	}
	if r.meters, err = collectMeters(r.ctx, r.tx, `order by m.id`, r.tenant); err != nil {
		return err
	}
	r.prices, err = allPrices(r.ctx, r.tx, r.tenant)
	r.by = billing.DimensionsOf(r.prices)
	return err
}

func (r *revenueReader) monthsSince(since time.Time) error {
	first := billing.CalendarPeriod(since, r.timezone)
	for _, month := range billing.ExtendPeriods(first, r.now, r.timezone) {
		r.months = append(r.months, month.Start.UTC())
	}
	return nil
}

// inMonth is the revenue of a month in a currency.
func (r *revenueReader) inMonth(key revenueKey) *Revenue {
	in, known := r.sums[key]
	if !known {
		in = &Revenue{Month: key.month, Currency: key.currency}
		r.sums[key] = in
	}
	return in
}

func (r *revenueReader) list() (all []Revenue) {
	for _, in := range r.sums {
		all = append(all, *in)
	}
	slices.SortFunc(all, func(a, b Revenue) int {
		return cmp.Or(b.Month.Compare(a.Month), cmp.Compare(a.Currency, b.Currency))
	})
	return all
}

// As SQL, of a closed period p and a total t: the number of the month that the
// period is of, and whether its charge is revenue that was billed.
const (
	revenueMonth = `width_bucket(p.ends_at - interval '1 microsecond', @months::timestamptz[])`
	isBilled     = `(t.billed and not t.test)`
)

// closed adds the lines that closed periods were stored with.
func (r *revenueReader) closed() error {
	return r.addStored(`
		select month, currency, coalesce(sum(billed), 0), coalesce(sum(unbilled), 0), count(*) filter (where events > 0)
		from (
		  select ` + revenueMonth + ` as month, t.currency, sum(t.charge) filter (where ` + isBilled + `) as billed,
		    sum(t.charge) filter (where not ` + isBilled + `) as unbilled, sum(t.event_count) as events
		  from billing_periods p
		  join billing_period_totals t on t.tenant_id = p.tenant_id and t.period_id = p.id and (t.price_version > 0 or t.terms is not null)
		  where p.tenant_id = @tenant
		    and p.closed_at is not null
		    and p.ends_at > @since
		  group by p.customer_id, 1, 2) of_customer
		group by 1, 2`)
}

// adjusted adds what was booked of closed periods since, billed where the
// period was: what is only reported, as the late policy said, is not.
func (r *revenueReader) adjusted() error {
	return r.addStored(`
		select ` + revenueMonth + `, a.currency, coalesce(sum(a.amount) filter (where a.billed and ` + isBilled + `), 0),
		  coalesce(sum(a.amount) filter (where not (a.billed and ` + isBilled + `)), 0), 0
		from billing_adjustments a
		join billing_periods p on p.tenant_id = a.tenant_id and p.id = a.period_id
		join billing_period_totals t on t.tenant_id = a.tenant_id and t.period_id = a.period_id and t.meter_id = a.meter_id
		where a.tenant_id = @tenant
		  and p.ends_at > @since
		group by 1, 2`)
}

func (r *revenueReader) addStored(sql string) error {
	if len(r.months) == 0 {
		return nil // all that is asked for lies ahead
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
