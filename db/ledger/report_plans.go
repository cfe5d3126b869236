package ledger

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/metering"
)

// streamPlan is the plan of one billing schedule of a customer, with the writer that stores the plan.
type streamPlan struct {
	*planWriter
	billing.ReportPlan
}

// planSchedules takes the customer's turn, plans each of its billing schedules, and queues the changes of the plans,
// except closings, reconciliations, reports and the time of the next re-evaluation (see scheduleReplan). ask sets options
// in the facts of each schedule before the planning.
func (l Ledger) planSchedules(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, now time.Time, ask func(*billing.Facts)) (all []streamPlan, err error) {
	streams, err := l.readRegrouped(ctx, tx, tenant, customer, now)
	if err != nil {
		return nil, err
	}
	busy := false
	for _, read := range streams {
		ask(&read.facts)
		p := streamPlan{&planWriter{factReader: read, tx: tx}, read.books().Plan()}
		if sends := len(p.Reports)+len(p.Resume) > 0; sends && read.facts.Connection.Statements && busy { // a receiver of statements gets one at a time
			p.Reports, p.Resume, p.Reported, p.More = nil, nil, nil, true
		} else {
			busy = busy || sends
		}
		all = append(all, p)
	}
	for _, p := range all {
		p.periods(p.Periods)
		p.bookings(p.Bookings)
		p.watermarks(p.Reported)
		p.endFormerReports(p.ReportPlan)
		p.resolve(p.Resolved)
		p.complete(p.Complete)
	}
	return all, nil
}

// readRegrouped takes the customer's turn, assigns its meters to billing schedules, and reads the facts of each
// schedule.
func (l Ledger) readRegrouped(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, now time.Time) ([]*factReader, error) {
	if err := TakeTurn(ctx, tx, tenant, customer); err != nil {
		return nil, err
	}
	streams, err := readStreams(ctx, tx, l.read, tenant, customer, now)
	if err != nil {
		return nil, err
	}
	facts := make([]billing.Facts, len(streams))
	for i, read := range streams {
		facts[i] = read.facts
	}
	change := billing.Regroup(facts)
	if change.Empty() {
		return streams, nil
	}
	if err := streams[0].regroup(tx, change); err != nil {
		return nil, err
	}
	return readStreams(ctx, tx, l.read, tenant, customer, now)
}

// flush executes the queued statements.
func (w *planWriter) flush() error {
	err := w.tx.SendBatch(w.ctx, &w.batch).Close()
	w.batch = pgx.Batch{}
	return err
}

// planWriter stores a plan in the transaction that read its facts.
type planWriter struct {
	*factReader
	tx    pgx.Tx
	batch pgx.Batch
}

// TakeTurn serializes the transactions that plan the customer's billing. A repeatable-read transaction that
// waited for another one fails and is retried, because its snapshot is older than the changes of the other.
// TakeTurn must be the first statement of the transaction.
func TakeTurn(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) error {
	_, err := tx.Exec(ctx, `
		update customers
		set billing_turn = billing_turn + 1
		where tenant_id = $1
		  and id = $2`, tenant, customer)
	return err
}

// takeTurnOf is TakeTurn for the customer to which a row of the table belongs.
func takeTurnOf(ctx context.Context, tx pgx.Tx, table string, tenant metering.TenantID, row int64) error {
	_, err := tx.Exec(ctx, `
		update customers c
		set billing_turn = billing_turn + 1
		from `+table+` o
		where o.tenant_id = $1
		  and o.id = $2
		  and c.tenant_id = o.tenant_id
		  and c.id = o.customer_id`, tenant, row)
	return err
}

