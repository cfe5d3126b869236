package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// streams reads the billing facts of each of the customer's billing schedules from one snapshot.
func (l Ledger) streams(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (streams []*factReader, err error) {
	err = pg.AtOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		streams, err = readStreams(ctx, tx, l.read, tenant, customer, now)
		return err
	})
	return streams, err
}

// Books returns the books of each of the customer's billing schedules, ordered by schedule number, at one instant. It
// returns CodeNotFound if the customer does not exist.
func (l Ledger) Books(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (books []*billing.Books, err error) {
	streams, err := l.streams(ctx, tenant, customer, now)
	if err != nil {
		return nil, fmt.Errorf("read billing facts: %w", err)
	}
	for _, r := range streams {
		books = append(books, r.books())
	}
	return books, nil
}

// lineBytes is the approximate size of a statement's line.
const lineBytes = 512

// Statements returns up to limit statements of the customer's billing periods, newest first. It returns only periods
// that precede the given position. If periods have the same start, the one with the highest stream number comes first.
// Open periods are computed as of now.
func (l Ledger) Statements(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, before billing.PeriodPlace, limit int, now time.Time) (list pg.Page[billing.Statement], err error) {
	err = pg.AtOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		streams, err := readStreams(ctx, tx, l.read, tenant, customer, now)
		if err != nil {
			return err
		}
		var page []billing.Period
		for _, read := range streams {
			for _, p := range billing.ExpectedPeriods(read.facts) {
				if p.Place().Before(before) && read.facts.Shows(p) {
					page = append(page, p)
				}
			}
		}
		slices.SortFunc(page, func(a, b billing.Period) int { return b.Place().Compare(a.Place()) })
		statements, err := statementsOf(streams, page[:min(limit+1, len(page))])
		if err != nil {
			return err
		}
		list = pg.NewPage(ctx, statements, limit, func(s billing.Statement) int { return len(s.Lines) * lineBytes })
		return nil
	})
	if err != nil {
		return list, fmt.Errorf("read billing periods: %w", err)
	}
	return list, nil
}

// StatementsEnding returns the statements of the customer's billing periods that end in a month, oldest first.
// A period that ends at the first instant of a month belongs to the month before.
func (l Ledger) StatementsEnding(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, month metering.Range, now time.Time) (statements []billing.Statement, err error) {
	err = pg.AtOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		streams, err := readStreams(ctx, tx, l.read, tenant, customer, now)
		if err != nil {
			return err
		}
		var ending []billing.Period
		for _, read := range streams {
			for _, p := range billing.ExpectedPeriods(read.facts) {
				if month.Start.Before(p.End) && !p.End.After(month.End) && read.facts.Shows(p) {
					ending = append(ending, p)
				}
			}
		}
		slices.SortFunc(ending, func(a, b billing.Period) int { return a.Place().Compare(b.Place()) })
		statements, err = statementsOf(streams, ending)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read statements: %w", err)
	}
	return statements, nil
}

// statementsOf returns the statements of billing periods. streams are all billing schedules of the customer.
func statementsOf(streams []*factReader, periods []billing.Period) ([]billing.Statement, error) {
	for _, read := range streams {
		var shown []metering.Range
		for _, p := range periods {
			if p.Stream == read.facts.Stream {
				shown = append(shown, p.Range)
			}
		}
		if err := read.alsoTotalsOf(shown...); err != nil {
			return nil, err
		}
	}
	books := make([]*billing.Books, len(streams))
	for i, read := range streams {
		books[i] = read.books()
	}
	statements := make([]billing.Statement, 0, len(periods))
	for _, p := range periods {
		statements = append(statements, books[p.Stream].StatementOf(p))
	}
	return statements, nil
}

// StatementOf returns the statement of one of the customer's billing periods. In each billing schedule, it considers
// the oldest period that matches the predicate. It prefers a schedule to which the meter belongs in that period, and
// then the schedule with the lowest number. In addition to the periods of Statements, it considers the current calendar
// period until the first billing period begins. It fails with CodeNotFound if no period matches.
func (l Ledger) StatementOf(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, meter metering.MeterID, matches func(billing.Period) bool, now time.Time) (s billing.Statement, err error) {
	err = pg.AtOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		s, _, err = statementOf(ctx, tx, l.read, tenant, customer, meter, matches, now)
		return err
	})
	if err != nil {
		return billing.Statement{}, fmt.Errorf("read statement: %w", err)
	}
	return s, nil
}

