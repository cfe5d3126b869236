package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Ledger stores the reports to the billing providers. Each report is stored before it is sent. Even after
// retries, duplicate runs and crashes, a provider's last total equals ours. A report number never has two
// different bodies.
type Ledger struct {
	pool   *pg.Pool
	read   ReadPrice
	alerts AlertsReader
}

// AlertsReader reads the enabled alerts of a tenant, to compare closing periods with them.
type AlertsReader func(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, now time.Time) (PeriodAlerts, error)

// PeriodAlerts compares billing periods with the alerts of a tenant.
type PeriodAlerts interface {
	// Compare collects the thresholds that customers have reached in billing periods.
	Compare(periods []CustomerPeriod) error
	// Fire stores the collected thresholds that are not stored yet, and publishes a message for each.
	Fire() error
}

// CustomerPeriod is a billing period of a customer.
type CustomerPeriod struct {
	Facts  *billing.Facts
	Period billing.Period
}

// Planned is the result of planning a customer's billing.
type Planned struct {
	ReadFirst bool     // the customer's state at the provider must be read first; nothing else was planned
	Send      []Report // outstanding reports first
	Leased    *Leased  // lease of the first report, if Pass.Lease is set and there is a report
	More      bool     // more reports may follow once the outcomes of these are known
	UpToDate  []uuid.UUID
	Excluded  []billing.Exclusion
}

// Report identifies a report to send. Its recipient and its body stay in the database.
type Report struct {
	ID       uuid.UUID
	Number   int64 // ascending per customer; the sequence number of a statement
	Kind     billing.Kind
	Meter    metering.MeterID // 0 for a statement, which covers all meters
	Method   billing.Method
	Quantity *metering.Decimal // nil for a statement
	Period   metering.Range
	Deadline time.Time // time until which sending is useful
}

// Frame returns the body of a report for a kind of provider. It is called in the planning transaction, and
// again if that transaction is retried.
type Frame func(kind metering.ProviderKind, m billing.Message) (billing.Framed, error)

// Pass holds the options that all plans of a pass share. A pass reports the customer's usage and answers the open
// sync requests. A run of a sync can have several passes.
type Pass struct {
	After    int64              // the number of the customer's last report before the pass
	Excluded []metering.MeterID // meters that keep their last reported state
	Lease    time.Duration      // duration of the caller's lease of the first report; 0 for none
}

// Plan plans the customer's billing from one snapshot and stores the reports. It fails with CodeNoProvider
// if the tenant has no provider, and with CodePaused while an operator pauses the customer's reports.
func (l Ledger) Plan(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, pass Pass, frame Frame, now time.Time) (planned Planned, err error) {
	err = pg.AtOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		streams, err := l.planSchedules(ctx, tx, tenant, customer, now, func(f *billing.Facts) { f.After, f.Excluded = pass.After, pass.Excluded })
		if err != nil {
			return err
		}
		if streams[0].paused {
			return errPaused
		}
		scheduleReplan(streams, true)
		if planned, err = writeAll(streams, frame); err != nil || pass.Lease == 0 || len(planned.Send) == 0 {
			return err
		}
		leased, err := lease(ctx, tx, tenant, planned.Send[0].ID, now, pass.Lease)
		planned.Leased = &leased
		return err
	})
	if err != nil {
		return Planned{}, fmt.Errorf("plan reports: %w", err)
	}
	return planned, nil
}

// Leased is one attempt at sending a report.
type Leased struct {
	billing.Series
	ReportID    uuid.UUID
	Attempt     int
	Body        []byte
	Revision    int    // revision of the idempotency key
	Object      string // id of the provider object that the report overwrites; "" if unknown
	FirstSentAt time.Time
	Provider    metering.Provider

	MayHaveArrived bool // an earlier attempt may have arrived
	Invoiced       bool // the invoice of the period is final: no invoice bills usage that is accepted now
}

// Busy is the cause of CodeOverloaded while another attempt holds the lease of the report.
type Busy struct{ Wait time.Duration }