// periods queues the billing periods that are new or changed.
func (w *planWriter) periods(periods []billing.Period) {
	for _, p := range periods {
		i := slices.IndexFunc(w.facts.Stored, func(s billing.Period) bool { return s.Start.Equal(p.Start) })
		if i < 0 {
			w.batch.Queue(`insert into billing_periods (tenant_id, customer_id, stream, starts_at, ends_at, bills) values ($1, $2, $3, $4, $5, $6)`,
				w.tenant, w.facts.Customer.ID, w.facts.Stream, p.Start, p.End, p.Bills)
		}
		if i >= 0 && w.facts.Stored[i].Bills != p.Bills {
			w.batch.Queue(`update billing_periods set bills = $3 where tenant_id = $1 and id = $2`, w.tenant, p.ID, p.Bills)
		}
		if i >= 0 && !w.facts.Stored[i].End.Equal(p.End) {
			w.batch.Queue(`update billing_periods set ends_at = $3 where tenant_id = $1 and id = $2`, w.tenant, p.ID, p.End)
		}
		s, former := p.Subscription, billing.Subscription{}
		if i >= 0 {
			former = w.facts.Stored[i].Subscription
		}
		if s.ID == "" || former.ID == s.ID && former.Range == s.Range && former.Connection == s.Connection && former.Trial == s.Trial && former.SamePrices(s) {
			continue
		}
		w.batch.Queue(`
			update billing_periods
			set subscription = $4, subscription_start = $5, subscription_end = $6, trial = $7, prices = $8, subscription_connection = nullif($9::bigint, 0)
			where tenant_id = $1
			  and customer_id = $2
			  and stream = $10
			  and starts_at = $3`, w.tenant, w.facts.Customer.ID, p.Start, s.ID, s.Start, s.End, s.Trial, hashesOf(s.Prices), s.Connection, w.facts.Stream)
	}
}

// bookings queues the adjustments of closed periods.
func (w *planWriter) bookings(all []billing.Booking) {
	for _, b := range all {
		w.batch.Queue(`
			insert into billing_adjustments
			  (tenant_id, customer_id, period_id, meter_id, event_count, units_before, units, dimensions, charge_before, charge, currency, billed, recorded_at)
			select @tenant, @customer, p.id, @meter, @events, @units_before, @units, @dimensions, @charge_before, @charge, @currency, @billed, @now
			from billing_periods p
			where p.tenant_id = @tenant
			  and p.customer_id = @customer
			  and p.stream = @stream
			  and p.starts_at = @period`, pgx.NamedArgs{
			"tenant": w.tenant, "customer": w.customer, "stream": w.facts.Stream, "period": b.Period, "meter": b.MeterID, "events": b.Events, "units_before": b.UnitsBefore,
			"units": b.Units, "dimensions": b.Dimensions, "charge_before": b.ChargeBefore, "charge": b.Charge, "currency": b.Currency, "billed": b.Billed, "now": w.facts.Now,
		})
	}
}

// endFormerReports ends the reports to previous connections and subscriptions. It rejects unsent reports,
// because they were not billed there. It marks reports that may have arrived as in_doubt; these are treated as
// billed. The plan already includes both effects.
func (w *planWriter) endFormerReports(plan billing.ReportPlan) {
	const recordOutcome = decided + ` select count(*) from completed`
	if len(plan.Withdraw) > 0 {
		w.batch.Queue(recordOutcome, w.tenant, plan.Withdraw, billing.Rejected, "withdrawn: the provider or the subscription was replaced before the report was sent", w.facts.Now, anyAttempt)
	}
	if len(plan.Doubt) > 0 {
		w.batch.Queue(recordOutcome, w.tenant, plan.Doubt, billing.InDoubt, "the provider was replaced before it answered", w.facts.Now, anyAttempt)
	}
}

// resolve records the outcomes that final invoices show for reports. It resets watermarks as
// completeReports does.
func (w *planWriter) resolve(all []billing.Resolved) {
	for _, r := range all {
		response := "a final invoice bills the reported total without this report"
		if r.State == billing.Accepted {
			response = "a final invoice bills the reported total with this report"
		}
		w.batch.Queue(completeReports, w.tenant, []uuid.UUID{r.ID}, r.State, response, w.facts.Now, anyAttempt)
	}
}

// watermarks queues, per open period, the number of events and the configuration that the provider's data
// reflects once the planned reports are accepted.
func (w *planWriter) watermarks(reported []billing.PeriodWatermark) {
	for _, p := range reported {
		w.batch.Queue(`
			update billing_periods
			set watermark_events = $4, watermark_configuration = $5
			where tenant_id = $1
			  and customer_id = $2
			  and stream = $6
			  and starts_at = $3`, w.tenant, w.facts.Customer.ID, p.Start, p.Events, p.Configuration, w.facts.Stream)
	}
}

// scheduleReplan stores the next instant at which a plan of the customer's schedules can change without a new fact. It
// also stores HeadOpenUntil, the time until which an event can move the start of the first period to an earlier instant.
// Only a caller that sends the reports of the plans may postpone the re-evaluation. For other callers, sends is false.
func scheduleReplan(plans []streamPlan, sends bool) {
	var at time.Time
	for _, p := range plans {
		at = metering.Sooner(at, p.ReplanAt)
	}
	var when *time.Time
	if !at.IsZero() {
		when = &at
	}
	const next = `least($3::timestamptz, case when not $5 then look_again_at end)` // least ignores null
	w := plans[0]
	w.batch.Queue(`
		update customers
		set look_again_at = `+next+`, head_open_until = $4
		where tenant_id = $1
		  and id = $2
		  and (look_again_at is distinct from `+next+` or head_open_until is distinct from $4)`, w.tenant, w.customer, when, w.HeadOpenUntil, sends)
}

