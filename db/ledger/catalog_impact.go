package ledger

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
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Impact is the effect of a catalog write on billing periods that have begun and are not closed, and on the
// currencies of later periods. A closed period keeps its stored charge.
type Impact struct {
	Revision   int64 // catalog revision that the impact was computed from
	AsOf       time.Time
	Customers  int              // number of customers with a begun period that is charged differently, or with another currency
	Ranges     []metering.Range // ranges of these begun periods without duplicates, oldest first
	Months     []ChangedMonth
	Changes    []PriceImpact
	Currencies []CurrencyImpact
	Uncounted  []metering.MeterID // meters with earlier events that are not counted yet, so Changes lacks them
}

// ChangedMonth summarizes the periods that begin in one calendar month and are charged differently after the
// write.
type ChangedMonth struct {
	metering.Range     // from the first start to the last end
	Customers      int // number of customers with such a period
}

// PriceImpact is the difference of the charges of open periods in one currency.
type PriceImpact struct {
	Currency  string
	Before    metering.Decimal // current charges of the customers with a difference
	After     metering.Decimal // charges of the same customers after the write
	Customers int              // number of customers with a difference
	Largest   []CustomerImpact // customers with the largest differences, largest first
}

// maxCustomerImpacts is the maximum number of customers in PriceImpact.Largest.
const maxCustomerImpacts = 10

// CustomerImpact is the difference of the charges of one customer's open periods.
type CustomerImpact struct {
	ExternalID    string
	Before, After metering.Decimal
}

// size returns the absolute difference.
func (c CustomerImpact) size() metering.Decimal {
	if c.After.Cmp(c.Before) < 0 {
		return c.Before.Sub(c.After)
	}
	return c.After.Sub(c.Before)
}

// add adds a customer with different charges.
func (i *PriceImpact) add(c CustomerImpact) {
	i.Before, i.After, i.Customers = i.Before.Add(c.Before), i.After.Add(c.After), i.Customers+1
	i.Largest = append(i.Largest, c)
	slices.SortStableFunc(i.Largest, func(a, b CustomerImpact) int { return b.size().Cmp(a.size()) })
	i.Largest = i.Largest[:min(len(i.Largest), maxCustomerImpacts)]
}

// catalogChange is the effect of a catalog write on billing facts. Zero fields change nothing.
type catalogChange struct {
	meter    metering.MeterID    // the only meter with charges that can differ; 0: any
	customer metering.CustomerID // the only customer with charges that can differ; 0: any

	from        time.Time                                       // when the change takes effect
	price       billing.Price                                   // price that the change adds, with Version 0; zero: none
	prices      func([]billing.Price) []billing.Price           // returns the changed prices of meter, with plan prices
	own         func([]billing.Price) []billing.Price           // returns the changed own prices of customer
	assignments func([]billing.Assignment) []billing.Assignment // returns the changed plans of customer

	scale       *int32               // new usage scale of meter; nil: unchanged
	aggregation metering.Aggregation // new aggregation of meter; "": unchanged
	timezone    *time.Location       // new time zone of the tenant; nil: unchanged
	recounted   bool                 // meter counts different events, or aggregates them differently
	uncounted   bool                 // meter will also count events that are not counted yet
}

// PriceImpact computes the impact of setting a price. It returns CodeInvalid if the first price of a plan or
// customer for a meter would change the currency of a begun billing period.
func (l Ledger) PriceImpact(ctx context.Context, tenant metering.TenantID, p billing.Price, now time.Time) (Impact, error) {
	impact, err := l.impactOf(ctx, tenant, now, always(priceChange(p, p.EffectiveFrom, func(versions []billing.Price) []billing.Price { return withPrice(versions, p) })))
	if err == nil {
		err = impact.refuseCurrency(p)
	}
	return impact, err
}

// InForceImpact computes the impact as if a price had been in force from the beginning. The price replaces all
// other prices of the meter with the same owner: the plan, the customer, or none.
func (l Ledger) InForceImpact(ctx context.Context, tenant metering.TenantID, p billing.Price, now time.Time) (Impact, error) {
	return l.impactOf(ctx, tenant, now, always(priceChange(p, time.Time{}, func(versions []billing.Price) []billing.Price { return withPriceAlone(versions, p) })))
}

