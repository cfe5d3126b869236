package limits

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
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

// Bounds of a dry run.
const (
	dryRunDays      = 30
	dryRunCustomers = 1_000 // the customers with the lowest IDs in the alert's scope
	dryRunFirings   = 10_000
)

// DryRun is the result of a dry run. It lists the days, of the last 30, on which an alert would have fired.
type DryRun struct {
	Customers int // number of customers that were compared with the alert
	Firings   []DryFiring
	More      bool       // there are further customers or firings
	Highest   *DryCourse // the course with the highest value; nil for a silence alert, or if no value is above 0
}

// DryCourse holds a customer's value on each day of a dry run.
type DryCourse struct {
	CustomerID metering.CustomerID
	ExternalID string
	QuotaID    metering.QuotaID // 0 unless the alert is a quota alert
	Days       []DryDay         // in ascending order
}

// DryDay is a customer's value at the end of a day. If a period ended on that day with a higher value, it is
// the value of that period.
type DryDay struct {
	Day   time.Time // start of the day
	Value metering.Decimal
}

// DryFiring is the first day of a period on which a customer reached a threshold.
type DryFiring struct {
	CustomerID metering.CustomerID
	ExternalID string
	Day        time.Time // start of the day
	Threshold  metering.Decimal
	Value      metering.Decimal // value at the end of the day
	QuotaID    metering.QuotaID // 0 unless the alert is a quota alert
	Period     metering.Range
}

// DryRun compares the customers' values of the last 30 days with an alert. It uses the current prices, plans
// and meters. An event counts on the day of its timestamp.
func (e Evaluations) DryRun(ctx context.Context, tenant metering.TenantID, a metering.Alert, now time.Time) (run DryRun, err error) {
	err = pg.AtOneInstant(ctx, e.pool, func(tx pgx.Tx) error {
		if err := catalog.RequireCounted(ctx, tx, tenant, a.MeterID, a.Group); err != nil {
			return err
		}
		if err := requireCurrency(ctx, tx, tenant, a); err != nil {
			return err
		}
		run, err = e.dryRun(ctx, tx, tenant, a, now)
		return err
	})
	if usage.TooMuch(ctx, err) {
		return DryRun{}, metering.Invalid("body.customer", "is required, because the customers have too many events for one request").Because(err)
	}
	if err != nil {
		return DryRun{}, fmt.Errorf("dry run of alert: %w", err)
	}
	return run, nil
}

func (e Evaluations) dryRun(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, a metering.Alert, now time.Time) (DryRun, error) {
	d := &dryRunner{
		alertReader: alertReaderOf(ctx, tx, tenant, []metering.Alert{a}, now),
		since:       metering.Instant(now).AddDate(0, 0, -dryRunDays),
		course:      make(map[courseKey]*DryCourse),
	}
	customers, err := d.customers()
	if err != nil {
		return d.run, err
	}
	query := ledger.PeriodQuery{Needs: d.needs}
	compare := d.comparePeriods
	switch a.Type {
	case metering.SilenceAlert:
		compare = d.compareSilence
	case metering.QuotaAlert:
		compare = func(b ledger.PeriodFacts) error { return d.compareQuotas(Quotas(e).levelRead(ctx, tx, tenant, now), b) }
	default:
		query.Periods = d.periods
	}
	batches, err := ledger.CustomerBatches(ctx, tx, tenant, customers)
	if err != nil {
		return d.run, err
	}
	for _, query.Customers = range batches {
		batch, err := ledger.ReadAllPeriods(ctx, tx, e.read, tenant, query, now)
		if err != nil {
			return d.run, err
		}
		d.run.Customers += len(batch.Customers)
		if err := compare(batch); err != nil {
			return d.run, err
		}
	}
	d.run.Highest = d.highest()
	if len(d.run.Firings) > dryRunFirings {
		d.run.Firings, d.run.More = d.run.Firings[:dryRunFirings], true
	}
	return d.run, nil
}

