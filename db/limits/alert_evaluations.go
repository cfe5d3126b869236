package limits

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Evaluations compares the customers in the queue alert_due with their alerts and quotas. One transaction
// deletes the queue rows and stores the firings and their messages. Each reached threshold is therefore
// notified exactly once.
type Evaluations struct {
	pool *pg.Pool
	read ledger.ReadPrice
}

// Tenant evaluates the due customers of one tenant. It skips customers that another process is evaluating.
func (e Evaluations) Tenant(ctx context.Context, tenant metering.TenantID, now time.Time) error {
	for {
		if b, err := e.evaluateBatch(ctx, tenant, largestBatch, now); err != nil || b.isEmpty() {
			return err
		}
	}
}

// evaluatedBatch is the result of evaluating one batch of a tenant's customers.
type evaluatedBatch struct {
	customers []int64 // due customers of the batch
	expanded  bool    // a queue row for all customers was replaced by rows for single customers
}

// isEmpty reports whether the tenant has no due customers that a further batch can evaluate.
func (b evaluatedBatch) isEmpty() bool { return len(b.customers) == 0 && !b.expanded }

// evaluateBatch evaluates up to limit due rows of a tenant.
func (e Evaluations) evaluateBatch(ctx context.Context, tenant metering.TenantID, limit int, now time.Time) (b evaluatedBatch, err error) {
	if b.expanded, err = e.expand(ctx, tenant, limit, now); err != nil {
		return b, err
	}
	b.customers, err = e.evaluateDue(ctx, tenant, dueRows, limit, now)
	return b, err
}

// evaluateFailed repeats one failed evaluation, separately from the batches. It returns the customer of the
// evaluation, or none if no failed evaluation is due.
func (e Evaluations) evaluateFailed(ctx context.Context, tenant metering.TenantID, now time.Time) (customers []int64, err error) {
	return e.evaluateDue(ctx, tenant, failedCustomer, 1, now)
}

// evaluateDue evaluates the customers that due selects. If a quota or an alert is deleted concurrently, the
// transaction fails to serialize, and is retried without the deleted row.
func (e Evaluations) evaluateDue(ctx context.Context, tenant metering.TenantID, due string, limit int, now time.Time) (customers []int64, err error) {
	err = pg.AtOneInstant(ctx, e.pool, func(tx pgx.Tx) error {
		var usedFrom map[int64]time.Time
		if customers, usedFrom, err = takeDue(ctx, tx, tenant, due, limit, now); err != nil || len(customers) == 0 {
			return err
		}
		return e.evaluate(ctx, tx, tenant, customers, usedFrom, now)
	})
	return customers, err
}

// evaluate fires the alerts of customers that have reached a threshold, and publishes the quotas that they have
// exceeded. It queues each customer for the next time at which the result may change without a new event.
func (e Evaluations) evaluate(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customers []int64, usedFrom map[int64]time.Time, now time.Time) error {
	v, err := newAlertReader(ctx, tx, tenant, now)
	if err != nil {
		return err
	}
	if err := v.plans(customers); err != nil {
		return fmt.Errorf("schedule plan changes: %w", err)
	}
	if err := e.publishExceeded(v, customers, usedFrom); err != nil {
		return fmt.Errorf("compare usage with quotas: %w", err)
	}
	if len(v.alerts) > 0 {
		if err := e.fireAlerts(v, customers); err != nil {
			return err
		}
	}
	return v.queueNext()
}

// fireAlerts fires the alerts of customers that have reached a threshold.
func (e Evaluations) fireAlerts(v *alertReader, customers []int64) error {
	batches, err := ledger.CustomerBatches(v.ctx, v.tx, v.tenant, customers)
	if err != nil {
		return err
	}
	for _, batch := range batches {
		if err := e.compareCustomers(v, batch); err != nil {
			return err
		}
	}
	if err := v.Fire(); err != nil {
		return fmt.Errorf("fire alerts: %w", err)
	}
	return nil
}