// priceChange returns a change that applies update to the stored versions of a price. These are the customer's own
// prices if p has a customer, and otherwise the catalog's prices of the meter.
func priceChange(p billing.Price, from time.Time, update func([]billing.Price) []billing.Price) catalogChange {
	if p.CustomerID != 0 {
		return catalogChange{meter: p.MeterID, customer: p.CustomerID, from: from, price: p, own: update}
	}
	return catalogChange{meter: p.MeterID, from: from, price: p, prices: update}
}

// AssignmentImpact computes the impact of assigning a plan to a customer.
func (l Ledger) AssignmentImpact(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, a billing.Assignment, now time.Time) (Impact, error) {
	return l.impactOf(ctx, tenant, now, always(catalogChange{
		customer: customer, from: a.EffectiveFrom, assignments: func(list []billing.Assignment) []billing.Assignment { return withAssignment(list, a) },
	}))
}

// MeterImpact computes the impact of changing a meter's definition.
func (l Ledger) MeterImpact(ctx context.Context, tenant metering.TenantID, slug string, change catalog.MeterChange, now time.Time) (Impact, error) {
	return l.impactOf(ctx, tenant, now, func(tx pgx.Tx) (*catalogChange, error) {
		m, err := catalog.MeterBySlug(ctx, tx, tenant, slug)
		if err != nil {
			return nil, err
		}
		latest, err := catalog.LatestMeterVersion(ctx, tx, tenant, m.ID)
		if err != nil {
			return nil, err
		}
		c := &catalogChange{meter: m.ID, scale: change.UsageScale}
		switch next := change.AppliedTo(latest); {
		case !next.SameSelection(latest): // the events of the new selection are not counted yet
			c.recounted, c.uncounted = true, true
		case next.Aggregation != latest.Aggregation:
			c.aggregation, c.recounted = next.Aggregation, true
		}
		if !c.recounted && (c.scale == nil || *c.scale == m.UsageScale) {
			return nil, nil //nolint:nilnil // nothing changes
		}
		return c, nil
	})
}

// ArchiveImpact computes the impact of archiving or unarchiving a meter. An archived meter counts no further
// events. An unarchived meter also counts the events received while it was archived.
func (l Ledger) ArchiveImpact(ctx context.Context, tenant metering.TenantID, slug string, archive bool, now time.Time) (Impact, error) {
	return l.impactOf(ctx, tenant, now, func(tx pgx.Tx) (*catalogChange, error) {
		m, err := catalog.MeterBySlug(ctx, tx, tenant, slug)
		if err != nil || archive != m.ArchivedAt.IsZero() {
			return nil, err
		}
		return &catalogChange{meter: m.ID, recounted: true, uncounted: !archive}, nil
	})
}

// TimezoneImpact computes the impact of changing the tenant's time zone. Billing periods follow the calendar
// months of that zone. The impact is empty if the zone does not exist.
func (l Ledger) TimezoneImpact(ctx context.Context, tenant metering.TenantID, zone string, now time.Time) (Impact, error) {
	return l.impactOf(ctx, tenant, now, func(tx pgx.Tx) (*catalogChange, error) {
		var current string
		if err := tx.QueryRow(ctx, `select timezone from tenants where id = $1`, tenant).Scan(&current); err != nil {
			return nil, err
		}
		_, err := metering.LoadLocation(current)
		next, nextErr := metering.LoadLocation(zone)
		if err != nil || nextErr != nil || zone == current {
			return nil, nil //nolint:nilnil,nilerr // the write refuses the zone, or changes no charge
		}
		return &catalogChange{timezone: next}, nil
	})
}

// always returns a function for impactOf that returns c, regardless of the catalog.
func always(c catalogChange) func(pgx.Tx) (*catalogChange, error) {
	return func(pgx.Tx) (*catalogChange, error) { return &c, nil }
}

