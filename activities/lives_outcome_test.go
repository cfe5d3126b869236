package activities_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/metering"
)

// outcome returns the final state of the life.
func (l *life) outcome() lives.Outcome {
	return lives.Outcome{Reports: l.reports(), Periods: l.periods(), Received: l.receiver.all()}
}

// reports returns the stored reports with their lines.
func (l *life) reports() []lives.Report {
	reports := collect(l, func(row pgx.CollectableRow) (r lives.Report, err error) {
		var account string
		err = row.Scan(&r.Number, &r.Kind, &account, &r.Period, &r.Quantity, &r.State, &r.Attempts)
		r.Connection, r.Period = connectionOf(account), r.Period.UTC()
		return r, err
	}, `
		select r.number, s.kind, c.account || c.address, p.starts_at, r.quantity, r.state, r.attempts
		from billing_reports r
		join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id
		join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
		join billing_connections c on c.tenant_id = d.tenant_id and c.id = d.connection_id
		join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id
		where r.tenant_id = $1
		order by r.number`, l.tenant)
	for i := range reports {
		reports[i].Lines = collect(l, l.line, `
			select l.meter_id, l.late, p.starts_at, l.usage, l.event_count, l.quantity, l.price_version, l.unit_price, l.charge, l.amount, l.currency
			from billing_report_lines l
			join billing_reports r on r.tenant_id = l.tenant_id and r.id = l.report_id
			join billing_periods p on p.tenant_id = l.tenant_id and p.id = l.period_id
			where l.tenant_id = $1
			  and r.number = $2`, l.tenant, reports[i].Number)
		lives.SortLines(reports[i].Lines)
	}
	return reports
}

// line returns a row of a report's lines as a recorded life contains it.
func (l *life) line(row pgx.CollectableRow) (line lives.Line, err error) {
	var late bool
	var period time.Time
	var meter metering.MeterID
	err = row.Scan(&meter, &late, &period, &line.Usage, &line.Events, &line.Quantity, &line.PriceVersion, &line.UnitPrice, &line.Charge, &line.Amount, &line.Currency)
	if line.Meter = l.meterOf(meter); late {
		period = period.UTC()
		line.Closed = &period
	}
	return line, err
}

// periods returns the stored periods with their closed lines.
func (l *life) periods() []lives.Period {
	periods := collect(l, func(row pgx.CollectableRow) (p lives.Period, err error) {
		err = row.Scan(&p.Start, &p.End, &p.ClosedAt)
		if p.Start, p.End = p.Start.UTC(), p.End.UTC(); p.ClosedAt != nil {
			*p.ClosedAt = p.ClosedAt.UTC()
		}
		return p, err
	}, `select starts_at, ends_at, closed_at from billing_periods where tenant_id = $1 and customer_id = $2 order by starts_at`, l.tenant, l.customer)
	for i := range periods {
		lines := collect(l, func(row pgx.CollectableRow) (c lives.ClosedLine, err error) {
			err = row.Scan(&c.Meter, &c.Usage, &c.Events, &c.PriceVersion, &c.Charge, &c.Currency, &c.Billed, &c.Scale)
			c.Meter = l.meterOf(c.Meter)
			return c, err
		}, `
			select t.meter_id, t.usage, t.event_count, t.price_version, t.charge, t.currency, t.billed, t.scale
			from billing_period_totals t
			join billing_periods p on p.tenant_id = t.tenant_id and p.id = t.period_id
			where t.tenant_id = $1
			  and p.customer_id = $2
			  and p.starts_at = $3`, l.tenant, l.customer, periods[i].Start)
		slices.SortFunc(lines, func(a, b lives.ClosedLine) int { return cmp.Compare(a.Meter, b.Meter) })
		periods[i].Lines = lines
	}
	return periods
}

// collect returns the rows of a query.
func collect[T any](l *life, scan pgx.RowToFunc[T], sql string, args ...any) []T {
	l.Helper()
	rows, err := l.pool.Query(l.Context(), sql, args...)
	require.NoError(l, err)
	all, err := pgx.CollectRows(rows, scan)
	require.NoError(l, err)
	return all
}

// all returns the last statement of each connection and period.
func (r *receiver) all() (all []lives.Statement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, number := range r.latest {
		all = append(all, lives.Statement{Connection: of.connection, Period: of.period.UTC(), Number: number})
	}
	slices.SortFunc(all, func(a, b lives.Statement) int {
		return cmp.Or(cmp.Compare(a.Connection, b.Connection), a.Period.Compare(b.Period))
	})
	return all
}
