package limits

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// QuotaCheck asks whether a customer may use an amount of a meter.
type QuotaCheck struct {
	Customer string // external id
	QuotaAmount
}

// QuotaAmount is an amount of usage of a meter.
type QuotaAmount struct {
	Meter  string // slug
	Group  []byte // JSON object of the group of the usage; nil: unknown
	Amount metering.Decimal
}

// Check returns a decision on each amount separately, all at one instant. It reserves nothing.
func (s Quotas) Check(ctx context.Context, tenant metering.TenantID, checks []QuotaCheck, now time.Time) (decisions []metering.QuotaDecision, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, pg.ReadLookUp, func(tx pgx.Tx) error {
		read := s.levelRead(ctx, tx, tenant, now)
		if err := read.find(checks); err != nil {
			return err
		}
		asked := make([]askedAmount, len(checks))
		for i, c := range checks {
			if asked[i], err = read.resolve(c, fmt.Sprintf("body.checks[%d]", i)); err != nil {
				return err
			}
		}
		levels, err := read.levels(asked)
		if err != nil {
			return err
		}
		decisions = make([]metering.QuotaDecision, len(asked))
		for i, a := range asked {
			decisions[i] = metering.DecideQuota(needsOf(asked[i:i+1], levels[a.customer]))
		}
		return nil
	})
	return decisions, pg.Coded(err)
}

// OfCustomer returns the levels of all quotas of a customer, including the quotas of its plan, ordered by
// meter, period and group.
func (s Quotas) OfCustomer(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (levels []metering.QuotaLevel, err error) {
	err = pg.ReadAtOneInstant(ctx, s.pool, func(tx pgx.Tx) error {
		read := s.levelRead(ctx, tx, tenant, now)
		of, err := read.quotas([]int64{int64(customer)}, nil)
		if err != nil {
			return err
		}
		found, err := read.used(of)
		for _, l := range found {
			levels = append(levels, l.QuotaLevel)
		}
		return err
	})
	return levels, err
}

// levelRead reads quotas and their usage in a transaction that sees one state of the database.
type levelRead struct {
	ctx    context.Context
	q      pg.Batcher
	price  ledger.ReadPrice
	tenant metering.TenantID
	now    time.Time

	customers map[string]metering.CustomerID          // by external id
	meters    map[string]metering.Meter               // by slug
	streams   map[metering.CustomerID][]billing.Facts // of customers with quotas of billing periods
}

func (s Quotas) levelRead(ctx context.Context, q pg.Batcher, tenant metering.TenantID, now time.Time) *levelRead {
	return &levelRead{ctx: ctx, q: q, price: s.read, tenant: tenant, now: metering.Instant(now)}
}

// askedAmount is a QuotaAmount of a customer, with the customer, meter and group resolved from their names.
type askedAmount struct {
	customer metering.CustomerID
	meter    metering.Meter
	group    *metering.Group
	amount   metering.Decimal
}

// customerLevel is the level of a quota for one customer. A quota of a plan has a level for each customer.
type customerLevel struct {
	metering.QuotaLevel
	customer metering.CustomerID
}

// needsOf returns, for each quota of a customer that covers some of the amounts, the sum of these amounts.
func needsOf(asked []askedAmount, levels []*customerLevel) (needs []metering.QuotaNeed) {
	for _, l := range levels {
		need, covers := metering.QuotaNeed{QuotaLevel: l.QuotaLevel}, false
		for _, a := range asked {
			if l.Covers(a.meter.ID, a.group) {
				need.Amount, covers = need.Amount.Add(a.amount), true
			}
		}
		if covers {
			needs = append(needs, need)
		}
	}
	return needs
}

// find reads the customers and meters that checks name.
func (r *levelRead) find(checks []QuotaCheck) error {
	var externalIDs, slugs []string
	for _, c := range checks {
		externalIDs, slugs = append(externalIDs, c.Customer), append(slugs, c.Meter)
	}
	r.customers, r.meters = make(map[string]metering.CustomerID), make(map[string]metering.Meter)
	var batch pgx.Batch
	pg.QueueRows(&batch, `select id, external_id from customers where tenant_id = $1 and external_id = any($2)`, []any{r.tenant, externalIDs},
		func(row pgx.CollectableRow) (c metering.Customer, err error) {
			return c, row.Scan(&c.ID, &c.ExternalID)
		},
		func(c metering.Customer) { r.customers[c.ExternalID] = c.ID })
	pg.QueueRows(&batch, catalog.SelectMeters+`and m.slug = any($2)`, []any{r.tenant, slugs}, catalog.ScanMeter, func(m metering.Meter) { r.meters[m.Slug] = m })
	if err := r.q.SendBatch(r.ctx, &batch).Close(); err != nil {
		return fmt.Errorf("find customers and meters: %w", err)
	}
	return nil
}

const noSuchCustomer = "must be the external_id of a customer; create the customer first, or send its first event"

// resolve looks up the names of an amount. location is the path of the amount in the request.
func (r *levelRead) resolve(c QuotaCheck, location string) (asked askedAmount, err error) {
	asked.amount = c.Amount
	var known bool
	if asked.customer, known = r.customers[c.Customer]; !known {
		return asked, metering.Invalid(location+".customer", noSuchCustomer)
	}
	if asked.meter, known = r.meters[c.Meter]; !known {
		return asked, metering.Invalid(location+".meter", "must be the slug of a meter")
	}
	if c.Group == nil {
		return asked, nil
	}
	group, err := asked.meter.Version.QuotaGroup(location+".group", c.Group)
	asked.group = &group
	return asked, err
}

// levels returns the levels of the quotas that cover the amounts, by customer.
func (r *levelRead) levels(asked []askedAmount) (map[metering.CustomerID][]*customerLevel, error) {
	var customers []int64
	var meters []metering.MeterID
	for _, a := range asked {
		customers, meters = append(customers, int64(a.customer)), append(meters, a.meter.ID)
	}
	quotas, err := r.quotas(customers, meters)
	if err != nil {
		return nil, err
	}
	quotas = slices.DeleteFunc(quotas, func(l customerLevel) bool {
		return !slices.ContainsFunc(asked, func(a askedAmount) bool { return a.customer == l.customer && l.Covers(a.meter.ID, a.group) })
	})
	if quotas, err = r.used(quotas); err != nil {
		return nil, err
	}
	levels := make(map[metering.CustomerID][]*customerLevel)
	for i, l := range quotas {
		levels[l.customer] = append(levels[l.customer], &quotas[i])
	}
	return levels, nil
}

// quotas returns the quotas of customers for meters (nil: all meters). A customer's own quota replaces
// that of its plan for the same meter, group and period. quotas also reads the billing periods of
// customers with quotas for billing periods.
func (r *levelRead) quotas(customers []int64, meters []metering.MeterID) ([]customerLevel, error) {
	rows, err := r.q.Query(r.ctx, `
		select distinct on (of.customer, q.meter_id, q.period, q.group_id) of.customer, `+quotaColumns+`
		from unnest($2::bigint[]) as of (customer)
		cross join lateral (select `+catalog.PlanAt("$1", "of.customer", "$4")+` as plan) has
		cross join `+quotaTables+`
		where q.tenant_id = $1
		  and (q.customer_id = of.customer or q.plan_id = has.plan)
		  and ($3::bigint[] is null or q.meter_id = any($3))
		order by of.customer, q.meter_id, q.period, q.group_id, q.plan_id nulls first`, r.tenant, customers, meters, r.now)
	if err != nil {
		return nil, fmt.Errorf("read quotas: %w", err)
	}
	var billed []int64
	levels, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l customerLevel, err error) {
		stored, err := scanQuota(row, &l.customer)
		if l.Quota = stored.Quota; l.Period == metering.PerBilling {
			billed = append(billed, int64(l.customer))
		}
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("read quotas: %w", err)
	}
	return levels, r.readPeriods(billed)
}

