package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Closing is the result of closing the periods of some customers.
type Closing struct {
	Closed int                   // number of closed periods
	Open   []metering.CustomerID // customers with due periods that cannot close yet, for example due to a backfill
}

// ClosePeriods closes the due periods of these customers. Usage that arrives later is counted as late. Every
// event is counted either in its period or as late.
//
// Ingest of the tenant continues during the planning, and waits only for the writes. ClosePeriods then pauses
// for as long as ingest has waited, so that ingest can proceed. The number of customers must be small, because
// ingest waits for all of them. If usage of a closing period arrives during the planning, the periods are
// planned again while ingest waits.
func (l Ledger) ClosePeriods(ctx context.Context, tenant metering.TenantID, customers []metering.CustomerID, now time.Time) (Closing, error) {
	f, err := l.closeBesideIngest(ctx, tenant, customers, now)
	if errors.Is(err, errUsedMeanwhile) || errors.Is(err, pg.ErrOneConnection) {
		f, err = l.closeWithoutIngest(ctx, tenant, customers, now)
	}
	if err != nil {
		return Closing{}, fmt.Errorf("close periods: %w", err)
	}
	return f, nil
}

// closeBesideIngest plans first, and then takes the tenant's lock, which blocks ingest. It returns
// errUsedMeanwhile if usage of a closing period has changed since the planning. It returns pg.ErrOneConnection
// if the pool has no second connection for checking the usage.
func (l Ledger) closeBesideIngest(ctx context.Context, tenant metering.TenantID, customers []metering.CustomerID, now time.Time) (f Closing, err error) {
	held := func() time.Duration { return 0 }
	defer func() { _ = pg.Wait(ctx, held()) }()
	err = l.pool.AcquireTwo(ctx, tenant, func(conn, second *pgxpool.Conn) error {
		return pg.WithLock(ctx, second, closingLock, []any{tenant}, func() error {
			return pg.AtOneInstantOn(ctx, conn, l.pool, pg.RepeatableRead, func(tx pgx.Tx) error {
				plans, alerts, err := l.planClosings(ctx, tx, tenant, customers, now)
				if err != nil {
					return err
				}
				if alerts != nil {
					held = l.pool.Stopwatch()
					if err := pg.LockTenant(ctx, tx, tenant); err != nil {
						return err
					}
					if err := requireSameUsage(plans, second); err != nil {
						return err
					}
				}
				f, err = writeClosings(ctx, tx, tenant, plans, alerts)
				return err
			})
		})
	})
	return f, err
}

// closeWithoutIngest holds the tenant's lock during both planning and writing.
func (l Ledger) closeWithoutIngest(ctx context.Context, tenant metering.TenantID, customers []metering.CustomerID, now time.Time) (f Closing, err error) {
	err = l.Exclusively(ctx, tenant, func(tx pgx.Tx) error {
		plans, alerts, err := l.planClosings(ctx, tx, tenant, customers, now)
		if err != nil {
			return err
		}
		f, err = writeClosings(ctx, tx, tenant, plans, alerts)
		return err
	})
	return f, err
}

// closingLock is the SQL of the advisory lock key that serializes the closings of a tenant. Without the lock,
// the later of two concurrent closings would have to plan again, because each closing raises the tenant's
// epoch.
const closingLock = `hashtextextended('close periods', $1)`

// planClosings plans the closing of the customers' due periods, and compares their usage with the tenant's alerts. It
// writes nothing. alerts is nil if no period closes.
func (l Ledger) planClosings(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customers []metering.CustomerID, now time.Time) (all []streamPlan, alerts PeriodAlerts, err error) {
	for _, customer := range customers {
		streams, err := l.planSchedules(ctx, tx, tenant, customer, now, func(f *billing.Facts) { f.MayClose = true })
		if err != nil {
			return nil, nil, err
		}
		scheduleReplan(streams, false)
		all = append(all, streams...)
	}
	alerts, err = l.compareClosings(ctx, tx, tenant, all, now)
	return all, alerts, err
}