// compareCustomers collects the thresholds that customers have reached.
func (e Evaluations) compareCustomers(v *alertReader, customers []int64) error {
	batch, err := ledger.ReadOpenPeriods(v.ctx, v.tx, e.read, v.tenant, ledger.PeriodQuery{Customers: customers, Periods: billing.AlertPeriods, Needs: v.needs}, v.now)
	if err != nil {
		return fmt.Errorf("read usage of alerts: %w", err)
	}
	if err := v.periods(batch); err != nil {
		return fmt.Errorf("compare usage with alerts: %w", err)
	}
	v.quotas(batch)
	if err := v.silence(batch); err != nil {
		return fmt.Errorf("compare silence with alerts: %w", err)
	}
	return nil
}

// enabledAlerts reads the tenant's enabled alerts. It locks their rows, so that none is removed from the database
// before the transaction ends. The lock does not block Alerts.Delete, which only marks an alert as deleted.
func enabledAlerts(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) ([]metering.Alert, error) {
	rows, err := tx.Query(ctx, selectAlerts+`and a.enabled order by a.id for key share of a`, pgx.NamedArgs{"tenant": tenant})
	if err != nil {
		return nil, fmt.Errorf("read alerts: %w", err)
	}
	alerts, err := pgx.CollectRows(rows, scanAlert)
	if err != nil {
		return nil, fmt.Errorf("read alerts: %w", err)
	}
	return alerts, nil
}

// alertReader compares customers with the alerts of their tenant.
type alertReader struct {
	ctx     context.Context
	tx      pgx.Tx
	tenant  metering.TenantID
	now     time.Time
	alerts  []metering.Alert
	levels  []customerLevel     // levels of quotas, in windows that have begun
	firings []metering.Firing   // thresholds that are reached now, including those of earlier evaluations
	next    map[int64]time.Time // the time of each customer's next evaluation
}

// newAlertReader reads the enabled alerts of the tenant.
func newAlertReader(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, now time.Time) (*alertReader, error) {
	alerts, err := enabledAlerts(ctx, tx, tenant)
	if err != nil {
		return nil, err
	}
	return alertReaderOf(ctx, tx, tenant, alerts, now), nil
}

// NewPeriodAlerts is a ledger.AlertsReader. It returns the alerts with which the ledger compares closing
// periods.
func NewPeriodAlerts(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, now time.Time) (ledger.PeriodAlerts, error) {
	return newAlertReader(ctx, tx, tenant, now)
}

func alertReaderOf(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, alerts []metering.Alert, now time.Time) *alertReader {
	return &alertReader{ctx: ctx, tx: tx, tenant: tenant, now: metering.Instant(now), alerts: alerts, next: make(map[int64]time.Time)}
}

// plans schedules the next evaluation of each customer for the start of its next plan, because that plan may
// have other alerts and quotas.
func (v *alertReader) plans(customers []int64) error {
	rows, err := v.tx.Query(v.ctx, `
		select customer_id, min(effective_from)
		from customer_plans
		where tenant_id = $1
		  and customer_id = any($2)
		  and effective_from > $3
		group by customer_id`, v.tenant, customers, v.now)
	if err != nil {
		return err
	}
	var (
		id int64
		at time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		v.dueAgain(metering.CustomerID(id), at)
		return nil
	})
	return err
}

// needs reports whether a usage or spend alert reads the meter. An alert without a meter reads all meters.
func (v *alertReader) needs(meter metering.MeterID) bool {
	return slices.ContainsFunc(v.alerts, func(a metering.Alert) bool {
		return isPeriodAlert(a) && (a.MeterID == 0 || a.MeterID == meter)
	})
}