// write stores the plan's reports in the planning transaction.
func (w *planWriter) write(plan billing.ReportPlan, frame Frame) (planned Planned, err error) {
	if w.facts.Connection == nil {
		return planned, errNoProvider
	}
	planned = Planned{ReadFirst: plan.ReadFirst, More: plan.More, UpToDate: plan.UpToDate, Excluded: plan.Excluded}
	if planned.Send, err = w.resumed(plan.Resume); err != nil {
		return planned, err
	}
	if len(plan.Reports) > 0 {
		w.destination(plan.Reports[0].Series) // all reports of a plan have one destination
	}
	for _, r := range plan.Reports {
		report, err := w.report(r, frame)
		if err != nil {
			return planned, err
		}
		planned.Send = append(planned.Send, report)
	}
	return planned, w.reconcile(plan)
}

// resumed reads the reports with these IDs, which an earlier plan stored.
func (w *planWriter) resumed(ids []uuid.UUID) ([]Report, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := w.tx.Query(w.ctx, `
		select r.id, r.number, s.kind, coalesce(s.meter_id, 0), s.method, r.quantity, p.starts_at, p.ends_at,
		  case when s.late then s.window_end else p.ends_at end
		from billing_reports r
		join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id
		join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id
		where r.tenant_id = $1
		  and r.id = any($2)
		order by r.number`, w.tenant, ids)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Report, err error) {
		err = row.Scan(&r.ID, &r.Number, &r.Kind, &r.Meter, &r.Method, &r.Quantity, &r.Period.Start, &r.Period.End, &r.Deadline)
		r.Deadline = r.Deadline.Add(w.facts.Settings.Grace)
		return r, err
	})
}

// report queues a report with its body, under the customer's next number.
func (w *planWriter) report(r billing.Report, frame Frame) (Report, error) {
	id := r.Lost
	if id == uuid.Nil {
		var err error
		if id, err = uuid.NewV7(); err != nil {
			return Report{}, err
		}
	}
	w.lastNumber = max(w.lastNumber, w.facts.Epoch*numbersOfEpoch) + 1
	written := Report{ID: id, Number: w.lastNumber, Kind: r.Kind, Method: r.Method, Period: r.Of, Deadline: r.Deadline}
	if len(r.Lines) > 0 && r.Kind != billing.StatementReport {
		written.Meter, written.Quantity = r.Lines[0].MeterID, &r.Quantity
	}
	framed, err := frame(w.kind, w.message(written, r))
	if err != nil {
		return Report{}, err
	}
	args := w.seriesArgs(r.Series, written.Meter)
	w.series(r.Kind, args)
	maps.Copy(args, pgx.NamedArgs{
		"id": id, "number": written.Number, "quantity": written.Quantity, "body": framed.Body, "provider_time": nil, "now": w.facts.Now, "epoch": w.facts.Epoch,
		"subscription": r.To.Subscription, "subscription_start": nil,
	})
	if r.To.Subscription != "" {
		args["subscription_start"] = r.To.Start
	}
	if !framed.Timestamp.IsZero() {
		args["provider_time"] = framed.Timestamp
	}
	w.batch.Queue(`
		insert into billing_reports (tenant_id, id, customer_id, number, series_id, period_id, quantity, body, provider_time, subscription, subscription_start, ledger_epoch, recorded_at)
		select @tenant, @id, @customer, @number, s.id, p.id, @quantity, @body, @provider_time, @subscription, @subscription_start, @epoch, @now
		from billing_destinations d
		join billing_periods p on p.tenant_id = d.tenant_id and p.customer_id = d.customer_id and p.stream = @stream and p.starts_at = @period
		cross join lateral (`+seriesAt+` and `+seriesOf(r.Kind)+` offset 0) s
		where `+destinationOf, args)
	w.lines(id, r)
	return written, nil
}

