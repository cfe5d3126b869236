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
		var closed []metering.Range
		for _, p := range slices.Backward(billing.ExpectedPeriods(read.facts)) {
			if len(page) == limit || !p.Start.Before(before) {
				continue
			}
			if page = append(page, p); p.ClosedAt != nil {
				closed = append(closed, p.Range)
			}
		}
		read.facts.Usage = slices.DeleteFunc(read.facts.Usage, func(u billing.Usage) bool {
			return slices.ContainsFunc(closed, func(r metering.Range) bool { return r.Start.Equal(u.Period) })
		})
		if err := read.usageOf(closed); err != nil {
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

// Adjustment is what late usage adds to a closed period.
type Adjustment struct {
	billing.Line
	Period metering.Range // the closed one
}

// Adjustments are what late usage adds to the customer's closed periods, as the
// period that now lies in will bill it: what earlier ones have billed is not
// in it.
func (l Ledger) Adjustments(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (late []Adjustment, err error) {
	read, err := l.facts(ctx, tenant, customer, now)
	if err != nil {
		return nil, fmt.Errorf("work out adjustments: %w", err)
	}
	for _, line := range billing.Adjustments(read.facts) {
		i := slices.IndexFunc(read.facts.Stored, func(p billing.Period) bool { return p.Start.Equal(line.Closed) })
		late = append(late, Adjustment{line, read.facts.Stored[i].Range})
	}
	return late, nil
}