// used sets the windows of quotas to the current ones, and reads the usage and the reservations in them.
func (r *levelRead) used(quotas []customerLevel) ([]customerLevel, error) {
	for i, l := range quotas {
		quotas[i].Window = r.window(l, r.now)
	}
	return r.count(quotas)
}

// count reads the usage and the reservations of quotas in their windows.
func (r *levelRead) count(quotas []customerLevel) ([]customerLevel, error) {
	if len(quotas) == 0 {
		return nil, nil
	}
	meters := make([]metering.Meter, len(quotas))
	for i, l := range quotas {
		if l.Meter.Version.Status == metering.Backfilling {
			return nil, metering.Errorf(metering.CodeBackfilling, "meter %q is backfilling: its earlier events are still being counted", l.Meter.Slug)
		}
		meters[i] = l.Meter
	}
	statement := usage.NewStatementOfSome(r.tenant, meters)
	ranges, of := rangesOf(quotas)
	groups := make([]*[16]byte, len(ranges))
	for no, read := range ranges {
		statement.AddMeter(no, read.window, read.customers, read.version, read.group != nil, false)
		groups[no] = catalog.GroupID(read.group)
	}
	counted, err := statement.Rows(r.ctx, r.q)
	if err != nil {
		return nil, err
	}
	r.arguments(statement.Args, quotas)
	statement.Args["range_groups"] = groups
	var batch pgx.Batch
	batch.Queue(`
		select no, customer_id, `+usage.MergedTally+`
		from `+counted+`
		where `+inRangeGroup+`
		group by 1, 2`, statement.Args).Query(func(rows pgx.Rows) error {
		var by rangeCustomer
		var t usage.Tally
		_, err := pgx.ForEachRow(rows, append([]any{&by.no, &by.customer}, t.Fields()...), func() error {
			for _, i := range of[by] {
				quotas[i].Used = t.Total(quotas[i].Meter.Version.Aggregation)
			}
			return nil
		})
		return err
	})
	batch.Queue(`
		select l.no, sum(a.amount)
		from unnest(@numbers::int[], @customers::bigint[], @meters::bigint[], @groups::uuid[], @from::timestamptz[], @until::timestamptz[])
		  as l (no, customer_id, meter_id, group_id, starts_at, ends_at)
		join quota_reservations r on r.tenant_id = @tenant and r.customer_id = l.customer_id and r.ended_at is null and r.expires_at > @now
		  and r.granted_at >= l.starts_at and r.granted_at < l.ends_at
		cross join lateral unnest(r.meter_ids, r.group_ids, r.amounts) as a (meter_id, group_id, amount)
		where a.meter_id = l.meter_id and (l.group_id is null or a.group_id = l.group_id)
		group by 1`, statement.Args).Query(func(rows pgx.Rows) error {
		var no int
		var reserved metering.Decimal
		_, err := pgx.ForEachRow(rows, []any{&no, &reserved}, func() error {
			quotas[no].Reserved = reserved
			return nil
		})
		return err
	})
	if err := r.q.SendBatch(r.ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("read usage of quotas: %w", err)
	}
	return quotas, nil
}