// dryRunner compares past values of customers with one alert.
type dryRunner struct {
	*alertReader
	since   time.Time
	run     DryRun
	courses []*DryCourse
	course  map[courseKey]*DryCourse
}

// courseKey identifies a DryCourse: the daily values of a customer's billing schedule or quota.
type courseKey struct {
	customer metering.CustomerID
	stream   int
	quota    metering.QuotaID
}

func (d *dryRunner) alert() metering.Alert { return d.alerts[0] }

// customers returns the first dryRunCustomers customers in the alert's scope, ordered by ID, and sets run.More if there
// are others.
func (d *dryRunner) customers() (first []int64, err error) {
	rows, err := d.tx.Query(d.ctx, `
		select c.id
		from customers c
		where c.tenant_id = @tenant
		  and (@customer = 0 or c.id = @customer)
		  and (@plan = 0 or exists (select from customer_plans h where h.tenant_id = c.tenant_id and h.customer_id = c.id and h.plan_id = @plan))
		order by c.id
		limit @limit`, pgx.NamedArgs{"tenant": d.tenant, "customer": d.alert().CustomerID, "plan": d.alert().PlanID, "limit": dryRunCustomers + 1})
	if err != nil {
		return nil, err
	}
	if first, err = pgx.CollectRows(rows, pgx.RowTo[int64]); len(first) > dryRunCustomers {
		first, d.run.More = first[:dryRunCustomers], true
	}
	return first, err
}

// periods returns the billing periods of the last 30 days that the alert reads. It marks closed periods as
// open, so that their values are computed like those of open periods.
func (d *dryRunner) periods(f billing.Facts) (periods []billing.Period) {
	for _, p := range billing.ExpectedPeriods(f) {
		if p.End.After(d.since) && !p.Start.After(d.now) && d.alert().AppliesTo(f.Customer.ID, billing.PlanAt(f.Customer.Plans, p.Start)) {
			p.ClosedAt, p.Closed = nil, nil
			periods = append(periods, p)
		}
	}
	return periods
}

// comparePeriods adds the days on which customers reached thresholds of usage or spend.
func (d *dryRunner) comparePeriods(b ledger.PeriodFacts) error {
	hours, err := d.hours(b)
	if err != nil {
		return err
	}
	for _, s := range b.Schedules {
		for _, p := range s.Periods {
			used := hours[customerPeriod{s.Facts.Customer.ID, rangeOf(p)}]
			if d.alert().Group != nil {
				if used, err = d.groupDays(s.Facts, p); err != nil {
					return err
				}
			}
			d.comparePeriod(b.Timezone, s.Facts, p, used)
		}
	}
	return nil
}

type customerPeriod struct {
	customer metering.CustomerID
	period   metering.Range
}

func rangeOf(p billing.Period) metering.Range {
	return metering.Range{Start: p.Start.UTC(), End: p.End.UTC()}
}

// hours reads the usage of each hour of the batch's periods.
func (d *dryRunner) hours(b ledger.PeriodFacts) (map[customerPeriod][]usage.RangeUsage, error) {
	byRange := make(map[metering.Range][]int64)
	for _, s := range b.Schedules {
		for _, p := range s.Periods {
			byRange[rangeOf(p)] = append(byRange[rangeOf(p)], int64(s.Facts.Customer.ID))
		}
	}
	hours := make(map[customerPeriod][]usage.RangeUsage)
	if len(byRange) == 0 {
		return hours, nil
	}
	ranges := slices.Collect(maps.Keys(byRange))
	statement := usage.NewStatementOfSome(d.tenant, b.Meters)
	statement.Separate(b.Meters, b.Dimensions)
	for no, r := range ranges {
		statement.Customers = byRange[r]
		statement.Add(no, r, true)
	}
	used, err := usage.ReadRanges(d.ctx, d.tx, statement, b.Meters, ranges, "start")
	for _, u := range used {
		of := customerPeriod{u.Customer, u.Within}
		hours[of] = append(hours[of], u)
	}
	return hours, err
}