// applying returns the alerts that match the predicate and apply to the customer. An alert of a plan applies if the
// customer has the plan at the given instant. For a billing period, the instant is the period's start, because the plan
// at the start charges the period.
func (v *alertReader) applying(f *billing.Facts, at time.Time, matches func(metering.Alert) bool) (alerts []metering.Alert) {
	plan := billing.PlanAt(f.Customer.Plans, at)
	for _, a := range v.alerts {
		if a.AppliesTo(f.Customer.ID, plan) && matches(a) {
			alerts = append(alerts, a)
		}
	}
	return alerts
}

// isPeriodAlert reports whether the alert compares the values of billing periods: usage or spend.
func isPeriodAlert(a metering.Alert) bool {
	return a.Type == metering.UsageAlert || a.Type == metering.SpendAlert
}

func isSilenceAlert(a metering.Alert) bool { return a.Type == metering.SilenceAlert }

// periods compares each billing period of the batch with the usage and spend alerts. It also schedules the next
// evaluation of each customer.
func (v *alertReader) periods(b ledger.PeriodFacts) error {
	var all []ledger.CustomerPeriod
	for _, s := range b.Schedules {
		for _, p := range s.Periods {
			all = append(all, ledger.CustomerPeriod{Facts: s.Facts, Period: p})
		}
		v.dueAgain(s.Facts.Customer.ID, billing.NextAlertChange(*s.Facts, s.Periods))
	}
	return v.Compare(all)
}

// Compare collects the thresholds that customers have reached in billing periods.
func (v *alertReader) Compare(periods []ledger.CustomerPeriod) error {
	groups, err := v.groupTotals(periods)
	if err != nil {
		return err
	}
	for no, p := range periods {
		values := billing.ReadAlerts(*p.Facts, p.Period)
		for _, a := range v.applying(p.Facts, p.Period.Start, isPeriodAlert) {
			value, counted := values.Of(a)
			if a.Group != nil {
				value = groups[groupTotal{no, a.MeterID, a.Group.ID}]
			}
			if counted {
				v.reach(a, metering.Firing{CustomerID: p.Facts.Customer.ID, Stream: p.Facts.Stream, Period: p.Period.Range, Value: value})
			}
		}
	}
	return nil
}

// reach adds a copy of firing to v.firings for each threshold of the alert that the value has reached.
func (v *alertReader) reach(a metering.Alert, firing metering.Firing) {
	firing.AlertID, firing.Late = a.ID, !firing.Period.End.After(v.now)
	for _, threshold := range a.Reached(firing.Value) {
		firing.Threshold = threshold
		v.firings = append(v.firings, firing)
	}
}

// dueAgain schedules the next evaluation of a customer, unless an earlier one is already scheduled.
func (v *alertReader) dueAgain(customer metering.CustomerID, at time.Time) {
	v.next[int64(customer)] = metering.Sooner(v.next[int64(customer)], at)
}

// silence compares the time since the last event with the silence alerts.
func (v *alertReader) silence(b ledger.PeriodFacts) error {
	var customers []int64
	for _, id := range b.Customers {
		if len(v.applying(b.Facts[id], v.now, isSilenceAlert)) > 0 {
			customers = append(customers, id)
		}
	}
	last, err := v.lastEvents(customers)
	if err != nil {
		return err
	}
	for id, at := range last {
		f := b.Facts[id]
		for _, a := range v.applying(f, v.now, isSilenceAlert) {
			silent := at.Add(a.Silence())
			if silent.After(v.now) {
				v.dueAgain(f.Customer.ID, silent)
				continue
			}
			v.firings = append(v.firings, metering.Firing{
				AlertID: a.ID, CustomerID: f.Customer.ID, Threshold: metering.Whole(int64(a.Minutes)),
				Period: metering.Range{Start: at, End: silent}, Value: metering.Whole(int64(v.now.Sub(at) / time.Minute)),
			})
		}
	}
	return nil
}

