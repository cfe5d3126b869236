package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Ledger is what was reported to the billing providers, written down before it
// was sent. Whatever is repeated, run twice or cut short, a provider's last
// total equals ours, and a number never carries two bodies.
type Ledger struct {
	pool *pool
	read ReadPrice
}

// Planned is what there is to report about a customer.
type Planned struct {
	ReadFirst bool     // what the customer is at the provider has to be read: nothing else was planned
	Send      []Report // those that are outstanding first
	Leased    *Leased  // the first of them, where it was to be
	More      bool     // there may be other reports once these are decided
	UpToDate  []uuid.UUID
	Excluded  []metering.ExcludedMeter
}

// Report names what is to be sent. To whom it goes, and its bytes, stay in the
// database.
type Report struct {
	ID       uuid.UUID
	Number   int64 // in the order of the customer's reports; a statement's sequence
	Kind     billing.Kind
	Meter    metering.MeterID // 0: a statement is of all of them
	Method   billing.Method
	Quantity *metering.Decimal // nil: of a statement
	Period   metering.Range
	Deadline time.Time // until when it is worth trying
}

// Frame makes the bytes of a report to a provider of the kind. It is called in
// the transaction that plans, again where another came first.
type Frame func(kind metering.ProviderKind, m billing.Message) (billing.Framed, error)

// Pass is what a caller's plans have in common.
type Pass struct {
	After    int64              // the number of the customer's last report before the pass
	Excluded []metering.MeterID // meters that stay as they were reported
	Lease    time.Duration      // the first report is leased to the caller for so long; 0: none is
}

// Plan plans the customer's billing on what is known at one instant and writes
// the reports down. CodeNoProvider where the tenant has none, CodePaused while
// an operator keeps the customer from being reported.
func (l Ledger) Plan(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, pass Pass, frame Frame, now time.Time) (planned Planned, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		streams, err := l.planIn(ctx, tx, tenant, customer, now, func(f *billing.Facts) { f.After, f.Excluded = pass.After, pass.Excluded })
		if err != nil {
			return err
		}
		if streams[0].paused {
			return errPaused
		}
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
	Revision    int    // of the idempotency key
	Object      string // what it overwrites, in the provider's words; "": nobody knows
	FirstSentAt time.Time
	Provider    metering.Provider
	Invoiced    bool // the invoice of its period is final: what is taken now is on none
}

// Busy is the cause where somebody else is sending the same report.
type Busy struct{ Wait time.Duration }

func (b Busy) Error() string {
	return "another attempt may send the report for another " + b.Wait.String()
}

// Lease gives a report to the caller, who may send it once Lease has returned
// and must be done before the lease ends. It answers CodeOverloaded, caused by
// Busy, while another's lease runs, CodeConflict where the report is decided or
// its connection was replaced: plan again, and CodePaused while an operator
// keeps the customer from being reported.
func (l Ledger) Lease(ctx context.Context, tenant metering.TenantID, report uuid.UUID, now time.Time, length time.Duration) (leased Leased, err error) {
	err = inTx(ctx, l.pool, func(tx pgx.Tx) error {
		leased, err = lease(ctx, tx, tenant, report, now, length)
		return err
	})
	if err != nil {
		return Leased{}, fmt.Errorf("lease report: %w", err)
	}
	return leased, nil
}