// comparePeriod adds the days on which one billing period reached thresholds. hours holds the period's usage by
// hour, or by day for an alert of a group.
func (d *dryRunner) comparePeriod(zone *time.Location, f *billing.Facts, p billing.Period, hours []usage.RangeUsage) {
	total, reached := *f, 0
	total.Usage = nil
	slices.SortFunc(hours, func(x, y usage.RangeUsage) int { return x.Start.Compare(y.Start) })
	for day := metering.WindowOf(p.Start, metering.Day, zone); day.Start.Before(p.End) && !day.Start.After(d.now); day = metering.WindowOf(day.End, metering.Day, zone) {
		for len(hours) > 0 && hours[0].Start.Before(day.End) {
			total.Usage = addHour(total, p, hours[0])
			hours = hours[1:]
		}
		value, counted := billing.ReadAlerts(total, p).Of(d.alert())
		if counted {
			reached = d.reach(p.Stream, DryFiring{CustomerID: f.Customer.ID, ExternalID: f.Customer.ExternalID, Value: value, Period: p.Range}, day, reached)
		}
	}
}

// addHour returns the usage of a billing period including another hour or day, if the meter feeds the
// period's billing schedule at that time.
func addHour(f billing.Facts, p billing.Period, hour usage.RangeUsage) []billing.Usage {
	within := f.FedIn(hour.Meter, []metering.Range{p.Range})
	if !slices.ContainsFunc(within, func(r metering.Range) bool { return r.Contains(hour.Start) }) {
		return f.Usage
	}
	i := slices.IndexFunc(f.Usage, func(u billing.Usage) bool { return u.MeterID == hour.Meter })
	if i < 0 {
		i = len(f.Usage)
		f.Usage = append(f.Usage, billing.Usage{Period: p.Start, MeterID: hour.Meter})
	}
	f.Usage[i].Total, f.Usage[i].Events = f.Usage[i].Total.Add(hour.Usage), f.Usage[i].Events+hour.Tally.All().Count
	dimensions, _ := hour.ByDimension(hour.Aggregation)
	f.Usage[i].Dimensions = billing.AddDimensions(f.Usage[i].Dimensions, dimensions)
	return f.Usage
}

// reach records the value of a day, and adds a firing for each threshold that the period reached first on that
// day. before is the number of thresholds that the period reached earlier. reach returns the number of
// thresholds reached so far.
func (d *dryRunner) reach(stream int, firing DryFiring, day metering.Range, before int) int {
	d.note(stream, firing, day)
	thresholds := d.alert().Reached(firing.Value)
	firing.Day = day.Start
	for _, threshold := range thresholds[min(before, len(thresholds)):] {
		if day.End.After(d.since) && len(d.run.Firings) <= dryRunFirings {
			firing.Threshold = threshold
			d.run.Firings = append(d.run.Firings, firing)
		}
	}
	return max(before, len(thresholds))
}

// note adds the value of a day to the customer's DryCourse. If several periods share a day, it keeps the highest value.
func (d *dryRunner) note(stream int, of DryFiring, day metering.Range) {
	if !day.End.After(d.since) {
		return
	}
	key := courseKey{of.CustomerID, stream, of.QuotaID}
	c := d.course[key]
	if c == nil {
		c = &DryCourse{CustomerID: of.CustomerID, ExternalID: of.ExternalID, QuotaID: of.QuotaID}
		d.course[key], d.courses = c, append(d.courses, c)
	}
	n := len(c.Days)
	switch {
	case n == 0 || !c.Days[n-1].Day.Equal(day.Start):
		c.Days = append(c.Days, DryDay{day.Start, of.Value})
	case of.Value.Cmp(c.Days[n-1].Value) > 0:
		c.Days[n-1].Value = of.Value
	}
}

