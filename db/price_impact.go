package db

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// PriceImpact is what a price would change of the charges of open periods, in
// one currency.
type PriceImpact struct {
	Currency  string
	Before    metering.Decimal // what the customers' charges come to now
	After     metering.Decimal // what they would come to
	Customers int              // whose charges differ
}

// PriceImpact works out what a price would change if it were set, for each
// customer by the rules that charge them.
func (l Ledger) PriceImpact(ctx context.Context, tenant metering.TenantID, p billing.Price, now time.Time) ([]PriceImpact, error) {
	return l.impactOf(ctx, tenant, p.MeterID, now, func(versions []billing.Price) []billing.Price { return withPrice(versions, p) })
}

// InForceImpact works out the same for a price that had been in force from the
// beginning, in place of every other of the meter's in that product, or of its own.
func (l Ledger) InForceImpact(ctx context.Context, tenant metering.TenantID, p billing.Price, now time.Time) ([]PriceImpact, error) {
	return l.impactOf(ctx, tenant, p.MeterID, now, func(versions []billing.Price) []billing.Price { return withPriceAlone(versions, p) })
}

// impactOf works out what another price of a meter would change, given the
// versions that it would have.
func (l Ledger) impactOf(ctx context.Context, tenant metering.TenantID, meter metering.MeterID, now time.Time, then func([]billing.Price) []billing.Price) (impact []PriceImpact, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		r := &revenueReader{ctx: ctx, tx: tx, tenant: tenant, now: metering.Instant(now), theirs: make(providerPrices), read: l.read}
		if err := r.catalog(); err != nil {
			return err
		}
		r.months = []time.Time{{}} // all
		r.meters = slices.DeleteFunc(r.meters, func(m metering.Meter) bool { return m.ID != meter })
		after := maps.Clone(r.prices)
		after[meter] = then(r.prices[meter])
		compared := priceComparison{change: func(f *billing.Facts) { f.Prices = after }, changed: make(map[string]*PriceImpact)}
		err := r.batches(func(b *openBatch) error {
			b.each(compared.add)
			compared.endCustomers()
			return nil
		})
		impact = compared.list()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("compare prices: %w", err)
	}
	return impact, nil
}

// AssignmentImpact works out what a product would change of the customer's
// charges if it were assigned, by the rules that charge them.
func (l Ledger) AssignmentImpact(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, a billing.Assignment, now time.Time) (impact []PriceImpact, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		streams, err := readStreams(ctx, tx, l.read, tenant, customer, now)
		if err != nil {
			return err
		}
		compared := priceComparison{change: func(f *billing.Facts) { f.Customer.Products = withAssignment(f.Customer.Products, a) }, changed: make(map[string]*PriceImpact)}
		for _, s := range streams {
			open := billing.OpenPeriods(s.facts)
			var ranges []metering.Range
			for _, p := range open {
				ranges = append(ranges, p.Range)
			}
			if err := s.alsoTotalsOf(ranges...); err != nil {
				return err
			}
			compared.add(&s.facts, open)
		}
		compared.endCustomers()
		impact = compared.list()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compare products: %w", err)
	}
	return impact, nil
}

// withAssignment are a customer's assignments once a is made: the last of its instant.
func withAssignment(list []billing.Assignment, a billing.Assignment) []billing.Assignment {
	list = append(slices.Clone(list), a)
	slices.SortStableFunc(list, func(a, b billing.Assignment) int { return a.EffectiveFrom.Compare(b.EffectiveFrom) })
	return list
}

// withPrice are a meter's versions once p is set.
func withPrice(versions []billing.Price, p billing.Price) []billing.Price {
	p.Version = math.MaxInt32
	rest := slices.DeleteFunc(slices.Clone(versions), func(v billing.Price) bool {
		return v.ProductID == p.ProductID && v.EffectiveFrom.Equal(p.EffectiveFrom)
	})
	return append(rest, p)
}

// withPriceAlone are a meter's versions if p had been the only one of its product.
func withPriceAlone(versions []billing.Price, p billing.Price) []billing.Price {
	p.EffectiveFrom = time.Time{}
	return withPrice(slices.DeleteFunc(slices.Clone(versions), func(v billing.Price) bool { return v.ProductID == p.ProductID }), p)
}

// priceComparison adds up what differs once something is changed.
type priceComparison struct {
	change  func(*billing.Facts)
	changed map[string]*PriceImpact
	differ  map[customerCurrency]bool // of the batch
}

type customerCurrency struct {
	customer metering.CustomerID
	currency string
}

func (c *priceComparison) add(f *billing.Facts, periods []billing.Period) {
	then := *f
	c.change(&then)
	before, after := make(map[string]metering.Decimal), make(map[string]metering.Decimal)
	for _, p := range periods {
		for _, charge := range billing.OpenCharges(*f, p) {
			before[charge.Currency] = before[charge.Currency].Add(charge.Charge)
		}
		for _, charge := range billing.OpenCharges(then, p) {
			after[charge.Currency] = after[charge.Currency].Add(charge.Charge)
		}
	}
	for currency := range before {
		c.compare(f.Customer.ID, currency, before[currency], after[currency])
	}
	for currency := range after {
		if _, both := before[currency]; !both {
			c.compare(f.Customer.ID, currency, metering.Decimal{}, after[currency])
		}
	}
}

func (c *priceComparison) compare(customer metering.CustomerID, currency string, before, after metering.Decimal) {
	if before.Cmp(after) == 0 {
		return
	}
	in, known := c.changed[currency]
	if !known {
		in = &PriceImpact{Currency: currency}
		c.changed[currency] = in
	}
	in.Before, in.After = in.Before.Add(before), in.After.Add(after)
	if c.differ == nil {
		c.differ = make(map[customerCurrency]bool)
	}
	c.differ[customerCurrency{customer, currency}] = true
}

// endCustomers counts those of a batch: a customer's streams are all in one.
func (c *priceComparison) endCustomers() {
	for of := range c.differ {
		c.changed[of.currency].Customers++
	}
	c.differ = nil
}

func (c *priceComparison) list() (impact []PriceImpact) {
	for _, in := range c.changed {
		impact = append(impact, *in)
	}
	slices.SortFunc(impact, func(a, b PriceImpact) int { return cmp.Compare(a.Currency, b.Currency) })
	return impact
}
