package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// batchPriceBytes is the maximum size, as JSON, of the own prices of customers that are read together and held in
// memory at once. A batch of one customer may exceed it.
const batchPriceBytes = 4 << 20

// CustomerBatches divides customers into batches with at most batchPriceBytes of own prices each, so that a
// caller can read one batch after another.
func CustomerBatches(ctx context.Context, q pg.Querier, tenant metering.TenantID, customers []int64) ([][]int64, error) {
	batches, err := customerBatches(ctx, q, tenant, `and c.id = any(@customers) order by c.id`, pgx.NamedArgs{"customers": customers})
	if err != nil {
		return nil, fmt.Errorf("divide customers into batches: %w", err)
	}
	return batches, nil
}

// customerBatches divides the customers c for which an SQL condition holds. It adds the argument tenant to args.
func customerBatches(ctx context.Context, q pg.Querier, tenant metering.TenantID, condition string, args pgx.NamedArgs) (batches [][]int64, err error) {
	args["tenant"] = tenant
	rows, err := q.Query(ctx, `
		select c.id, case when `+catalog.IsOwnPriced+` then coalesce(octet_length(`+catalog.OwnPricesOfCustomer+`::text), 0) else 0 end
		from customers c
		where c.tenant_id = @tenant `+condition, args)
	if err != nil {
		return nil, err
	}
	var id, size, filled int64
	_, err = pgx.ForEachRow(rows, []any{&id, &size}, func() error {
		if filled += size; len(batches) == 0 || filled > batchPriceBytes {
			batches, filled = append(batches, nil), size
		}
		last := len(batches) - 1
		batches[last] = append(batches[last], id)
		return nil
	})
	return batches, err
}
