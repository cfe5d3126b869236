package ledger

import (
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// revenueBatch is the maximum number of customers that are read together and held in memory at once.
const revenueBatch = 2000

// open adds the charges so far of the periods that are not closed.
func (r *revenueReader) open() error { return r.batches((*openBatch).add) }

// batches calls fn for each batch of customers, with their open periods.
func (r *revenueReader) batches(fn func(*openBatch) error) error {
	for {
		batch, err := r.nextBatch()
		if err != nil || batch == nil {
			return err
		}
		if err := fn(batch); err != nil {
			return err
		}
	}
}

// nextBatch reads the open periods of the next batch of customers. It returns nil if there are no more.
func (r *revenueReader) nextBatch() (*openBatch, error) {
	ids, err := r.nextIDs()
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	b, err := r.batchOf(ids)
	if err != nil {
		return nil, err
	}
	return b, b.load()
}

// nextIDs returns the ids of the next batch of customers: up to revenueBatch customers, which CustomerBatches
// may divide further. It returns none if there are no more.
func (r *revenueReader) nextIDs() (ids []int64, err error) {
	if len(r.ahead) == 0 {
		last := metering.CustomerID(math.MaxInt64)
		if r.only != 0 {
			r.after, last = max(r.after, r.only-1), r.only
		}
		r.ahead, err = customerBatches(r.ctx, r.tx, r.tenant, `and c.id > @after and c.id <= @last order by c.id limit @limit`,
			pgx.NamedArgs{"after": r.after, "last": last, "limit": revenueBatch})
		if err != nil || len(r.ahead) == 0 {
			return nil, err
		}
	}
	ids, r.ahead = r.ahead[0], r.ahead[1:]
	r.after = metering.CustomerID(ids[len(ids)-1])
	return ids, nil
}

// load reads the open periods with their usage, and sets b.open and b.streams.
func (b *openBatch) load() error {
	for _, step := range []func() error{b.periods, b.usage, b.severalStreams} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// loadStored reads the stored periods and, for customers with a period end that depends on them, the reported
// quantities. It sets b.open to the periods that the query selects. It reads usage only for customers with
// several billing schedules.
func (b *openBatch) loadStored() error {
	if err := b.stored(`and `+b.within, b.ids...); err != nil {
		return err
	}
	if err := b.reported(); err != nil {
		return err
	}
	b.showPeriods()
	return b.severalStreams()
}

// openBatch holds the facts from which the charges of open periods are computed, for a batch of customers.
type openBatch struct {
	*revenueReader
	ids    []int64 // ids of the customers, ascending
	within string  // the SQL condition that a stored period p belongs to a customer of the batch
	facts  map[int64]*billing.Facts
	open   map[int64][]billing.Period

	several []metering.CustomerID // customers with several billing schedules, which are read one at a time
	streams []*factReader         // the schedules of these customers
}

// batchOf reads customers by their ids. Before each batch except the first, it lets other callers proceed
// (pg.Yield).
func (r *revenueReader) batchOf(ids []int64) (*openBatch, error) {
	if r.began {
		if err := pg.Yield(r.ctx); err != nil {
			return nil, err
		}
	}
	r.began = true
	b := &openBatch{revenueReader: r, within: `p.customer_id between @first and @last`, facts: make(map[int64]*billing.Facts), open: make(map[int64][]billing.Period)}
	rows, err := r.tx.Query(r.ctx, selectCustomerFacts+`and c.id = any(@customers) order by c.id`, pgx.NamedArgs{"tenant": r.tenant, "customers": ids})
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, scanCustomerFacts(new(connectionSettings)))
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Settings.Timezone = r.timezone
	}
	if err := addEarlyEvents(r.ctx, r.tx, r.tenant, all); err != nil {
		return nil, err
	}
	for i := range all {
		if err := all[i].price(b.theirs, b.read); err != nil {
			return nil, err
		}
		f := &all[i].Facts
		if all[i].streams > 1 {
			b.several = append(b.several, f.Customer.ID)
		}
		f.Now, f.Meters, f.Prices = r.now, r.meters, r.prices
		r.by.AddPrices(f.Customer.Prices)
		b.ids = append(b.ids, int64(f.Customer.ID))
		b.facts[int64(f.Customer.ID)] = f
	}
	return b, nil
}

