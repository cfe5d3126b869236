package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// Unrated reads usage that will not be billed (see billing.UnratedReason): before a customer's first billing
// period, in open periods, and in closed periods. Unrated usage is computed from rollups and the ledger, and is
// never stored.
type Unrated struct {
	pool *pg.Pool
	read ReadPrice
}

// UnratedUsage is usage of one customer, meter and period that will not be billed.
type UnratedUsage struct {
	Customer     metering.CustomerID
	ExternalID   string
	CustomerName string
	billing.UnratedLine
}

// UnratedKey is the position of a line in the tenant's list.
type UnratedKey struct {
	Customer metering.CustomerID   `json:"customer"`
	Start    time.Time             `json:"start"`
	Stream   int                   `json:"stream"`
	Meter    metering.MeterID      `json:"meter"`
	Reason   billing.UnratedReason `json:"reason"`
}

// Key returns the line's position.
func (u UnratedUsage) Key() UnratedKey {
	return UnratedKey{u.Customer, u.Period.Start.UTC(), u.Stream, u.MeterID, u.Reason}
}

func (k UnratedKey) compare(o UnratedKey) int {
	return cmp.Or(cmp.Compare(k.Customer, o.Customer), k.Start.Compare(o.Start), cmp.Compare(k.Stream, o.Stream),
		cmp.Compare(k.Meter, o.Meter), cmp.Compare(k.Reason, o.Reason))
}

// UnratedPage is a page of the list, in the order of the keys.
type UnratedPage struct {
	Lines []UnratedUsage
	Next  *UnratedKey // the key after which the next page begins; nil on the last page
}

// UnratedTotal is the unrated usage with one reason and one currency.
type UnratedTotal struct {
	Reason    billing.UnratedReason
	Currency  string           // "" for lines without a price
	Lines     int64            // number of combinations of customer, meter and period
	Customers int64            // number of customers with such lines
	Since     time.Time        // start of the earliest period
	Estimate  metering.Decimal // sum of the lines' estimates; 0 without a currency
}

// unratedBatches is the maximum number of batches of customers that List searches for one page.
const unratedBatches = 5

// List returns up to limit lines after a key, or the first lines if after is nil. It skips periods that ended
// before the month that contains since. A page may have fewer lines than limit, or none, and still have a next
// page.
func (s Unrated) List(ctx context.Context, tenant metering.TenantID, since, now time.Time, after *UnratedKey, limit int) (page UnratedPage, err error) {
	err = s.withReader(ctx, tenant, since, now, func(r *unratedReader) error {
		page = UnratedPage{}
		if after != nil {
			r.after = after.Customer - 1
		}
		for range unratedBatches {
			batch, err := r.next()
			if err != nil || batch == nil {
				page.Next = nil
				return err
			}
			for _, line := range batch.lines() {
				if after != nil && line.Key().compare(*after) <= 0 {
					continue
				}
				if len(page.Lines) == limit {
					page.Next = new(page.Lines[limit-1].Key())
					return nil
				}
				page.Lines = append(page.Lines, line)
			}
			page.Next = &UnratedKey{Customer: r.after + 1}
		}
		return nil
	})
	if err != nil {
		return UnratedPage{}, fmt.Errorf("list unrated usage: %w", err)
	}
	return page, nil
}