// compareClosings compares the usage of the closing periods with the tenant's alerts. The alert evaluator reads
// only open periods, so it may have missed the last events of the closing periods. compareClosings is part of
// the planning, during which ingest usually continues. It returns nil if no period closes.
func (l Ledger) compareClosings(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, plans []streamPlan, now time.Time) (PeriodAlerts, error) {
	var closing []CustomerPeriod
	for _, p := range plans {
		for _, c := range p.Closings {
			closing = append(closing, CustomerPeriod{&p.facts, c.Period})
		}
	}
	if len(closing) == 0 {
		return nil, nil
	}
	alerts, err := l.alerts(ctx, tx, tenant, now)
	if err != nil {
		return nil, err
	}
	if err := alerts.Compare(closing); err != nil {
		return nil, fmt.Errorf("compare usage with alerts: %w", err)
	}
	return alerts, nil
}

// errUsedMeanwhile means that usage of a closing period has arrived since the snapshot of the planning
// transaction.
var errUsedMeanwhile = errors.New("usage has come since the closing was planned")

// requireSameUsage reads the usage of the closing periods again, through another connection, because the
// snapshot of the planning transaction is older. It returns errUsedMeanwhile if the usage has changed. The
// caller holds the tenant's lock, so the usage cannot change later.
func requireSameUsage(plans []streamPlan, by pg.Batcher) error {
	for _, p := range plans {
		var closing []metering.Range
		for _, c := range p.Closings {
			closing = append(closing, c.Period.Range)
		}
		again := *p.factReader
		again.q, again.facts.Usage = by, nil
		if err := again.totalsOf(closing); err != nil {
			return err
		}
		planned := slices.DeleteFunc(slices.Clone(p.facts.Usage), func(u billing.Usage) bool {
			return !slices.ContainsFunc(closing, func(r metering.Range) bool { return r.Start.Equal(u.Period) })
		})
		if !sameUsage(planned, again.facts.Usage) {
			return errUsedMeanwhile
		}
	}
	return nil
}

// sameUsage reports whether a and b hold the same usage, in any order.
func sameUsage(a, b []billing.Usage) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(u billing.Usage) bool { return !slices.ContainsFunc(b, u.Equal) })
}

// writeClosings writes the plans, and fires the alerts that the closing periods have reached. If alerts is
// not nil, the caller holds the tenant's lock.
func writeClosings(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, plans []streamPlan, alerts PeriodAlerts) (f Closing, err error) {
	var epoch int64
	if alerts != nil {
		if epoch, err = catalog.RaiseEpoch(ctx, tx, tenant); err != nil {
			return f, err
		}
		if err := alerts.Fire(); err != nil {
			return f, fmt.Errorf("fire alerts: %w", err)
		}
	}
	for _, p := range plans {
		for _, closing := range p.Closings {
			if err := p.close(closing, epoch); err != nil {
				return f, err
			}
		}
		if err := p.reconcile(p.ReportPlan); err != nil {
			return f, err
		}
		f.Closed += len(p.Closings)
		if p.Waiting && !slices.Contains(f.Open, p.customer) {
			f.Open = append(f.Open, p.customer)
		}
	}
	return f, nil
}

// Exclusively runs fn in a transaction with one snapshot, while no event of the tenant is being ingested. It
// takes the tenant's lock before the transaction begins, because a snapshot is older than the locks that its
// own transaction takes. Afterwards it pauses for as long as it held the lock, so that repeated calls leave
// time for ingest.
func (l Ledger) Exclusively(ctx context.Context, tenant metering.TenantID, fn func(tx pgx.Tx) error) error {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return pg.Coded(err)
	}
	held := l.pool.Stopwatch()
	defer func() { _ = pg.Wait(ctx, held()) }()
	defer conn.Release()
	return pg.WithLock(ctx, conn, pg.TenantLock, []any{tenant}, func() error { return pg.AtOneInstantOn(ctx, conn, l.pool, pg.RepeatableRead, fn) })
}