// add adds the charges of the batch's open periods to the revenue.
func (b *openBatch) add() error {
	counted, err := b.countedClosed()
	if err != nil {
		return err
	}
	for _, s := range b.schedules() {
		b.addPeriods(s.Facts, s.Periods, counted)
	}
	return nil
}

// schedules returns the billing schedules of the batch's customers with their open periods, by customer.
func (b *openBatch) schedules() (all []SchedulePeriods) {
	byCustomer := b.schedulesByCustomer()
	for _, id := range b.ids {
		all = append(all, byCustomer[id]...)
	}
	return all
}

func (b *openBatch) schedulesByCustomer() map[int64][]SchedulePeriods {
	all := make(map[int64][]SchedulePeriods, len(b.ids))
	for _, id := range b.ids {
		if !b.isSeveral(id) {
			all[id] = []SchedulePeriods{{b.facts[id], b.open[id]}}
		}
	}
	for _, s := range b.streams {
		id := int64(s.customer)
		all[id] = append(all[id], SchedulePeriods{&s.facts, b.shown(s.facts)})
	}
	return all
}

func (b *openBatch) isSeveral(id int64) bool {
	return slices.Contains(b.several, metering.CustomerID(id))
}

// severalStreams reads all billing schedules of the customers with more than one, and the usage of their
// selected periods. It sets b.streams, and adds the periods to b.open.
func (b *openBatch) severalStreams() error {
	for _, customer := range b.several {
		streams, err := readStreams(b.ctx, b.tx, b.read, b.tenant, customer, b.now)
		if err != nil {
			return err
		}
		for _, s := range streams {
			var ranges []metering.Range
			for _, p := range b.shown(s.facts) {
				ranges, b.open[int64(customer)] = append(ranges, p.Range), append(b.open[int64(customer)], p)
			}
			read := s.alsoTotalsOf
			if b.recounts {
				s.facts.Meters, s.facts.Usage, s.by = b.meters, nil, b.by
				read = func(ranges ...metering.Range) error { return s.totalsOf(ranges) }
			}
			if err := read(ranges...); err != nil {
				return err
			}
		}
		b.streams = append(b.streams, streams...)
	}
	return nil
}

// shown returns the periods that periodsOf selects. Without periodsOf, it returns the schedule's open periods
// that end in the requested months.
func (b *openBatch) shown(f billing.Facts) []billing.Period {
	if b.periodsOf != nil {
		return b.periodsOf(f)
	}
	return slices.DeleteFunc(billing.OpenPeriods(f), func(p billing.Period) bool { return len(b.months) == 0 || !p.End.After(b.months[0]) })
}

// periods reads stored periods into the facts of the customers, and then sets b.open. Periods close in order, so the
// last stored period is open if any is. periods therefore reads only open stored periods, except for customers
// without one, or with a first period that can still change. It reads all stored periods of these customers. It also
// reads reports, because the end of a shortened period depends on them.
func (b *openBatch) periods() error {
	if err := b.stored(`and `+b.within+` and p.closed_at is null`, b.ids...); err != nil {
		return err
	}
	var rest []int64
	for _, id := range b.ids {
		if f := b.facts[id]; len(f.Stored) == 0 || f.Customer.HeadOpenUntil != nil {
			rest = append(rest, id)
			f.Stored = nil
		}
	}
	if len(rest) > 0 {
		if err := b.stored(`and p.customer_id = any(@customers)`, rest...); err != nil {
			return err
		}
	}
	if err := b.reported(); err != nil {
		return err
	}
	b.showPeriods()
	return nil
}

// showPeriods sets b.open for the customers with one billing schedule.
func (b *openBatch) showPeriods() {
	for _, id := range b.ids {
		if !b.isSeveral(id) {
			b.open[id] = b.shown(*b.facts[id])
		}
	}
}

// stored reads the stored periods that meet a condition into the facts of the customers. It reads only periods
// of first billing schedules.
func (b *openBatch) stored(condition string, customers ...int64) error {
	rows, err := b.tx.Query(b.ctx, selectBillingPeriods+condition+` and p.stream = 0 order by p.customer_id, p.starts_at`, pgx.NamedArgs{
		"tenant": b.tenant, "first": b.ids[0], "last": b.ids[len(b.ids)-1], "customers": customers,
	})
	if err != nil {
		return err
	}
	stored, err := pgx.CollectRows(rows, scanBillingPeriod)
	if err != nil {
		return err
	}
	for _, p := range stored {
		period, err := b.theirs.period(p, b.read)
		if err != nil {
			return err
		}
		f := b.facts[int64(p.customer)]
		f.Stored = append(f.Stored, period)
	}
	return nil
}