// inRangeGroup is the SQL condition that counted usage is in the group of its range. @range_groups holds the
// group of each range; null: usage of all groups.
const inRangeGroup = `coalesce((@range_groups::uuid[])[no + 1] = group_id, true)`

// quotaRange is a window for which customers' usage of a meter, or of one group, is read together. For example,
// the quota of a plan has the same window for all customers of the plan.
type quotaRange struct {
	window    metering.Range
	version   metering.MeterVersion
	group     *metering.Group
	customers []int64
}

// rangeCustomer identifies a customer in a range. no is the index of the range in the result of rangesOf.
type rangeCustomer struct {
	no       int
	customer metering.CustomerID
}

// rangesOf returns the ranges of quotas, and the indexes of the quotas of each range and customer.
func rangesOf(quotas []customerLevel) (ranges []quotaRange, of map[rangeCustomer][]int) {
	type key struct {
		from, until int64 // microseconds, since equal times can differ in their location
		version     metering.MeterVersionID
		group       metering.GroupID
	}
	numbers := make(map[key]int)
	of = make(map[rangeCustomer][]int)
	for i, l := range quotas {
		counted := l.Counted()
		k := key{from: counted.Start.UnixMicro(), until: counted.End.UnixMicro(), version: l.Meter.Version.ID}
		if l.Group != nil {
			k.group = l.Group.ID
		}
		no, known := numbers[k]
		if !known {
			no = len(ranges)
			numbers[k], ranges = no, append(ranges, quotaRange{window: counted, version: l.Meter.Version, group: l.Group})
		}
		by := rangeCustomer{no, l.customer}
		if len(of[by]) == 0 {
			ranges[no].customers = append(ranges[no].customers, int64(l.customer))
		}
		of[by] = append(of[by], i)
	}
	return ranges, of
}

// arguments adds the quotas to args, one array for each column.
func (r *levelRead) arguments(args pgx.NamedArgs, quotas []customerLevel) {
	n := len(quotas)
	numbers, customers, meters := make([]int32, n), make([]int64, n), make([]int64, n)
	groups, from, until := make([]*[16]byte, n), make([]time.Time, n), make([]time.Time, n)
	for i, l := range quotas {
		numbers[i], customers[i], meters[i], groups[i] = int32(i), int64(l.customer), int64(l.Meter.ID), catalog.GroupID(l.Group)
		from[i], until[i] = l.Window.Start, l.Window.End
	}
	args["numbers"], args["customers"], args["meters"], args["groups"] = numbers, customers, meters, groups
	args["from"], args["until"], args["now"] = from, until, r.now
}

// readPeriods sets r.streams to the billing schedules of customers, from which window takes billing periods.
func (r *levelRead) readPeriods(customers []int64) (err error) {
	if len(customers) == 0 {
		return nil
	}
	if r.streams, err = ledger.ReadSchedules(r.ctx, r.q, r.price, r.tenant, customers, r.now); err != nil {
		return fmt.Errorf("read billing periods: %w", err)
	}
	return nil
}

// window returns the window of a quota that contains an instant.
func (r *levelRead) window(l customerLevel, at time.Time) metering.Range {
	var period metering.Range
	if l.Period == metering.PerBilling {
		period = billing.PeriodOfMeter(r.streams[l.customer], l.Meter.ID, at)
	}
	return l.Period.Window(at, metering.Location(l.Meter.Version.Timezone), period)
}
