package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// readStreams reads all billing facts of a customer. It returns a reader per billing schedule, ordered by
// schedule number. For a customer with one schedule, the number of statements does not depend on the number of
// meters, periods or windows. In a transaction with one snapshot, all facts are of one instant. It returns
// CodeNotFound if the customer does not exist.
func readStreams(ctx context.Context, q pg.Batcher, read ReadPrice, tenant metering.TenantID, customer metering.CustomerID, now time.Time) ([]*factReader, error) {
	all, err := newStreamReaders(ctx, q, read, tenant, customer, now)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if err := r.readCatalogAndLedger(); err != nil {
			return nil, err
		}
	}
	for i, r := range all {
		for _, other := range slices.Concat(all[:i], all[i+1:]) {
			r.facts.Beside = append(r.facts.Beside, other.facts.Reported...)
		}
	}
	for _, r := range all {
		r.compared = billing.NewBooks(r.facts)
		r.facts = r.compared.Facts
		if err := r.usageOf(r.compared.UsageRanges()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ReadSchedules reads only the facts that determine the start and end of the customers' billing periods. These
// include no own prices. It returns the facts of each customer's billing schedules, ordered by schedule number.
// The number of statements depends on the maximum number of schedules per customer, not on the number of customers.
func ReadSchedules(ctx context.Context, q pg.Batcher, price ReadPrice, tenant metering.TenantID, customers []int64, now time.Time) (map[metering.CustomerID][]billing.Facts, error) {
	readers, err := newFactReaders(ctx, q, price, tenant, selectScheduleFacts, customers, now)
	if err != nil {
		return nil, err
	}
	streams, most := make(map[metering.CustomerID][]billing.Facts), 0
	for _, first := range readers {
		most = max(most, first.streams)
		for _, r := range first.eachStream() {
			streams[r.customer] = append(streams[r.customer], r.facts)
		}
	}
	rows, err := q.Query(ctx, selectBillingPeriods+`and p.customer_id = any(@customers) order by p.customer_id, p.starts_at`, pgx.NamedArgs{"tenant": tenant, "customers": customers})
	if err != nil {
		return nil, err
	}
	stored, err := pgx.CollectRows(rows, scanBillingPeriod)
	if err != nil {
		return nil, err
	}
	for _, p := range stored {
		f := &streams[p.customer][p.Stream]
		f.Stored = append(f.Stored, p.Period)
	}
	for number := range most {
		var alike []*billing.Facts
		for _, r := range readers {
			if of := streams[r.customer]; number < len(of) {
				alike = append(alike, &of[number])
			}
		}
		if err := addReported(ctx, q, tenant, number, alike); err != nil {
			return nil, err
		}
	}
	return streams, nil
}

// readStored queues the read of a billing schedule's stored periods, oldest first.
func readStored(batch *pgx.Batch, args pgx.NamedArgs, add func(storedPeriod) error) {
	pg.QueueEach(batch, selectBillingPeriods+`and p.customer_id = @customer and p.stream = @stream order by p.starts_at`, []any{args}, scanBillingPeriod, add)
}

// newStreamReaders returns the readers of a customer's billing schedules, ordered by schedule number. The
// readers already hold the customerFacts of the customer.
func newStreamReaders(ctx context.Context, q pg.Batcher, price ReadPrice, tenant metering.TenantID, customer metering.CustomerID, now time.Time) ([]*factReader, error) {
	first, err := newFactReaders(ctx, q, price, tenant, selectCustomerFacts, []int64{int64(customer)}, now)
	if err != nil {
		return nil, err
	}
	if len(first) == 0 {
		return nil, metering.Errorf(metering.CodeNotFound, "there is no such customer")
	}
	return first[0].eachStream(), nil
}

// args returns the arguments of statements about the schedule. @connection is 0 if the tenant has no billing
// connection. @subscribed is the earliest start of the customer's current subscription periods, or null.
func (r *factReader) args() pgx.NamedArgs {
	args := pgx.NamedArgs{"tenant": r.tenant, "customer": r.customer, "connection": 0, "stream": r.facts.Stream, "subscribed": r.base.Side.SubscribedSince()}
	if r.facts.Connection != nil {
		args["connection"] = r.facts.Connection.ID
	}
	return args
}

// factReader reads and holds the billing facts of one billing schedule of a customer.
type factReader struct {
	ctx       context.Context
	q         pg.Batcher
	readPrice ReadPrice
	tenant    metering.TenantID
	customer  metering.CustomerID
	base      billing.Facts  // shared by the customer's billing schedules
	facts     billing.Facts  // of this billing schedule
	compared  *billing.Books // books after the comparison with the invoices; nil: not compared yet. After the comparison, the field facts holds the compared facts
	streams   int            // number of the customer's billing schedules
	kind      metering.ProviderKind
	prices    providerPrices
	by        billing.ByDimension // dimensions by which usage is read, in addition to those of the prices in facts

	lastNumber   int64               // number of the customer's last report
	paused       bool                // reporting is paused
	lastInvoiced int64               // highest sequence of the invoices and ended subscriptions that were read
	invoiced     []metering.PeriodID // periods that these invoices concern
}

// books returns the books of the billing schedule, with the usage that was read since the comparison with its invoices.
func (r *factReader) books() *billing.Books {
	b := *r.compared
	b.Facts = r.facts
	return &b
}

// readCatalogAndLedger reads the meters, the prices, and the customer's periods with their reports and invoices, in
// one round trip.
func (r *factReader) readCatalogAndLedger() error {
	f := &r.facts
	args := r.args()
	f.Prices = make(map[metering.MeterID][]billing.Price)
	var batch pgx.Batch
	pg.QueueRows(&batch, catalog.SelectMeters+`order by m.id`, []any{r.tenant}, catalog.ScanMeter, func(m metering.Meter) { f.Meters = append(f.Meters, m) })
	pg.QueueRows(&batch, catalog.SelectPrices+catalog.OfCatalog, []any{r.tenant}, catalog.ScanPrice, func(p billing.Price) {
		f.Prices[p.MeterID] = append(f.Prices[p.MeterID], p)
	})
	readStored(&batch, args, func(p storedPeriod) error {
		period, err := r.prices.period(p, r.readPrice)
		f.Stored = append(f.Stored, period)
		return err
	})
	pg.QueueEach(&batch, selectClosedLines, []any{args}, scanClosedLine, r.addClosedLine)
	pg.QueueRows(&batch, selectInvoiceLines, []any{args}, scanInvoiceLine, r.addInvoiceLine)
	pg.QueueRows(&batch, usage.SelectLateMonths, []any{args}, scanMonth, func(month metering.Range) { f.LateMonths = append(f.LateMonths, month) })
	r.readReported(&batch, args)
	pg.QueueRows(&batch, selectSentLines, []any{args}, scanSentLine, r.addSentLine)
	pg.QueueRows(&batch, selectOpen, []any{args}, scanOpen, r.addOpen)
	if err := r.q.SendBatch(r.ctx, &batch).Close(); err != nil {
		return err
	}
	r.markOmitted()
	return nil
}

var selectBillingPeriods = `
	select p.customer_id, p.stream, p.id, p.starts_at, p.ends_at, p.closed_at, p.complete, p.subscription, p.subscription_start, p.subscription_end, coalesce(p.subscription_connection, 0), p.trial, p.bills, p.prices, ` + namedTerms("p.tenant_id", hashesInPeriod) + `,
	  i.finalized_at is not null, i.decimals, coalesce(p.watermark_events, 0), p.watermark_configuration
	from billing_periods p
	left join lateral (
	  select i.finalized_at, i.decimals
	  ` + finalInvoices + `
	  order by i.finalized_at
	  limit 1) i on true
	where p.tenant_id = @tenant `

type storedPeriod struct {
	customer metering.CustomerID
	billing.Period
	prices map[metering.MeterID]string // hashes
	terms  keptTerms
}

func scanBillingPeriod(row pgx.CollectableRow) (p storedPeriod, err error) {
	var start, end *time.Time
	s := &p.Subscription
	err = row.Scan(&p.customer, &p.Stream, &p.ID, &p.Start, &p.End, &p.ClosedAt, &p.Complete, &s.ID, &start, &end, &s.Connection, &s.Trial, &p.Bills, &p.prices, &p.terms, &s.Invoiced, &s.Scales, &p.Watermark.Events, &p.Watermark.Configuration)
	if start != nil {
		s.Start, s.End = *start, *end
	}
	return p, err
}

// selectClosedLines is the SQL of the closed lines of a billing schedule. Reading a line without a meter fails, so that
// no plan ignores it.
var selectClosedLines = `
	select t.period_id, t.meter_id, t.meter_version_id, g.aggregation, t.usage, t.event_count, t.dimensions, t.price_version, ` + catalog.SourceOfPrice + `, case m.schema when 1 then m.terms else '{}' end, case m.schema when 2 then jsonb_build_object(encode(m.hash, 'hex'), m.terms) end, t.charge, t.currency,
	  t.billed, t.test, t.scale, t.trial, p.bills, t.late_difference_usage, t.late_difference_count, t.late_difference_dimensions, t.late_usage, t.late_count, t.late_dimensions, p.starts_at, b.event_count, b.units, b.charge, b.dimensions, coalesce(b.only_units, 0), coalesce(b.only_charge, 0),
	  n.units, n.reported, n.invoiced, n.unexplained, n.billed, n.state, n.reason
	from billing_period_totals t
	join billing_periods p on p.tenant_id = t.tenant_id and p.id = t.period_id
	left join meter_versions g on g.tenant_id = t.tenant_id and g.id = t.meter_version_id
	left join price_terms m on m.tenant_id = t.tenant_id and m.hash = t.terms
	left join (
	  select a.period_id, a.meter_key, a.component,
	    (array_agg(a.event_count order by a.id desc))[1] as event_count, (array_agg(a.units order by a.id desc))[1] as units, (array_agg(a.charge order by a.id desc))[1] as charge, (array_agg(a.dimensions order by a.id desc))[1] as dimensions,
	    coalesce(sum(a.units - a.units_before) filter (where not a.billed), 0) as only_units, coalesce(sum(a.amount) filter (where not a.billed), 0) as only_charge
	  from billing_adjustments a
	  where a.tenant_id = @tenant
	    and a.customer_id = @customer
	  group by 1, 2, 3) b on b.period_id = t.period_id and b.meter_key = t.meter_key and b.component = t.component
	left join (
	  select distinct on (n.period_id, n.meter_key, n.component) *
	  from billing_reconciliations n
	  where n.tenant_id = @tenant
	    and n.customer_id = @customer
	  order by n.period_id, n.meter_key, n.component, n.id desc) n on n.period_id = t.period_id and n.meter_key = t.meter_key and n.component = t.component
	where p.tenant_id = @tenant
	  and p.customer_id = @customer
	  and p.stream = @stream
	order by t.period_id, t.meter_key`

type closedLine struct {
	period metering.PeriodID
	billing.ClosedLine
	price        keptTerms // has at most one entry
	bookedEvents *int64    // nil: nothing is booked
	booked       billing.Booked
}

func scanClosedLine(row pgx.CollectableRow) (l closedLine, err error) {
	var units, charge *metering.Decimal
	var reconciled struct {
		units, reported, invoiced, unexplained, billed *metering.Decimal

		state  *billing.ReconciliationState
		reason *billing.ReconciliationReason
	}
	n := &reconciled
	err = row.Scan(&l.period, &l.MeterID, &l.MeterVersion, &l.Aggregation, &l.Usage, &l.Events, &l.Dimensions, &l.PriceVersion, &l.Source, &l.Terms, &l.price, &l.Charge, &l.Currency,
		&l.Billed, &l.Test, &l.Scale, &l.Trial, &l.Bills, &l.LateDifference.Units, &l.LateDifference.Events, &l.LateDifference.Dimensions, &l.LateUsage, &l.LateEvents, &l.LateDimensions,
		&l.booked.Period, &l.bookedEvents, &units, &charge, &l.booked.Dimensions, &l.booked.OnlyReported, &l.booked.OnlyReportedCharge,
		&n.units, &n.reported, &n.invoiced, &n.unexplained, &n.billed, &n.state, &n.reason)
	if l.bookedEvents != nil {
		l.booked.MeterID, l.booked.Events, l.booked.Units, l.booked.Charge = l.MeterID, *l.bookedEvents, *units, *charge
	}
	if n.state != nil {
		l.Reconciled = &billing.Reconciliation{
			Period: l.booked.Period, MeterID: l.MeterID, Units: *n.units, Reported: *n.reported, Invoiced: *n.invoiced, Unexplained: *n.unexplained,
			Billed: *n.billed, State: *n.state, Reason: *n.reason,
		}
	}
	return l, err
}

func (r *factReader) addClosedLine(l closedLine) error {
	if err := r.prices.add(l.price, r.readPrice); err != nil {
		return err
	}
	for hash := range l.price {
		l.Price = r.prices[hash]
	}
	i := slices.IndexFunc(r.facts.Stored, func(p billing.Period) bool { return p.ID == l.period })
	r.facts.Stored[i].Closed = append(r.facts.Stored[i].Closed, l.ClosedLine)
	if l.bookedEvents != nil {
		r.facts.Booked = append(r.facts.Booked, l.booked)
	}
	return nil
}

// scanMonth reads the start of a month. It returns a range of 32 days, which covers every month.
func scanMonth(row pgx.CollectableRow) (r metering.Range, err error) {
	err = row.Scan(&r.Start)
	r.End = r.Start.AddDate(0, 0, 32)
	return r, err
}
