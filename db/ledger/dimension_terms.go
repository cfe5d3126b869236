package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// closedTerms calls add for each price by dimension that can charge late usage of a closed period, with the
// terms of the price.
func (b *unratedBatch) closedTerms(add func(metering.CustomerID, billing.DimensionTerms)) error {
	rows, err := b.tx.Query(b.ctx, `
		select p.customer_id, t.meter_id, p.starts_at, p.ends_at, x.hash, x.terms
		from billing_periods p
		join billing_period_totals t on t.tenant_id = p.tenant_id and t.period_id = p.id and not t.trial
		join price_terms x on x.tenant_id = t.tenant_id and x.hash = t.terms and x.schema = 1 and x.terms ? 'dimensions'
		where p.tenant_id = @tenant
		  and p.customer_id = any(@customers)
		  and p.closed_at is not null
		  and p.bills <> 'quantities'
		  and t.late_count is null -- late usage is counted`, pgx.NamedArgs{"tenant": b.tenant, "customers": b.ids})
	if err != nil {
		return err
	}
	var (
		customer    metering.CustomerID
		of          billing.DimensionTerms
		hash, terms []byte
	)
	read := make(map[string]billing.Terms) // terms by hash, because most periods have the terms of the previous one
	_, err = pgx.ForEachRow(rows, []any{&customer, &of.MeterID, &of.Period.Start, &of.Period.End, &hash, &terms}, func() error {
		known, found := read[string(hash)]
		if !found {
			if err := json.Unmarshal(terms, &known); err != nil {
				return err
			}
			read[string(hash)] = known
		}
		of.Terms = known
		add(customer, of)
		return nil
	})
	return err
}

// DimensionTerms returns the terms of the prices by dimension that charge usage that arrives now, keyed by
// external ID of the customer. They are the terms for usage of open periods, and for late usage of closed
// periods.
func (s Unrated) DimensionTerms(ctx context.Context, tenant metering.TenantID, externalIDs []string, now time.Time) (terms map[string][]billing.DimensionTerms, err error) {
	err = s.withReader(ctx, tenant, now, now, func(r *unratedReader) error {
		terms = make(map[string][]billing.DimensionTerms)
		return r.eachNamed(externalIDs, func(batch *unratedBatch) error {
			if err := batch.severalStreams(); err != nil {
				return err
			}
			for _, id := range batch.ids {
				terms[batch.facts[id].Customer.ExternalID] = nil
			}
			for _, s := range batch.schedules() {
				name := s.Facts.Customer.ExternalID
				for _, p := range s.Periods {
					terms[name] = append(terms[name], r.unrated(*s.Facts).DimensionTerms(p)...)
				}
			}
			return batch.closedTerms(func(id metering.CustomerID, of billing.DimensionTerms) {
				name := batch.facts[int64(id)].Customer.ExternalID
				terms[name] = append(terms[name], of)
			})
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read prices by dimension: %w", err)
	}
	return terms, nil
}