// close stores the totals of a closing period, marks the period as closed and publishes a message about it.
func (w *planWriter) close(c billing.Closing, epoch int64) error {
	period := pgx.NamedArgs{
		"tenant": w.tenant, "customer": w.customer, "stream": w.facts.Stream, "start": c.Period.Start, "end": c.Period.End, "now": w.facts.Now, "epoch": epoch,
	}
	for _, l := range c.Lines {
		working, err := json.Marshal(l.Working())
		if err != nil {
			return err
		}
		w.batch.Queue(`
			insert into billing_period_totals
			  (tenant_id, period_id, meter_id, meter_version_id, usage, event_count, dimensions, price_version, terms, charge, currency, working, billed, test, scale, trial)
			select @tenant, p.id, @meter, @version, @usage, @events, @dimensions, @price_version, coalesce(@provider_terms::bytea, `+catalog.TermsOf+`), @charge, @currency, @working, @billed, @test, @scale, @trial
			from billing_periods p
			where p.tenant_id = @tenant
			  and p.customer_id = @customer
			  and p.stream = @stream
			  and p.starts_at = @start`, pgx.NamedArgs{
			"tenant": w.tenant, "customer": w.customer, "stream": w.facts.Stream, "start": c.Period.Start, "meter": l.MeterID, "version": l.MeterVersion,
			"usage": l.Usage, "events": l.Events, "dimensions": l.Dimensions, "price_version": l.PriceVersion, "charge": l.Charge, "currency": l.Currency, "working": working, "billed": l.Billed, "test": l.Test,
			"scale": l.Scale, "trial": l.Trial, "provider_terms": termsHash(l.Price),
		})
	}
	w.batch.Queue(`
		update billing_periods
		set closed_at = @now, closed_epoch = @epoch, closed_sequence = nextval('ledger_sequence')
		where tenant_id = @tenant
		  and customer_id = @customer
		  and stream = @stream
		  and starts_at = @start`, period)
	w.batch.Queue(`
		update customers
		set closed_from = least(closed_from, @start), closed_until = greatest(closed_until, @end)
		where tenant_id = @tenant
		  and id = @customer
		  and @stream = 0`, period)
	if err := w.flush(); err != nil {
		return err
	}
	return outbox.Publish(w.ctx, w.tx, w.tenant, w.customer, outbox.PeriodClosed{Period: outbox.PeriodOf(c.Period.Range)}, w.facts.Now)
}

// complete marks closed periods as complete, including periods that this plan closes.
func (w *planWriter) complete(all []billing.Period) {
	var starts []time.Time
	for _, p := range all {
		starts = append(starts, p.Start)
	}
	if len(starts) > 0 {
		w.batch.Queue(`update billing_periods set complete = true where tenant_id = $1 and customer_id = $2 and stream = $4 and starts_at = any($3)`,
			w.tenant, w.customer, starts, w.facts.Stream)
	}
}

// DuePeriods returns a page of customers with a period to close, that is, an open period that ended longer ago
// than the tenant's grace period. It first stores the missing periods of billing schedules, up to now.
func (l Ledger) DuePeriods(ctx context.Context, tenant metering.TenantID, after metering.CustomerID, limit int, now time.Time) (page CustomerPage, err error) {
	behind, err := l.customers(ctx, tenant, after, limit, now, behindClosing)
	if err != nil {
		return CustomerPage{}, fmt.Errorf("find billing schedules to extend: %w", err)
	}
	var broken []metering.CustomerID // customers with schedules that cannot be extended; closing reports the errors
	for _, customer := range behind {
		err := l.extend(ctx, tenant, customer, now)
		switch metering.CodeOf(err) {
		case "":
		case metering.CodeUnavailable, metering.CodeOverloaded:
			return CustomerPage{}, fmt.Errorf("extend billing periods: %w", err)
		default:
			broken = append(broken, customer)
		}
	}
	if page.Customers, err = l.customers(ctx, tenant, after, limit, now, dueForClosing); err != nil {
		return CustomerPage{}, fmt.Errorf("find due periods: %w", err)
	}
	page.Customers = append(page.Customers, broken...)
	slices.Sort(page.Customers)
	page.Customers = slices.Compact(page.Customers)
	if n := len(page.Customers); n > 0 {
		page.Last = page.Customers[n-1]
	}
	if n := len(behind); n == limit && (page.Last == 0 || page.Last > behind[n-1]) {
		page.Last = behind[n-1] // later customers may still lack periods
		page.Customers = upTo(page.Customers, page.Last)
	}
	page.More = page.Last > 0
	return page, nil
}