// impactOf computes the impact of the change that readChange returns, at one revision of the catalog. Each customer is
// charged at the prices that apply to it. If readChange returns nil, the write changes nothing.
func (l Ledger) impactOf(ctx context.Context, tenant metering.TenantID, now time.Time, readChange func(pgx.Tx) (*catalogChange, error)) (impact Impact, err error) {
	err = pg.AtOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		impact = Impact{AsOf: metering.Instant(now)}
		if impact.Revision, err = catalog.ReadRevision(ctx, tx, tenant); err != nil {
			return err
		}
		change, err := readChange(tx)
		if err != nil || change == nil {
			return err
		}
		before := &revenueReader{ctx: ctx, tx: tx, tenant: tenant, now: metering.Instant(now), theirs: make(providerPrices), read: l.read}
		before.months = []time.Time{{}} // all
		before.only = change.customer
		if err := before.catalog(); err != nil {
			return err
		}
		if change.meter != 0 {
			before.meters = slices.DeleteFunc(before.meters, func(m metering.Meter) bool { return m.ID != change.meter })
		}
		compared := newCatalogComparison(*change, before)
		compared.revision = impact.Revision
		if !compared.isOfLaterPeriods() || !compared.keepsCurrency() {
			if err := before.batches(compared.addBatch); err != nil {
				return err
			}
		}
		impact = compared.impact()
		return nil
	})
	if err != nil {
		return Impact{}, fmt.Errorf("compare charges: %w", err)
	}
	return impact, nil
}

// withAssignment returns a copy of the list with one more assignment. Among assignments from the same instant, the
// added one is last.
func withAssignment(list []billing.Assignment, added billing.Assignment) []billing.Assignment {
	list = append(slices.Clone(list), added)
	slices.SortStableFunc(list, func(a, b billing.Assignment) int { return a.EffectiveFrom.Compare(b.EffectiveFrom) })
	return list
}

// withPrice returns a copy of the versions after the price is set.
func withPrice(versions []billing.Price, p billing.Price) []billing.Price {
	p.Version = math.MaxInt32
	rest := slices.DeleteFunc(slices.Clone(versions), func(v billing.Price) bool {
		return v.SameSeries(p) && v.EffectiveFrom.Equal(p.EffectiveFrom)
	})
	return append(rest, p)
}

// withPriceAlone returns the versions as if the price had been the only price of its owner and meter.
func withPriceAlone(versions []billing.Price, p billing.Price) []billing.Price {
	p.EffectiveFrom = time.Time{}
	return withPrice(slices.DeleteFunc(slices.Clone(versions), func(v billing.Price) bool { return v.SameSeries(p) }), p)
}

// catalogComparison adds up the differences between charges under the current and the changed catalog.
type catalogComparison struct {
	change   catalogChange
	before   *revenueReader
	after    *revenueReader // with the changed catalog
	revision int64

	ranges     map[metering.Range]bool
	months     map[time.Time]*ChangedMonth
	changes    map[string]*PriceImpact
	currencies map[[2]string]*CurrencyImpact // by From and To
	touched    int
}

func newCatalogComparison(change catalogChange, before *revenueReader) *catalogComparison {
	c := &catalogComparison{
		change: change, before: before,
		ranges: make(map[metering.Range]bool), months: make(map[time.Time]*ChangedMonth), changes: make(map[string]*PriceImpact),
		currencies: make(map[[2]string]*CurrencyImpact),
	}
	after := *before
	if change.prices != nil {
		after.prices = maps.Clone(before.prices)
		after.prices[change.meter] = change.prices(before.prices[change.meter])
		before.by.AddPrices(after.prices[change.meter])
	}
	if change.own != nil {
		before.by.AddPrices(change.own(nil))
	}
	before.recounts = len(before.by[change.meter]) > 0
	after.meters = slices.Clone(before.meters)
	for i := range after.meters {
		if m := &after.meters[i]; m.ID == change.meter {
			m.UsageScale = *cmp.Or(change.scale, &m.UsageScale)
			m.Version.Aggregation = cmp.Or(change.aggregation, m.Version.Aggregation)
		}
	}
	after.recounts = change.aggregation != ""
	after.timezone = cmp.Or(change.timezone, before.timezone)
	c.after = &after
	return c
}

// isOfLaterPeriods reports whether the change can only affect periods that have not begun, because a period
// is charged by the catalog at its start.
func (c *catalogComparison) isOfLaterPeriods() bool {
	return c.change.from.After(c.before.now)
}

// addBatch compares the charges of a batch of customers before and after the change.
func (c *catalogComparison) addBatch(b *openBatch) error {
	former := b.schedulesByCustomer()
	next := former
	if c.change.aggregation != "" || c.change.timezone != nil { // these changes affect how usage is read
		after, err := c.after.nextBatch()
		if err != nil {
			return err
		}
		next = after.schedulesByCustomer()
	}
	for _, id := range b.ids {
		c.add(former[id], next[id])
	}
	return nil
}

