package ledger

import (
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// PeriodReport is a report by which a billing period is billed: a statement, a quantity, a charge
// (including one for late usage of an earlier period), or the action that finalizes a standalone invoice.
type PeriodReport struct {
	billing.Series
	ID       uuid.UUID
	Number   int64 // position among the customer's reports; the sequence of a statement
	Provider metering.ProviderKind
	State    billing.State
	Quantity *metering.Decimal // units; an amount for a charge; nil for a statement or an invoice action
	Attempts int
	Response string // result of the last attempt
	Lines    []PeriodReportLine

	RecordedAt   time.Time
	FirstSentAt  *time.Time
	ProviderTime *time.Time // timestamp sent with the report
	DecidedAt    *time.Time
}

// PeriodReportLine is the part of a PeriodReport about one meter.
type PeriodReportLine struct {
	billing.Line
	Of metering.Range // billing period of the usage
}

// reportsOf returns a page of the reports by which the period is billed, newest first.
func (r *factReader) reportsOf(period billing.Period, page ReportPage) (pg.Page[PeriodReport], error) {
	rows, err := r.q.Query(r.ctx, selectPeriodReports, pgx.NamedArgs{
		"tenant": r.tenant, "customer": r.customer, "period": period.ID, "before": page.Before, "limit": page.Limit + 1,
	})
	if err != nil {
		return pg.Page[PeriodReport]{}, err
	}
	reports, err := pgx.CollectRows(rows, scanPeriodReport)
	if err == nil {
		err = r.linesOf(reports)
	}
	if err != nil {
		return pg.Page[PeriodReport]{}, err
	}
	return pg.NewPage(r.ctx, reports, page.Limit, func(p PeriodReport) int { return len(p.Response) + len(p.Lines)*lineBytes }), nil
}

// selectPeriodReports is the SQL of a page of a period's reports. It looks up series by destination or period,
// and reports by series and period. It therefore reads no reports of other periods.
const selectPeriodReports = `
	with billed as (
	  select s.*
	  from billing_series s
	  where s.tenant_id = @tenant
	    and s.period_id = @period
	    and (s.kind = 'quantity' or s.kind = 'charge' and not s.late)
	  union all
	  select s.*
	  from billing_destinations d
	  cross join lateral (` + seriesAt + ` and (s.kind in ('statement', 'invoice_action') or s.late) offset 0) s
	  join billing_periods t on t.tenant_id = d.tenant_id and t.id = @period
	  where d.tenant_id = @tenant
	    and d.customer_id = @customer
	    and (s.kind in ('statement', 'invoice_action') or s.window_start = t.starts_at))
	select r.id, r.number, c.kind, r.state, r.quantity, r.attempts, r.response, r.recorded_at, r.first_sent_at, r.provider_time, r.decided_at,
	  s.kind, d.connection_id, d.provider_customer, s.target, s.method, s.counting, p.starts_at,
	  coalesce(s.window_start, p.starts_at), coalesce(s.window_end, p.ends_at), s.late
	from billed s
	cross join lateral (
	  select *
	  from billing_reports r
	  where r.tenant_id = s.tenant_id
	    and r.series_id = s.id
	    and r.period_id = coalesce(s.period_id, @period)
	    and r.number < @before
	  order by r.number desc
	  limit @limit) r
	join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id
	join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
	join billing_connections c on c.tenant_id = d.tenant_id and c.id = d.connection_id
	order by r.number desc
	limit @limit`

func scanPeriodReport(row pgx.CollectableRow) (p PeriodReport, err error) {
	return p, row.Scan(&p.ID, &p.Number, &p.Provider, &p.State, &p.Quantity, &p.Attempts, &p.Response, &p.RecordedAt, &p.FirstSentAt, &p.ProviderTime, &p.DecidedAt,
		&p.Kind, &p.Connection, &p.Customer, &p.Target, &p.Method, &p.Counting, &p.Period, &p.Window.Start, &p.Window.End, &p.Late)
}

// linesOf adds the lines to the reports. It reads all lines in one statement.
func (r *factReader) linesOf(reports []PeriodReport) error {
	ids := make([]uuid.UUID, len(reports))
	for i := range reports {
		ids[i] = reports[i].ID
	}
	rows, err := r.q.Query(r.ctx, `
		select l.report_id, l.meter_id, m.slug, p.starts_at, p.ends_at, l.late,
		  l.usage, l.event_count, l.quantity, l.price_version, l.unit_price, l.charge, l.amount, l.currency
		from billing_report_lines l
		join billing_periods p on p.tenant_id = l.tenant_id and p.id = l.period_id
		left join meters m on m.tenant_id = l.tenant_id and m.id = l.meter_id
		where l.tenant_id = $1
		  and l.report_id = any($2)
		order by l.line`, r.tenant, ids)
	if err != nil {
		return err
	}
	var (
		report uuid.UUID
		l      PeriodReportLine
		late   bool
	)
	_, err = pgx.ForEachRow(rows, []any{
		&report, &l.MeterID, &l.MeterSlug, &l.Of.Start, &l.Of.End, &late,
		&l.Usage, &l.Events, &l.Quantity, &l.PriceVersion, &l.UnitPrice, &l.Charge, &l.Amount, &l.Currency,
	}, func() error {
		if l.Closed = (time.Time{}); late {
			l.Closed = l.Of.Start
		}
		i := slices.Index(ids, report)
		reports[i].Lines = append(reports[i].Lines, l)
		return nil
	})
	return err
}