func lease(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, report uuid.UUID, now time.Time, length time.Duration) (l Leased, err error) {
	l.ReportID = report
	var (
		state      billing.State
		leaseUntil *time.Time
		paused     bool
		unread     bool
		hold       bool // it is about an invoice and no period
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
		  s.counting = 'adds' and r.ledger_epoch < (`+ledgerEpoch+`) and d.read_epoch < (`+ledgerEpoch+`), r.period_id is null
		from billing_reports r
		join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id
		join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
		left join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id
		where r.tenant_id = $1
		  and r.id = $2
		for update of r`, tenant, report, now,
	).Scan(&state, &leaseUntil, &l.Attempt, &l.Body, &l.Revision, &l.FirstSentAt,
		&l.Kind, &l.Connection, &l.Customer, &l.Target, &l.Method, &l.Counting, &l.Period, &l.Window.Start, &l.Window.End, &l.Late, &l.Object, &l.Invoiced, &paused, &unread, &hold)
	if errors.Is(err, pgx.ErrNoRows) {
		return l, errNoReport
	}
	if err != nil {
		return l, err
	}
	if !state.Outstanding() {
		return l, metering.Errorf(metering.CodeConflict, "the outcome of the report is already known")
	}
	if paused && !hold { // holding an invoice reports nothing
		return l, errPaused
	}
	if unread {
		return l, metering.Errorf(metering.CodeConflict, "the ledger was restored from a backup; the provider's totals are read before this report is sent")
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
	_, err = tx.Exec(ctx, `
		update billing_reports
		set state = 'sending', first_sent_at = $3, lease_until = $4, attempts = $5
		where tenant_id = $1
		  and id = $2`, tenant, report, l.FirstSentAt, now.Add(length), l.Attempt)
	return l, err
}

var errNoReport = metering.Errorf(metering.CodeNotFound, "there is no such report")

// Release ends the lease of an attempt that brought no decision, so that the
// next one need not wait for it. With newKey that has another idempotency key.
func (l Ledger) Release(ctx context.Context, tenant metering.TenantID, report uuid.UUID, attempt int, response string, newKey bool) error {
	_, err := l.pool.Exec(ctx, `
		update billing_reports
		set lease_until = null, response = $4, key_revision = key_revision + $5::boolean::integer
		where tenant_id = $1
		  and id = $2
		  and attempts = $3
		  and state = 'sending'`, tenant, report, attempt, response, newKey)
	if err != nil {
		return fmt.Errorf("release report: %w", coded(err))
	}
	return nil
}

// Complete records what came of a report: accepted, rejected or, until something
// is known, in doubt. Completing again changes nothing, except that an
// acceptance that turns up late outweighs a rejection: what was reported
// meanwhile may have to be taken back.
func (l Ledger) Complete(ctx context.Context, tenant metering.TenantID, report uuid.UUID, state billing.State, response string, now time.Time) error {
	if err := complete(ctx, l.pool, tenant, report, state, response, now); err != nil {
		return fmt.Errorf("complete report: %w", coded(err))
	}
	return nil
}

func complete(ctx context.Context, q querier, tenant metering.TenantID, report uuid.UUID, state billing.State, response string, now time.Time) error {
	_, err := q.Exec(ctx, completeReports, tenant, []uuid.UUID{report}, state, response, now)
	return err
}

// KeepObject notes what the series of a report overwrites at its provider.
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
		return fmt.Errorf("store the provider object of a series: %w", coded(err))
	}
	return nil
}

// decided records what came of reports, as SQL.
const decided = `
	with former as (
	  select r.id, r.state
	  from billing_reports r
	  where r.tenant_id = $1
	    and r.id = any($2)
	  for update),
	completed as (
	  update billing_reports r
	  set state = $3, response = $4, lease_until = null, decided_at = case when $3 <> 'in_doubt' then $5::timestamptz end
	  from former
	  where r.tenant_id = $1
	    and r.id = former.id
	    and (former.state in ('planned', 'sending', 'in_doubt') or former.state = 'rejected' and $3 = 'accepted')
	  returning r.customer_id, r.series_id, former.state)`

// completeReports has somebody look at the customers again, unless all went as
// their plan has noted it: a report to the present connection was accepted.
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

// Resolution is what an operator has found out about a report in doubt, and how.
type Resolution struct {
	Report uuid.UUID
	State  billing.State // accepted or rejected
	Actor  metering.Actor
	Reason string // in their words
}

// Resolve records what an operator has found out. CodeNotFound where there is
// no such report, CodeConflict where it is not in doubt.
func (l Ledger) Resolve(ctx context.Context, tenant metering.TenantID, r Resolution, now time.Time) error {
	err := inTx(ctx, l.pool, func(tx pgx.Tx) error {
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
		return auditDecision(ctx, tx, tenant, decision{r.Actor, "report.resolve", r.Report.String() + " " + string(r.State), r.Reason}, state(is), state(r.State))
	})
	if err != nil {
		return fmt.Errorf("resolve report: %w", err)
	}
	return nil
}

// LastNumbers are the highest numbers of these customers' reports; those without
// any are left out.
func (l Ledger) LastNumbers(ctx context.Context, tenant metering.TenantID, customers []metering.CustomerID) (map[metering.CustomerID]int64, error) {
	rows, err := l.pool.Query(ctx, `
		select customer_id, max(number)
		from billing_reports
		where tenant_id = $1
		  and customer_id = any($2)
		group by customer_id`, tenant, customers)
	if err != nil {
		return nil, fmt.Errorf("read numbers of reports: %w", coded(err))
	}
	numbers := make(map[metering.CustomerID]int64, len(customers))
	var customer metering.CustomerID
	var number int64
	_, err = pgx.ForEachRow(rows, []any{&customer, &number}, func() error {
		numbers[customer] = number
		return nil
	})
	return numbers, coded(err)
}

// lastNumber is a customer's, as SQL.
func lastNumber(tenant, customer string) string {
	return `(select coalesce(max(number), 0) from billing_reports where tenant_id = ` + tenant + ` and customer_id = ` + customer + `)`
}

// atOneInstant runs fn in a transaction whose every statement sees the same
// state of the database, again where another transaction came first, and commits
// it with what fn has audited.
func atOneInstant(ctx context.Context, pool beginnerTx, fn func(tx pgx.Tx) error) error {
	return atOneInstantOn(ctx, pool, pool, repeatableRead, fn)
}

// atOneInstantOn is atOneInstant on a connection of a pool, with options of its transaction, which
// is a repeatable read.
func atOneInstantOn(ctx context.Context, conn, pool beginnerTx, options pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	const tries = 25 // of many who wait for one customer, one gets its turn at a time
	for try := 1; ; try++ {
		err := pgx.BeginTxFunc(ctx, conn, options, withAudit(ctx, pool, fn))
		switch sqlState(err) {
		case stateSerialization, stateDeadlock, stateUniqueViolation:
			if try < tries {
				continue
			}
		}
		return coded(err)
	}
}

// beginnerTx is a pool or one of its connections.
type beginnerTx interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}