// message returns the report with the context that its receiver gets: customer, meter, periods and number.
func (w *planWriter) message(written Report, r billing.Report) billing.Message {
	m := billing.Message{
		Report: r, ID: written.ID, TenantID: w.tenant, CustomerID: w.customer, CustomerExternalID: w.facts.Customer.ExternalID, Stream: w.facts.Stream, Sequence: written.Number, Epoch: w.facts.Epoch,
		Timezone: w.facts.Settings.Timezone, Now: w.facts.Now,
	}
	for _, p := range w.facts.Stored {
		m.Periods = append(m.Periods, p.Range)
	}
	if i := slices.IndexFunc(w.facts.Meters, func(m metering.Meter) bool { return m.ID == written.Meter }); i >= 0 {
		m.Meter = w.facts.Meters[i]
	}
	return m
}

// destinationOf and seriesOf are the SQL conditions that find the destination and the series of a report.
const destinationOf = `d.tenant_id = @tenant
		  and d.customer_id = @customer
		  and d.connection_id = @connection
		  and d.provider_customer = @at_provider`

func seriesOf(k billing.Kind) string {
	const named = `s.kind = @kind and s.target = @target and s.method = @method`
	if k == billing.StatementReport || k == billing.ActionReport {
		return named + ` and s.meter_id is null`
	}
	return named + ` and s.meter_id = @meter and s.period_id = p.id and s.window_start = @window_start`
}

func (w *planWriter) seriesArgs(s billing.Series, meter metering.MeterID) pgx.NamedArgs {
	return pgx.NamedArgs{
		"tenant": w.tenant, "customer": w.customer, "stream": w.facts.Stream, "connection": s.Connection, "at_provider": s.Customer, "kind": s.Kind, "target": s.Target,
		"method": s.Method, "counting": s.Counting, "meter": meter, "period": s.Period, "window_start": s.Window.Start, "window_end": s.Window.End, "late": s.Late,
	}
}

// destination queues the destination of a series, which is stored if it is new.
func (w *planWriter) destination(s billing.Series) {
	w.batch.Queue(`
		insert into billing_destinations (tenant_id, customer_id, connection_id, provider_customer)
		values ($1, $2, $3, $4)
		on conflict (tenant_id, customer_id, connection_id, provider_customer) do nothing`, w.tenant, w.customer, s.Connection, s.Customer)
}

// series queues a series, which is stored if it is new.
func (w *planWriter) series(kind billing.Kind, args pgx.NamedArgs) {
	of := `p.id, @window_start::timestamptz, @window_end::timestamptz, @meter::bigint`
	if kind == billing.StatementReport || kind == billing.ActionReport {
		of = `null, null, null, null`
	}
	w.batch.Queue(`
		insert into billing_series (tenant_id, destination_id, kind, target, method, counting, late, period_id, window_start, window_end, meter_id)
		select @tenant, d.id, @kind, @target, @method, @counting, @late, `+of+`
		from billing_destinations d
		join billing_periods p on p.tenant_id = d.tenant_id and p.customer_id = d.customer_id and p.stream = @stream and p.starts_at = @period
		where `+destinationOf+`
		on conflict (tenant_id, destination_id, kind, target, method, component, meter_id, period_id, segment, window_start) do nothing`, args)
}

// lines queues the lines of a report, one per meter and component.
func (w *planWriter) lines(id uuid.UUID, r billing.Report) {
	for i, l := range r.Lines {
		period, late := r.Period, l.Component() == billing.AdjustmentComponent
		if late {
			period = l.Closed
		}
		w.batch.Queue(`
			insert into billing_report_lines
			  (tenant_id, report_id, line, meter_id, period_id, late, usage, event_count, quantity, price_version, terms, unit_price, charge, amount, currency)
			select @tenant, @id, @line, @meter, p.id, @late, @usage, @events, @quantity, @price_version, coalesce(@provider_terms::bytea, `+catalog.TermsOf+`), @unit_price, @charge, @amount, @currency
			from billing_periods p
			where p.tenant_id = @tenant
			  and p.customer_id = @customer
			  and p.stream = @stream
			  and p.starts_at = @period`, pgx.NamedArgs{
			"tenant": w.tenant, "customer": w.customer, "stream": w.facts.Stream, "id": id, "line": i + 1, "meter": l.MeterID, "period": period, "late": late,
			"usage": l.Usage, "events": l.Events, "quantity": l.Quantity, "price_version": l.PriceVersion, "provider_terms": termsHash(l.Price),
			"unit_price": l.UnitPrice, "charge": l.Charge, "amount": l.Amount, "currency": l.Currency,
		})
	}
}