// lastEvents returns the timestamp of each customer's last event. It skips customers without events for
// metering.WatchedAfterEvent, to which silence alerts no longer apply. A timestamp may be in the future.
func (v *alertReader) lastEvents(customers []int64) (map[int64]time.Time, error) {
	last := make(map[int64]time.Time)
	if len(customers) == 0 {
		return last, nil
	}
	rows, err := v.tx.Query(v.ctx, `
		select c.id, e.ts
		from unnest(@customers::bigint[]) c (id)
		cross join lateral (
		  select e.ts
		  from events e
		  where e.tenant_id = @tenant
		    and e.customer_id = c.id
		    and e.ts > @since
		  order by e.ts desc
		  limit 1) e`, pgx.NamedArgs{"tenant": v.tenant, "customers": customers, "since": v.now.Add(-metering.WatchedAfterEvent)})
	if err != nil {
		return nil, err
	}
	var (
		id int64
		at time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		last[id] = at
		return nil
	})
	return last, err
}

// Fire stores the firings that are not stored yet, and publishes a message for each.
func (v *alertReader) Fire() error {
	stored, err := v.store()
	if err != nil {
		return err
	}
	byCustomer := make(map[metering.CustomerID][]outbox.MessageData)
	for _, f := range stored {
		i := slices.IndexFunc(v.alerts, func(a metering.Alert) bool { return a.ID == f.AlertID })
		byCustomer[f.CustomerID] = append(byCustomer[f.CustomerID], outbox.NewAlertTriggered(v.alerts[i], f))
	}
	for customer, messages := range byCustomer {
		if err := outbox.PublishAll(v.ctx, v.tx, v.tenant, customer, messages, v.now); err != nil {
			return err
		}
	}
	return nil
}

// store inserts the firings in key order, and returns the new ones.
func (v *alertReader) store() ([]metering.Firing, error) {
	if len(v.firings) == 0 {
		return nil, nil
	}
	var (
		alerts, customers, quotas []int64
		streams                   []int32
		thresholds, values        []string
		starts, ends              []time.Time
		lates                     []bool
	)
	for _, f := range v.firings {
		alerts, customers, streams = append(alerts, int64(f.AlertID)), append(customers, int64(f.CustomerID)), append(streams, int32(f.Stream))
		quotas = append(quotas, int64(f.QuotaID))
		thresholds, values = append(thresholds, f.Threshold.String()), append(values, f.Value.String())
		starts, ends, lates = append(starts, f.Period.Start), append(ends, f.Period.End), append(lates, f.Late)
	}
	rows, err := v.tx.Query(v.ctx, `
		insert into alert_firings as f (tenant_id, alert_id, customer_id, threshold, quota_id, stream, period_start, period_end, value, late, fired_at)
		select @tenant, alert_id, customer_id, threshold, quota_id, stream, period_start, period_end, value, late, @now
		from unnest(@alerts::bigint[], @customers::bigint[], @thresholds::text[]::numeric[], @quotas::bigint[], @streams::int[], @starts::timestamptz[], @ends::timestamptz[], @values::text[]::numeric[], @lates::boolean[])
		  x (alert_id, customer_id, threshold, quota_id, stream, period_start, period_end, value, late)
		where x.quota_id = 0 or not exists (
		    select
		    from alert_firings f
		    where f.tenant_id = @tenant
		      and f.alert_id = x.alert_id
		      and f.customer_id = x.customer_id
		      and f.threshold = x.threshold
		      and f.quota_id = x.quota_id
		      and f.stream = x.stream
		      and `+notifiedIn("period", "fired_at")+`)
		order by alert_id, customer_id, threshold, quota_id, stream, period_start
		on conflict do nothing
		returning `+firingColumns, pgx.NamedArgs{
		"tenant": v.tenant, "alerts": alerts, "customers": customers, "thresholds": thresholds, "quotas": quotas, "streams": streams,
		"starts": starts, "ends": ends, "values": values, "lates": lates, "now": v.now,
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f metering.Firing, err error) {
		return f, row.Scan(firingFields(&f)...)
	})
}