// statementOf is StatementOf, and also returns the facts of the schedule.
func statementOf(ctx context.Context, q pg.Batcher, read ReadPrice, tenant metering.TenantID, customer metering.CustomerID, meter metering.MeterID, matches func(billing.Period) bool, now time.Time) (s billing.Statement, of *factReader, err error) {
	streams, err := readStreams(ctx, q, read, tenant, customer, now)
	if err != nil {
		return s, nil, err
	}
	var period billing.Period
	for _, fed := range []bool{true, false} {
		for _, stream := range streams {
			p, found := stream.periodOf(matches)
			if of == nil && found && (!fed || len(stream.facts.FedIn(meter, []metering.Range{p.Range})) > 0) {
				period, of = p, stream
			}
		}
	}
	if of == nil {
		return s, nil, errNoPeriod
	}
	if err := of.alsoTotalsOf(period.Range); err != nil {
		return s, nil, err
	}
	return of.books().StatementOf(period), of, nil
}

// periodOf returns the schedule's oldest period that matches the predicate.
func (r *factReader) periodOf(matches func(billing.Period) bool) (p billing.Period, found bool) {
	periods := append(billing.ExpectedPeriods(r.facts), billing.Period{Range: billing.CurrentPeriod(r.facts), Stream: r.facts.Stream})
	i := slices.IndexFunc(periods, matches)
	if i < 0 {
		return p, false
	}
	return periods[i], true
}

var errNoPeriod = metering.Errorf(metering.CodeNotFound, "there is no such billing period")

// PeriodStatement is the statement of a stored period, with the reports that bill it.
type PeriodStatement struct {
	CustomerID metering.CustomerID
	ExternalID string
	billing.Statement
	Reports pg.Page[PeriodReport]
}

// ReportPage selects up to Limit reports with numbers below Before, newest first.
type ReportPage struct {
	Before int64
	Limit  int
}

// Statement returns the statement of a stored period, with a page of the reports that bill it, or
// CodeNotFound.
func (l Ledger) Statement(ctx context.Context, tenant metering.TenantID, period metering.PeriodID, page ReportPage, now time.Time) (s PeriodStatement, err error) {
	err = pg.AtOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		s, err = readStatement(ctx, tx, l.read, tenant, period, page, now)
		return err
	})
	if err != nil {
		return PeriodStatement{}, fmt.Errorf("read statement: %w", err)
	}
	return s, nil
}

func readStatement(ctx context.Context, q pg.Batcher, read ReadPrice, tenant metering.TenantID, period metering.PeriodID, page ReportPage, now time.Time) (s PeriodStatement, err error) {
	err = q.QueryRow(ctx, `select customer_id from billing_periods where tenant_id = $1 and id = $2`, tenant, period).Scan(&s.CustomerID)
	if errors.Is(err, pgx.ErrNoRows) {
		return s, errNoPeriod
	}
	if err != nil {
		return s, err
	}
	var facts *factReader
	s.Statement, facts, err = statementOf(ctx, q, read, tenant, s.CustomerID, 0, func(p billing.Period) bool { return p.ID == period }, now)
	if err != nil {
		return s, err
	}
	s.ExternalID = facts.facts.Customer.ExternalID
	s.Reports, err = facts.reportsOf(s.Period, page)
	return s, err
}

// Schedules returns the facts of each of the customer's billing schedules, ordered by schedule number. It returns
// CodeNotFound if the customer does not exist.
func (l Ledger) Schedules(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (schedules []billing.Facts, err error) {
	streams, err := l.streams(ctx, tenant, customer, now)
	if err != nil {
		return nil, fmt.Errorf("read billing periods: %w", err)
	}
	for _, read := range streams {
		schedules = append(schedules, read.facts)
	}
	return schedules, nil
}

// CurrentPeriod returns the current billing period of the customer's first billing schedule. The period need not be
// stored yet. If no billing period contains now, CurrentPeriod returns the calendar month.
func (l Ledger) CurrentPeriod(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (metering.Range, error) {
	schedules, err := l.Schedules(ctx, tenant, customer, now)
	if err != nil {
		return metering.Range{}, err
	}
	return billing.CurrentPeriod(schedules[0]), nil
}

// Preview returns the lines of the customer's bill as if the current periods of all its billing schedules ended
// now. It includes charges for late usage of closed periods. All figures are from one snapshot.
func (l Ledger) Preview(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (lines []billing.PreviewLine, err error) {
	err = pg.AtOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		streams, err := readStreams(ctx, tx, l.read, tenant, customer, now)
		if err != nil {
			return err
		}
		books := make([]*billing.Books, len(streams))
		for i, read := range streams {
			// readStreams may not have read the usage of the current period, which may be closed or precede the
			// first period.
			if err := read.alsoTotalsOf(billing.CurrentPeriod(read.facts)); err != nil {
				return err
			}
			books[i] = read.books()
		}
		lines = billing.PreviewAll(books)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("preview: %w", err)
	}
	return lines, nil
}