func (b Busy) Error() string {
	return "another attempt may send the report for another " + b.Wait.String()
}

// Lease leases a report to the caller, which may send the report until the lease ends. It fails with
//
//   - CodeOverloaded, caused by Busy, while another attempt holds the lease,
//   - CodeConflict if the report is decided, its connection was replaced, or the provider's totals and charges must
//     be read first after a restore of the ledger; the caller must then plan again,
//   - CodePaused while an operator pauses the customer's reports.
func (l Ledger) Lease(ctx context.Context, tenant metering.TenantID, report uuid.UUID, now time.Time, length time.Duration) (leased Leased, err error) {
	err = pg.InTx(ctx, l.pool, func(tx pgx.Tx) error {
		leased, err = lease(ctx, tx, tenant, report, now, length)
		return err
	})
	if err != nil {
		return Leased{}, fmt.Errorf("lease report: %w", err)
	}
	return leased, nil
}

// lease is Ledger.Lease in a transaction of the caller.
func lease(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, report uuid.UUID, now time.Time, length time.Duration) (l Leased, err error) {
	l.ReportID = report
	var (
		state      billing.State
		leaseUntil *time.Time
		paused     bool
		readFirst  bool
		hold       bool // the report is an action on an invoice and has no period
	)
	err = tx.QueryRow(ctx, `
		select r.state, r.lease_until, r.attempts + 1, r.body, r.key_revision, coalesce(r.first_sent_at, $3),
		  s.kind, d.connection_id, d.provider_customer, s.target, s.method, s.counting,
		  coalesce(p.starts_at, r.recorded_at), coalesce(s.window_start, p.starts_at, r.recorded_at), coalesce(s.window_end, p.ends_at, r.recorded_at),
		  s.late, s.object, exists (
		    select
		    from billing_invoices i
		    where i.connection_id = d.connection_id
		      and `+lastOfPeriod+`), `+isPaused("r.tenant_id", "r.customer_id")+`,
		  `+isReadFirst+`, r.period_id is null
		from billing_reports r
		join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id
		join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
		join billing_connections k on k.tenant_id = d.tenant_id and k.id = d.connection_id
		left join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id
		where r.tenant_id = $1
		  and r.id = $2
		for update of r`, tenant, report, now,
	).Scan(&state, &leaseUntil, &l.Attempt, &l.Body, &l.Revision, &l.FirstSentAt,
		&l.Kind, &l.Connection, &l.Customer, &l.Target, &l.Method, &l.Counting, &l.Period, &l.Window.Start, &l.Window.End, &l.Late, &l.Object, &l.Invoiced, &paused, &readFirst, &hold)
	if errors.Is(err, pgx.ErrNoRows) {
		return l, errNoReport
	}
	if err != nil {
		return l, err
	}
	if !state.Outstanding() {
		return l, metering.Errorf(metering.CodeConflict, "the outcome of the report is already known")
	}
	if paused && !hold { // an invoice hold reports no usage
		return l, errPaused
	}
	if readFirst {
		return l, metering.Errorf(metering.CodeConflict, "the ledger was restored from a backup; the provider's totals and charges are read before this report is sent")
	}
	if leaseUntil != nil && leaseUntil.After(now) {
		return l, metering.Errorf(metering.CodeOverloaded, "the report is being sent").Because(Busy{leaseUntil.Sub(now)})
	}
	if l.Provider, err = activeProvider(ctx, tx, tenant); err != nil {
		return l, err
	}
	if l.Provider.ID != l.Connection {
		return l, metering.Errorf(metering.CodeConflict, "the billing provider was replaced")
	}
	l.MayHaveArrived = state != billing.Planned
	_, err = tx.Exec(ctx, `
		update billing_reports
		set state = 'sending', first_sent_at = $3, lease_until = $4, attempts = $5
		where tenant_id = $1
		  and id = $2`, tenant, report, l.FirstSentAt, now.Add(length), l.Attempt)
	return l, err
}

