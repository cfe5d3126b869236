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

// Revenue is an estimate of a month's charges in one currency.
type Revenue struct {
	Month     time.Time
	Currency  string
	Amount    metering.Decimal
	Customers int64
}

// Revenue estimates what each month of the range comes to, by currency, newest
// first: every customer's usage of the calendar month at the prices in force
// at its start. Customers without usage in a month are charged nothing in this
// estimate, whatever the base price.
func (l Ledger) Revenue(ctx context.Context, tenant metering.TenantID, r metering.Range) (months []Revenue, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		meters, err := collectMeters(ctx, tx, `and g.status <> 'backfilling' order by m.id`, tenant)
		if err != nil {
			return err
		}
		prices, err := allPrices(ctx, tx, tenant)
		if err != nil {
			return err
		}
		estimate := revenueEstimate{prices: prices, months: make(map[revenueKey]*Revenue)}
		if err := estimate.read(ctx, tx, tenant, meters, r); err != nil {
			return err
		}
		months = estimate.list()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("estimate revenue: %w", err)
	}
	return months, nil
}

type revenueKey struct {
	month    time.Time
	currency string
}

// revenueEstimate adds up charges as usage is read, customer by customer.
type revenueEstimate struct {
	prices map[metering.MeterID][]billing.Price
	months map[revenueKey]*Revenue
}

// read goes through every month of usage of every customer, by month and
// customer, so that nobody is counted twice.
func (e *revenueEstimate) read(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, meters []metering.Meter, r metering.Range) error {
	byVersion := make(map[metering.MeterVersionID]metering.Meter)
	for _, m := range meters {
		byVersion[m.Version.ID] = m
	}
	statement := newUsageStatementOfAll(tenant, meters)
	statement.addMonths(0, r)
	rows, err := tx.Query(ctx, `
		select start, customer_id, meter_version_id, `+productAt("@tenant", "counted.customer_id", "counted.start")+`,
		  `+mergedTally+`
		from `+statement.rows()+`
		where customer_id <> 0
		group by 1, 2, 3
		order by 1, 2`, statement.args)
	if err != nil {
		return err
	}
	var (
		month    time.Time
		customer metering.CustomerID
		version  metering.MeterVersionID
		product  metering.ProductID
		t        tally
	)
	last := make(map[revenueKey]metering.CustomerID)
	_, err = pgx.ForEachRow(rows, append([]any{&month, &customer, &version, &product}, t.fields()...), func() error {
		m := byVersion[version]
		price, priced := billing.PriceAt(e.prices[m.ID], product, month)
		if !priced {
			return nil
		}
		key := revenueKey{month, price.Currency}
		in, known := e.months[key]
		if !known {
			in = &Revenue{Month: month, Currency: price.Currency}
			e.months[key] = in
		}
		if last[key] != customer {
			last[key] = customer
			in.Customers++
		}
		in.Amount = in.Amount.Add(billing.Estimate(m, price, t.total(m.Version.Aggregation)))
		return nil
	})
	return err
}

func (e *revenueEstimate) list() []Revenue {
	var months []Revenue
	for _, in := range e.months {
		months = append(months, *in)
	}
	slices.SortFunc(months, func(a, b Revenue) int {
		return cmp.Or(b.Month.Compare(a.Month), cmp.Compare(a.Currency, b.Currency))
	})
	return months
}