// reported reads the reported quantities of customers with a period end that depends on them.
func (b *openBatch) reported() error {
	all := make([]*billing.Facts, len(b.ids))
	for i, id := range b.ids {
		all[i] = b.facts[id]
	}
	return addReported(b.ctx, b.tx, b.tenant, 0, all)
}

// usage reads the usage of the customers in their open periods. It reads customers with the same period
// together.
func (b *openBatch) usage() error {
	var ranges []metering.Range
	var customers [][]int64
	known := make(map[metering.Range]int)
	for _, id := range b.ids {
		for _, p := range b.open[id] {
			within := metering.Range{Start: p.Start.UTC(), End: p.End.UTC()}
			no, found := known[within]
			if !found {
				no = len(ranges)
				known[within] = no
				ranges, customers = append(ranges, within), append(customers, nil)
			}
			customers[no] = append(customers[no], id)
		}
	}
	if len(ranges) == 0 {
		return nil
	}
	statement := usage.NewStatementOfSome(b.tenant, b.meters)
	statement.Separate(b.meters, b.by)
	for no, within := range ranges {
		statement.AddOf(no, within, customers[no])
	}
	used, err := usage.ReadRanges(b.ctx, b.tx, statement, b.meters, ranges, "timestamptz '0001-01-01'")
	for _, u := range used {
		f := b.facts[int64(u.Customer)]
		dimensions, _ := u.ByDimension(u.Aggregation)
		f.Usage = append(f.Usage, billing.Usage{Period: u.Within.Start, MeterID: u.Meter, Total: u.Usage, Events: u.Tally.All().Count, Dimensions: dimensions})
	}
	return err
}

type customerRevenue struct {
	customer int64
	revenueKey
}

// countedClosed returns the combinations of customer, month and currency that closed periods already add to
// Revenue.Customers. Open periods must not add them again.
func (b *openBatch) countedClosed() (map[customerRevenue]bool, error) {
	var first time.Time
	for _, periods := range b.open {
		for _, p := range periods {
			if month := billing.RevenueMonth(p.Range, b.timezone); first.IsZero() || month.Before(first) {
				first = month
			}
		}
	}
	counted := make(map[customerRevenue]bool)
	if first.IsZero() {
		return counted, nil
	}
	rows, err := b.tx.Query(b.ctx, `
		select distinct p.customer_id, `+revenueMonth+`, t.currency
		from billing_periods p
		join billing_period_totals t on t.tenant_id = p.tenant_id and t.period_id = p.id and (t.price_version > 0 or t.terms is not null) and t.event_count > 0
		where p.tenant_id = @tenant
		  and p.customer_id = any(@customers)
		  and p.closed_at is not null
		  and p.ends_at > @first`, pgx.NamedArgs{"tenant": b.tenant, "customers": b.ids, "first": first, "months": b.months})
	if err != nil {
		return nil, err
	}
	var (
		customer int64
		month    int
		currency string
	)
	_, err = pgx.ForEachRow(rows, []any{&customer, &month, &currency}, func() error {
		counted[customerRevenue{customer, revenueKey{b.months[month-1], currency}}] = true
		return nil
	})
	return counted, err
}

// addPeriods adds the charges so far of a customer's open periods to the revenue. It counts the customer once per month
// and currency, unless counted contains the combination.
func (b *openBatch) addPeriods(f *billing.Facts, periods []billing.Period, counted map[customerRevenue]bool) {
	id := int64(f.Customer.ID)
	for _, p := range periods {
		month := billing.RevenueMonth(p.Range, b.timezone).UTC()
		for _, c := range billing.OpenCharges(*f, p) {
			of := customerRevenue{id, revenueKey{month, c.Currency}}
			in := b.inMonth(of.revenueKey)
			in.Estimated = in.Estimated.Add(c.Charge)
			if c.Events > 0 && !counted[of] {
				counted[of] = true
				in.Customers++
			}
		}
	}
}