// extend stores the customer's billing periods up to now.
func (l Ledger) extend(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) error {
	return pg.AtOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		streams, err := l.readRegrouped(ctx, tx, tenant, customer, now)
		if err != nil {
			return err
		}
		plans := make([]streamPlan, len(streams))
		for i, read := range streams {
			plans[i] = streamPlan{&planWriter{factReader: read, tx: tx}, read.books().Plan()}
			plans[i].periods(plans[i].Periods)
		}
		scheduleReplan(plans, false)
		for _, p := range plans {
			if err := p.flush(); err != nil {
				return err
			}
		}
		return nil
	})
}

// upTo returns the customers with an ID of at most last. The customers are in order of ID.
func upTo(customers []metering.CustomerID, last metering.CustomerID) []metering.CustomerID {
	for i, c := range customers {
		if c > last {
			return customers[:i]
		}
	}
	return customers
}

// SQL conditions on a customer c of a tenant t.
const (
	dueForClosing = `exists (
		select
		from billing_periods p
		where p.tenant_id = c.tenant_id
		  and p.customer_id = c.id
		  and p.closed_at is null
		  and p.ends_at <= @now::timestamptz - t.grace)`
	behindClosing = `coalesce(c.billing_starts_at, @now::timestamptz) <= @now::timestamptz and (c.head_open_until <= @now::timestamptz or not exists (
		select
		from billing_periods p
		where p.tenant_id = c.tenant_id
		  and p.customer_id = c.id
		  and p.ends_at > @now::timestamptz - t.grace) or c.streams > 1 and c.streams > (
		select count(distinct p.stream)
		from billing_periods p
		where p.tenant_id = c.tenant_id
		  and p.customer_id = c.id
		  and p.ends_at > @now::timestamptz - t.grace))`
	// unreportedClosing is the condition that a closed period is not complete and the customer is out of sync
	// with an active connection. An open period with an empty watermark_configuration marks the customer as out
	// of sync.
	unreportedClosing = `exists (
		select
		from billing_periods p
		where p.tenant_id = c.tenant_id
		  and p.customer_id = c.id
		  and ` + closedIncomplete + `) and exists (
		select
		from billing_periods p
		join billing_connections k on k.tenant_id = p.tenant_id and k.retired_at is null
		where p.tenant_id = c.tenant_id
		  and p.customer_id = c.id
		  and p.closed_at is null
		  and p.watermark_configuration = '')`
)

// customers returns the next customers, in order of ID, that meet an SQL condition on customer c and tenant t.
func (l Ledger) customers(ctx context.Context, tenant metering.TenantID, after metering.CustomerID, limit int, now time.Time, condition string) ([]metering.CustomerID, error) {
	rows, err := l.pool.Query(ctx, `
		select c.id
		from customers c
		join tenants t on t.id = c.tenant_id
		where c.tenant_id = @tenant
		  and c.id > @after
		  and `+condition+`
		order by c.id
		limit @limit`, pgx.NamedArgs{"tenant": tenant, "after": after, "now": metering.Instant(now), "limit": limit})
	if err != nil {
		return nil, pg.Coded(err)
	}
	customers, err := pgx.CollectRows(rows, pgx.RowTo[metering.CustomerID])
	return customers, pg.Coded(err)
}

// DueTenants returns the tenants that may have a period to close, or a closed one to report.
func (l Ledger) DueTenants(ctx context.Context, now time.Time) ([]metering.TenantID, error) {
	rows, err := l.pool.Query(ctx, `
		select t.id
		from tenants t
		where exists (
		  select
		  from customers c
		  where c.tenant_id = t.id
		    and (`+dueForClosing+` or `+behindClosing+` or `+unreportedClosing+`))
		order by t.id`, pgx.NamedArgs{"now": metering.Instant(now)})
	if err != nil {
		return nil, fmt.Errorf("find tenants with due periods: %w", pg.Coded(err))
	}
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[metering.TenantID])
	return tenants, pg.Coded(err)
}
