package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// facts reads what is known about the customer's billing at one instant.
func (l Ledger) facts(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (read *factReader, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		read, err = readFacts(ctx, tx, l.read, tenant, customer, now)
		return err
	})
	return read, err
}

// Statements returns the customer's billing periods, as they are or would be
// now, with what each comes to, newest first: up to limit of those that begin
// before `before`.
func (l Ledger) Statements(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, before time.Time, limit int, now time.Time) (list []billing.Statement, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		read, err := readFacts(ctx, tx, l.read, tenant, customer, now)
		if err != nil {
			return err
		}
		var page []billing.Period
		var shown []metering.Range
		for _, p := range slices.Backward(billing.ExpectedPeriods(read.facts)) {
			if len(page) == limit || !p.Start.Before(before) {
				continue
			}
			page, shown = append(page, p), append(shown, p.Range)
		}
		if err := read.alsoTotalsOf(shown...); err != nil {
			return err
		}
		list = nil
		for _, p := range page {
			list = append(list, billing.StatementOf(read.facts, p))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read billing periods: %w", err)
	}
	return list, nil
}

// StatementOf returns what the first of the customer's billing periods comes to
// that a condition holds of, oldest first: those of Statements, and the calendar's
// period that now lies in where the first has not begun. CodeNotFound where it
// holds of none.
func (l Ledger) StatementOf(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, is func(billing.Period) bool, now time.Time) (s billing.Statement, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		read, err := readFacts(ctx, tx, l.read, tenant, customer, now)
		if err != nil {
			return err
		}
		s, err = read.statementOf(is)
		return err
	})
	if err != nil {
		return billing.Statement{}, fmt.Errorf("read statement: %w", err)
	}
	return s, nil
}

func (r *factReader) statementOf(is func(billing.Period) bool) (billing.Statement, error) {
	periods := append(billing.ExpectedPeriods(r.facts), billing.Period{Range: billing.CurrentPeriod(r.facts)})
	i := slices.IndexFunc(periods, is)
	if i < 0 {
		return billing.Statement{}, errNoPeriod
	}
	if err := r.alsoTotalsOf(periods[i].Range); err != nil {
		return billing.Statement{}, err
	}
	return billing.StatementOf(r.facts, periods[i]), nil
}

var errNoPeriod = metering.Errorf(metering.CodeNotFound, "there is no such billing period")

// PeriodStatement is what a stored period comes to, and the reports by which it
// is billed.
type PeriodStatement struct {
	CustomerID metering.CustomerID
	ExternalID string
	billing.Statement
	Reports []PeriodReport
}

// ReportPage asks for up to Limit reports, newest first, of those whose number
// is below Before.
type ReportPage struct {
	Before int64
	Limit  int
}

// Statement returns what a stored period comes to, and a page of the reports by
// which it is billed, or CodeNotFound.
func (l Ledger) Statement(ctx context.Context, tenant metering.TenantID, period metering.PeriodID, page ReportPage, now time.Time) (s PeriodStatement, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		s, err = readStatement(ctx, tx, l.read, tenant, period, page, now)
		return err
	})
	if err != nil {
		return PeriodStatement{}, fmt.Errorf("read statement: %w", err)
	}
	return s, nil
}

func readStatement(ctx context.Context, q batcher, read ReadPrice, tenant metering.TenantID, period metering.PeriodID, page ReportPage, now time.Time) (s PeriodStatement, err error) {
	err = q.QueryRow(ctx, `select customer_id from billing_periods where tenant_id = $1 and id = $2`, tenant, period).Scan(&s.CustomerID)
	if errors.Is(err, pgx.ErrNoRows) {
		return s, errNoPeriod
	}
	if err != nil {
		return s, err
	}
	facts, err := readFacts(ctx, q, read, tenant, s.CustomerID, now)
	if err != nil {
		return s, err
	}
	s.ExternalID = facts.facts.Customer.ExternalID
	if s.Statement, err = facts.statementOf(func(p billing.Period) bool { return p.ID == period }); err != nil {
		return s, err
	}
	s.Reports, err = facts.reportsOf(s.Period, page)
	return s, err
}

// CurrentPeriod is the customer's billing period that now lies in: the one of
// its stream, or that which the stream would be extended by. Before the first
// begins it is the calendar's.
func (l Ledger) CurrentPeriod(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (metering.Range, error) {
	read, err := l.facts(ctx, tenant, customer, now)
	if err != nil {
		return metering.Range{}, fmt.Errorf("read billing periods: %w", err)
	}
	return billing.CurrentPeriod(read.facts), nil
}

// Preview is the bill of the customer's current period as if that ended now, and
// what late usage adds to closed periods, all of one instant.
func (l Ledger) Preview(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (lines []billing.PreviewLine, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		read, err := readFacts(ctx, tx, l.read, tenant, customer, now)
		if err != nil {
			return err
		}
		// It may lie before the first period, or be closed already.
		if err := read.alsoTotalsOf(billing.CurrentPeriod(read.facts)); err != nil {
			return err
		}
		lines = billing.Preview(read.facts)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("preview: %w", err)
	}
	return lines, nil
}