// highest returns the DryCourse with the highest value, or nil if no value is above 0.
func (d *dryRunner) highest() (course *DryCourse) {
	var highest metering.Decimal
	for _, c := range d.courses {
		for _, day := range c.Days {
			if day.Value.Cmp(highest) > 0 {
				highest, course = day.Value, c
			}
		}
	}
	return course
}

// groupDays reads the usage of the alert's group on each day of a billing period.
func (d *dryRunner) groupDays(f *billing.Facts, p billing.Period) (days []usage.RangeUsage, err error) {
	for _, part := range f.FedIn(d.alert().MeterID, []metering.Range{p.Range}) {
		read, err := d.readGroup(f, part)
		if err != nil {
			return nil, err
		}
		read.Limit = usage.MaxWindows
		windows, _, err := read.Windows(d.ctx)
		if err != nil {
			return nil, err
		}
		for _, w := range windows {
			days = append(days, usage.RangeUsage{Start: w.Start, Meter: d.alert().MeterID, Usage: w.Value.Add(w.LateValue)})
		}
	}
	return days, nil
}

// readGroup prepares a read of the customer's usage of the alert's group by day.
func (d *dryRunner) readGroup(f *billing.Facts, within metering.Range) (*usage.WindowRead, error) {
	var key map[string]json.RawMessage
	if err := json.Unmarshal(d.alert().Group.Key, &key); err != nil {
		return nil, err
	}
	query := usage.WindowQuery{Customer: f.Customer.ID, Range: within, Granularity: metering.Day, Groups: make(map[string][]json.RawMessage)}
	for property, value := range key {
		query.Groups[property] = []json.RawMessage{value}
	}
	query.Meter = f.Meters[slices.IndexFunc(f.Meters, func(m metering.Meter) bool { return m.ID == d.alert().MeterID })]
	read, err := usage.NewWindowRead(d.tenant, query)
	if err != nil {
		return nil, err
	}
	read.Querier = d.tx
	if err := read.LoadGroups(d.ctx); err != nil {
		return nil, err
	}
	return read, read.LoadEdges(d.ctx)
}

// compareSilence adds the days on which customers with the alert's plan had been silent for too long, up to dryRunFirings
// + 1 of all batches.
func (d *dryRunner) compareSilence(b ledger.PeriodFacts) error {
	a, rest := d.alert(), dryRunFirings+1-len(d.run.Firings)
	rows, err := d.tx.Query(d.ctx, `
		select customer_id, ts
		from (
		  select e.customer_id, e.ts, lead(e.ts) over (partition by e.customer_id order by e.ts) as next
		  from events e
		  where e.tenant_id = @tenant
		    and e.customer_id = any(@customers)
		    and e.ts > @since
		    and e.ts <= @now) e
		where coalesce(next, @now) - ts >= @silence
		  and (@plan = 0 or @plan = `+catalog.PlanAt("@tenant", "e.customer_id", "e.ts + @silence")+`)
		order by customer_id, ts
		limit @limit`, pgx.NamedArgs{
		"tenant": d.tenant, "customers": b.Customers, "since": d.since.Add(-a.Silence()), "now": d.now, "silence": a.Silence(), "plan": a.PlanID, "limit": rest,
	})
	if err != nil {
		return err
	}
	var (
		id   int64
		last time.Time
	)
	threshold := metering.Whole(int64(a.Minutes))
	_, err = pgx.ForEachRow(rows, []any{&id, &last}, func() error {
		f, silent := b.Facts[id], last.Add(a.Silence())
		d.run.Firings = append(d.run.Firings, DryFiring{
			CustomerID: f.Customer.ID, ExternalID: f.Customer.ExternalID, Threshold: threshold, Value: threshold,
			Day: metering.WindowOf(silent, metering.Day, b.Timezone).Start, Period: metering.Range{Start: last, End: silent},
		})
		return nil
	})
	return err
}
