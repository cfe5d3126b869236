package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Batcher is a querier that can send several statements in one round trip.
type Batcher interface {
	Querier
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// QueueRows queues a statement, and calls add with each of its rows.
func QueueRows[T any](batch *pgx.Batch, sql string, args []any, scan pgx.RowToFunc[T], add func(T)) {
	QueueEach(batch, sql, args, scan, func(one T) error {
		add(one)
		return nil
	})
}

// QueueEach is QueueRows with an add that can fail.
func QueueEach[T any](batch *pgx.Batch, sql string, args []any, scan pgx.RowToFunc[T], add func(T) error) {
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		all, err := pgx.CollectRows(rows, scan)
		for _, one := range all {
			if err := add(one); err != nil {
				return err
			}
		}
		return err
	})
}
