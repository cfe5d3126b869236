package db

import (
	"context"
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
		read, err = readFacts(ctx, tx, tenant, customer, now)
		return err
	})
	return read, err
}

// Statements returns the customer's billing periods, as they are or would be
// now, with what each comes to, newest first: up to limit of those that begin
// before `before`.
func (l Ledger) Statements(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, before time.Time, limit int, now time.Time) (list []billing.Statement, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		read, err := readFacts(ctx, tx, tenant, customer, now)
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
		read, err := readFacts(ctx, tx, tenant, customer, now)
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