// add compares the charges of one customer's billing schedules before and after the change.
func (c *catalogComparison) add(former, next []SchedulePeriods) {
	var recounted metering.MeterID
	if c.change.recounted {
		recounted = c.change.meter
	}
	var changed []billing.Period
	var currencies []billing.CurrencyChange
	before, after := make(map[string]metering.Decimal), make(map[string]metering.Decimal)
	for i, s := range former {
		now, then := *s.Facts, *next[i].Facts
		now.Meters = c.before.meters
		then.Meters, then.Prices = c.after.meters, c.after.prices
		if c.change.assignments != nil {
			then.Customer.Plans = c.change.assignments(then.Customer.Plans)
		}
		if c.change.own != nil {
			then.Customer.Prices = c.change.own(then.Customer.Prices)
		}
		changed = append(changed, billing.ChangedPeriods(now, then, recounted)...)
		currencies = billing.AddCurrencies(currencies, billing.ChangedCurrencies(now, then))
		addCharges(before, now, s.Periods)
		addCharges(after, then, next[i].Periods)
	}
	if len(changed)+len(currencies) == 0 {
		return
	}
	c.touched++
	for _, change := range currencies {
		c.addCurrency(change)
	}
	months := make(map[time.Time]bool)
	for _, p := range changed {
		c.addPeriod(p.Range, months)
	}
	id := former[0].Facts.Customer.ExternalID
	for currency := range maps.Keys(union(before, after)) {
		c.addCharge(currency, CustomerImpact{id, before[currency], after[currency]})
	}
}

func addCharges(sums map[string]metering.Decimal, f billing.Facts, periods []billing.Period) {
	for _, p := range periods {
		for _, charge := range billing.OpenCharges(f, p) {
			sums[charge.Currency] = sums[charge.Currency].Add(charge.Charge)
		}
	}
}

func union(a, b map[string]metering.Decimal) map[string]metering.Decimal {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// addPeriod adds a changed period of a customer. months holds the months in which the customer is already
// counted.
func (c *catalogComparison) addPeriod(r metering.Range, months map[time.Time]bool) {
	r = metering.Range{Start: r.Start.UTC(), End: r.End.UTC()}
	c.ranges[r] = true
	start := billing.CalendarPeriod(r.Start, c.before.timezone).Start.UTC()
	in, known := c.months[start]
	if !known {
		in = &ChangedMonth{Range: r}
		c.months[start] = in
	}
	if r.Start.Before(in.Start) {
		in.Start = r.Start
	}
	if r.End.After(in.End) {
		in.End = r.End
	}
	if !months[start] {
		months[start] = true
		in.Customers++
	}
}

func (c *catalogComparison) addCharge(currency string, of CustomerImpact) {
	if of.Before.Equal(of.After) {
		return
	}
	in, known := c.changes[currency]
	if !known {
		in = &PriceImpact{Currency: currency}
		c.changes[currency] = in
	}
	in.add(of)
}

func (c *catalogComparison) impact() Impact {
	impact := Impact{Revision: c.revision, AsOf: c.before.now, Customers: c.touched}
	impact.Ranges = slices.SortedFunc(maps.Keys(c.ranges), func(a, b metering.Range) int {
		return cmp.Or(a.Start.Compare(b.Start), a.End.Compare(b.End))
	})
	for _, start := range slices.SortedFunc(maps.Keys(c.months), time.Time.Compare) {
		impact.Months = append(impact.Months, *c.months[start])
	}
	for _, currency := range slices.Sorted(maps.Keys(c.changes)) {
		impact.Changes = append(impact.Changes, *c.changes[currency])
	}
	for _, change := range c.currencies {
		impact.Currencies = append(impact.Currencies, *change)
	}
	slices.SortFunc(impact.Currencies, func(a, b CurrencyImpact) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	for _, m := range c.before.meters {
		if m.Version.Status == metering.Backfilling || c.change.uncounted && m.ID == c.change.meter {
			impact.Uncounted = append(impact.Uncounted, m.ID)
		}
	}
	return impact
}