var errNoReport = metering.Errorf(metering.CodeNotFound, "there is no such report")

// Release ends the lease of an attempt without a decision, so that the next attempt need not wait. With
// newKey, the next attempt has another idempotency key.
func (l Ledger) Release(ctx context.Context, tenant metering.TenantID, report uuid.UUID, attempt int, response string, newKey bool) error {
	_, err := l.pool.Exec(ctx, `
		update billing_reports
		set lease_until = null, response = $4, key_revision = key_revision + $5::boolean::integer
		where tenant_id = $1
		  and id = $2
		  and attempts = $3
		  and state = 'sending'`, tenant, report, attempt, response, newKey)
	if err != nil {
		return fmt.Errorf("release report: %w", pg.Coded(err))
	}
	return nil
}

// ReleaseRefused ends the lease of an attempt that the provider refused. The report is planned again, as if it had
// never been sent. The caller ensures that the provider does not have the report.
func (l Ledger) ReleaseRefused(ctx context.Context, tenant metering.TenantID, refused Leased, response string) error {
	_, err := l.pool.Exec(ctx, `
		update billing_reports
		set state = 'planned', first_sent_at = null, lease_until = null, response = $4
		where tenant_id = $1
		  and id = $2
		  and attempts = $3
		  and state = 'sending'`, tenant, refused.ReportID, refused.Attempt, response)
	if err != nil {
		return fmt.Errorf("release refused report: %w", pg.Coded(err))
	}
	return nil
}

// Complete records the outcome of a report: accepted, rejected, or in_doubt while it is unknown. Completing
// a decided report has no effect, with one exception: a late acceptance replaces a rejection. Usage that
// was reported again in between may then have to be credited.
func (l Ledger) Complete(ctx context.Context, tenant metering.TenantID, report uuid.UUID, state billing.State, response string, now time.Time) error {
	if err := complete(ctx, l.pool, tenant, report, state, response, now); err != nil {
		return fmt.Errorf("complete report: %w", pg.Coded(err))
	}
	return nil
}

// CompleteAttempt is Complete for the outcome of one attempt. Only an acceptance has an effect after another attempt
// has begun, because that attempt may have arrived.
func (l Ledger) CompleteAttempt(ctx context.Context, tenant metering.TenantID, attempt Leased, state billing.State, response string, now time.Time) error {
	last := attempt.Attempt
	if state == billing.Accepted {
		last = anyAttempt
	}
	if _, err := l.pool.Exec(ctx, completeReports, tenant, []uuid.UUID{attempt.ReportID}, state, response, now, last); err != nil {
		return fmt.Errorf("complete report: %w", pg.Coded(err))
	}
	return nil
}

func complete(ctx context.Context, q pg.Querier, tenant metering.TenantID, report uuid.UUID, state billing.State, response string, now time.Time) error {
	_, err := q.Exec(ctx, completeReports, tenant, []uuid.UUID{report}, state, response, now, anyAttempt)
	return err
}

// KeepObject stores the id of the provider object that the series of a report overwrites.
func (l Ledger) KeepObject(ctx context.Context, tenant metering.TenantID, report uuid.UUID, object string) error {
	_, err := l.pool.Exec(ctx, `
		update billing_series s
		set object = $3
		from billing_reports r
		where r.tenant_id = $1
		  and r.id = $2
		  and s.tenant_id = r.tenant_id
		  and s.id = r.series_id`, tenant, report, object)
	if err != nil {
		return fmt.Errorf("store the provider object of a series: %w", pg.Coded(err))
	}
	return nil
}

// anyAttempt is the parameter $6 of decided for an outcome that does not depend on the last attempt.
const anyAttempt = 0