// Totals sums the lines of List by reason and currency.
func (s Unrated) Totals(ctx context.Context, tenant metering.TenantID, since, now time.Time) (totals []UnratedTotal, err error) {
	type key struct {
		reason   billing.UnratedReason
		currency string
	}
	err = s.withReader(ctx, tenant, since, now, func(r *unratedReader) error {
		sums := make(map[key]*UnratedTotal)
		last := make(map[key]metering.CustomerID)
		for {
			batch, err := r.next()
			if err != nil {
				return err
			}
			if batch == nil {
				break
			}
			for _, line := range batch.lines() {
				of := key{line.Reason, line.Currency}
				total, known := sums[of]
				if !known {
					total = &UnratedTotal{Reason: of.reason, Currency: of.currency, Since: line.Period.Start}
					sums[of] = total
				}
				total.Lines++
				if line.Period.Start.Before(total.Since) {
					total.Since = line.Period.Start
				}
				if last[of] != line.Customer {
					last[of] = line.Customer
					total.Customers++
				}
				if line.Estimate != nil {
					total.Estimate = total.Estimate.Add(*line.Estimate)
				}
			}
		}
		totals = nil
		for _, of := range slices.SortedFunc(maps.Keys(sums), func(a, b key) int {
			return cmp.Or(cmp.Compare(a.reason, b.reason), cmp.Compare(a.currency, b.currency))
		}) {
			totals = append(totals, *sums[of])
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("add up unrated usage: %w", err)
	}
	return totals, nil
}

// FirstStarts returns the start of each customer's first billing period, keyed by the customer's external ID.
// It returns none if the tenant has neither a price nor a provider.
func (s Unrated) FirstStarts(ctx context.Context, tenant metering.TenantID, externalIDs []string, now time.Time) (starts map[string]time.Time, err error) {
	err = s.withReader(ctx, tenant, now, now, func(r *unratedReader) error {
		starts = make(map[string]time.Time)
		return r.eachNamed(externalIDs, func(batch *unratedBatch) error {
			for _, f := range batch.facts {
				starts[f.Customer.ExternalID] = r.unrated(*f).FirstStart()
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("find first billing periods: %w", err)
	}
	return starts, nil
}

// errOnlyMeters ends a read of a tenant that has neither a price nor a provider.
var errOnlyMeters = errors.New("the tenant only meters")

// withReader calls use with a reader of the tenant's unrated usage, in one snapshot. If the tenant has neither a price
// nor a provider, withReader returns nil without calling use.
func (s Unrated) withReader(ctx context.Context, tenant metering.TenantID, since, now time.Time, use func(*unratedReader) error) error {
	err := pg.AtOneInstant(ctx, s.pool, func(tx pgx.Tx) error {
		r := &unratedReader{revenueReader: &revenueReader{ctx: ctx, tx: tx, tenant: tenant, now: metering.Instant(now), theirs: make(providerPrices), read: s.read}}
		r.periodsOf = func(f billing.Facts) []billing.Period { return r.unrated(f).Periods() }
		for _, step := range []func() error{r.requireBilling, r.catalog, func() error { return r.monthsSince(since) }} {
			if err := step(); err != nil {
				return err
			}
		}
		return use(r)
	})
	if errors.Is(err, errOnlyMeters) {
		return nil
	}
	return err
}

// unratedReader reads the unrated usage of customers, batch by batch.
type unratedReader struct {
	*revenueReader
	unlinked map[metering.CustomerID]bool      // customers of the batch that have no link to the provider
	first    map[metering.CustomerID]time.Time // start of the first stored period of the batch's customers
}

// requireBilling returns errOnlyMeters if the tenant has neither a price nor a provider.
func (r *unratedReader) requireBilling() error {
	var bills bool
	err := r.tx.QueryRow(r.ctx, `select `+usage.TenantBills, r.tenant).Scan(&bills)
	if err == nil && !bills {
		err = errOnlyMeters
	}
	return err
}

// unrated adds the facts that only unrated usage needs to a customer's facts.
func (r *unratedReader) unrated(f billing.Facts) billing.UnratedFacts {
	u := billing.UnratedFacts{Facts: f, Linked: !r.unlinked[f.Customer.ID], Since: r.months[0]}
	if first, stored := r.first[f.Customer.ID]; stored {
		u.FirstStored = &first
	}
	return u
}

// unratedBatch is a batch of customers with the usage of their unrated periods.
type unratedBatch struct {
	*openBatch
	reader *unratedReader
	closed map[metering.CustomerID][]billing.UnratedLine
	names  map[metering.CustomerID]string
}

// next reads the next batch of customers. It returns nil if there are no more.
func (r *unratedReader) next() (*unratedBatch, error) {
	ids, err := r.nextIDs()
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	b, err := r.readBatch(ids, `p.customer_id between @first and @last`)
	if err != nil {
		return nil, err
	}
	for _, step := range []func() error{b.usage, b.severalStreams, b.closedUnbilled, b.closedUnpriced} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// eachNamed calls fn for each batch of the customers with the external IDs.
func (r *unratedReader) eachNamed(externalIDs []string, fn func(*unratedBatch) error) error {
	batches, err := customerBatches(r.ctx, r.tx, r.tenant, `and c.external_id = any(@external_ids) order by c.id`, pgx.NamedArgs{"external_ids": externalIDs})
	if err != nil {
		return err
	}
	for _, ids := range batches {
		b, err := r.readBatch(ids, `p.customer_id = any(@customers)`)
		if err != nil {
			return err
		}
		if err := fn(b); err != nil {
			return err
		}
	}
	return nil
}

// readBatch reads customers by their ids, and their periods with unrated usage. within is the condition that a stored
// period p belongs to one of them.
func (r *unratedReader) readBatch(ids []int64, within string) (*unratedBatch, error) {
	open, err := r.batchOf(ids)
	if err != nil {
		return nil, err
	}
	open.within = within
	b := &unratedBatch{openBatch: open, reader: r, closed: make(map[metering.CustomerID][]billing.UnratedLine), names: make(map[metering.CustomerID]string)}
	for _, step := range []func() error{b.links, b.periods} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// links reads the customers' names, their links to the provider, and the starts of their stored periods.
func (b *unratedBatch) links() error {
	b.reader.unlinked, b.reader.first = make(map[metering.CustomerID]bool), make(map[metering.CustomerID]time.Time)
	rows, err := b.tx.Query(b.ctx, `
		select c.id, c.name, c.billing_provider_id is null, (
		  select min(p.starts_at) from billing_periods p where p.tenant_id = c.tenant_id and p.customer_id = c.id and p.stream = 0)
		from customers c
		where c.tenant_id = $1
		  and c.id = any($2)`, b.tenant, b.ids)
	if err != nil {
		return err
	}
	var (
		id       metering.CustomerID
		name     string
		unlinked bool
		first    *time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &name, &unlinked, &first}, func() error {
		b.names[id], b.reader.unlinked[id] = name, unlinked
		if first != nil {
			b.reader.first[id] = first.UTC()
		}
		return nil
	})
	return err
}

// closedUnbilled reads the lines of closed periods that no provider bills or that have no price. In a period
// that was billed in quantities, a line needs no price of ours, because the provider charges its own price.
func (b *unratedBatch) closedUnbilled() error {
	rows, err := b.tx.Query(b.ctx, `
		select p.customer_id, p.starts_at, p.ends_at, p.stream, t.meter_id, m.slug, t.usage, t.event_count, t.charge, t.currency, t.unpriced, t.unpriced and p.bills <> 'quantities'
		from billing_periods p
		join lateral (
		  select t.*, t.price_version = 0 and t.terms is null as unpriced
		  from billing_period_totals t
		  where t.tenant_id = p.tenant_id
		    and t.period_id = p.id
		    and not t.trial
		    and (t.event_count > 0 or t.charge <> 0)) t on true
		join meters m on m.tenant_id = p.tenant_id and m.id = t.meter_id
		where p.tenant_id = @tenant
		  and p.customer_id = any(@customers)
		  and p.closed_at is not null
		  and p.ends_at > @since
		  and (not t.billed or t.unpriced and p.bills <> 'quantities')`,
		pgx.NamedArgs{"tenant": b.tenant, "customers": b.ids, "since": b.months[0]})
	if err != nil {
		return err
	}
	var (
		customer          metering.CustomerID
		line              billing.UnratedLine
		charge            metering.Decimal
		currency          string
		unpriced, noPrice bool
	)
	priced := b.facts[b.ids[0]].HasPrices()
	_, err = pgx.ForEachRow(rows, []any{&customer, &line.Period.Start, &line.Period.End, &line.Stream, &line.MeterID, &line.MeterSlug, &line.Usage, &line.Events, &charge, &currency, &unpriced, &noPrice}, func() error {
		found := line
		found.State, found.Reason = billing.PeriodClosed, billing.ClosedUnbilled
		if noPrice {
			found.Reason = billing.NoPrice
		}
		if !unpriced {
			found.Estimate, found.Currency = new(charge), currency
		}
		if !noPrice || priced {
			b.closed[customer] = append(b.closed[customer], found)
		}
		return nil
	})
	return err
}

// lines returns the unrated usage of the batch's customers, ordered by key.
func (b *unratedBatch) lines() (lines []UnratedUsage) {
	of := func(f *billing.Facts, found []billing.UnratedLine) {
		for _, line := range found {
			lines = append(lines, UnratedUsage{f.Customer.ID, f.Customer.ExternalID, b.names[f.Customer.ID], line})
		}
	}
	for _, s := range b.schedules() {
		for _, p := range s.Periods {
			of(s.Facts, b.reader.unrated(*s.Facts).Lines(p))
		}
	}
	for _, id := range b.ids {
		of(b.facts[id], b.closed[metering.CustomerID(id)])
	}
	slices.SortFunc(lines, func(x, y UnratedUsage) int { return x.Key().compare(y.Key()) })
	return lines
}