// decided is the SQL that records the outcome $3 of the reports $2. See Ledger.Complete. Unless $6 is anyAttempt, it
// records the outcome only of reports with the last attempt $6.
const decided = `
	with former as (
	  select r.id, r.state
	  from billing_reports r
	  where r.tenant_id = $1
	    and r.id = any($2)
	    and $6::integer in (0, r.attempts)
	  for update),
	completed as (
	  update billing_reports r
	  set state = $3, response = $4, lease_until = null, decided_at = case when $3 <> 'in_doubt' then $5::timestamptz end
	  from former
	  where r.tenant_id = $1
	    and r.id = former.id
	    and (former.state in ('planned', 'sending', 'in_doubt') or former.state = 'rejected' and $3 = 'accepted')
	  returning r.customer_id, r.series_id, former.state)`

// completeReports does the same as the constant decided, and also resets the watermarks of the customers' open
// periods, so that these customers are planned again. It keeps the watermarks if a planned or sending report to
// the active connection was accepted, because the plan expected that outcome.
const completeReports = decided + `
	update billing_periods p
	set watermark_configuration = ''
	from completed c
	join billing_series s on s.tenant_id = $1 and s.id = c.series_id
	join billing_destinations d on d.tenant_id = $1 and d.id = s.destination_id
	join billing_connections k on k.tenant_id = $1 and k.id = d.connection_id
	where p.tenant_id = $1
	  and p.customer_id = c.customer_id
	  and p.closed_at is null
	  and p.watermark_configuration <> ''
	  and ($3 <> 'accepted' or c.state in ('rejected', 'in_doubt') or k.retired_at is not null)`

// Resolution is an operator's decision about a report in state in_doubt.
type Resolution struct {
	Report uuid.UUID
	State  billing.State // accepted or rejected
	Actor  metering.Actor
	Reason string // in the operator's words
}

// Resolve records an operator's decision about a report. It fails with CodeNotFound if there is no such
// report, and with CodeConflict if its state is not in_doubt.
func (l Ledger) Resolve(ctx context.Context, tenant metering.TenantID, r Resolution, now time.Time) error {
	err := pg.InTx(ctx, l.pool, func(tx pgx.Tx) error {
		var is billing.State
		err := tx.QueryRow(ctx, `select state from billing_reports where tenant_id = $1 and id = $2 for update`, tenant, r.Report).Scan(&is)
		if errors.Is(err, pgx.ErrNoRows) {
			return errNoReport
		}
		if err != nil {
			return err
		}
		if is != billing.InDoubt {
			return metering.Errorf(metering.CodeConflict, "the report is %s; only a report in state in_doubt can be resolved", is)
		}
		if err := complete(ctx, tx, tenant, r.Report, r.State, "resolved by an operator", now); err != nil {
			return err
		}
		return audit.RecordDecision(ctx, tx, tenant, audit.Decision{Actor: r.Actor, Action: "report.resolve", Resource: r.Report.String() + " " + string(r.State), Reason: r.Reason}, audit.State(is), audit.State(r.State))
	})
	if err != nil {
		return fmt.Errorf("resolve report: %w", err)
	}
	return nil
}

// LastNumbers returns the highest report number of each customer. It skips customers without reports.
func (l Ledger) LastNumbers(ctx context.Context, tenant metering.TenantID, customers []metering.CustomerID) (map[metering.CustomerID]int64, error) {
	rows, err := l.pool.Query(ctx, `
		select customer_id, max(number)
		from billing_reports
		where tenant_id = $1
		  and customer_id = any($2)
		group by customer_id`, tenant, customers)
	if err != nil {
		return nil, fmt.Errorf("read numbers of reports: %w", pg.Coded(err))
	}
	numbers := make(map[metering.CustomerID]int64, len(customers))
	var customer metering.CustomerID
	var number int64
	_, err = pgx.ForEachRow(rows, []any{&customer, &number}, func() error {
		numbers[customer] = number
		return nil
	})
	return numbers, pg.Coded(err)
}

// lastNumber returns the SQL of a customer's highest report number, or 0.
func lastNumber(tenant, customer string) string {
	return `(select coalesce(max(number), 0) from billing_reports where tenant_id = ` + tenant + ` and customer_id = ` + customer + `)`
}
