package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Upkeep is what has to be done to the database now and then, for all tenants.
type Upkeep struct{ pool *pgxpool.Pool }

// MakeChunks makes the chunks of this week and the next two, so that no
// request has to.
func (u Upkeep) MakeChunks(ctx context.Context, now time.Time) error {
	ahead := []time.Time{now, now.Add(eventsChunk), now.Add(2 * eventsChunk)}
	if err := newChunks(u.pool).ensure(ctx, ahead); err != nil {
		return fmt.Errorf("make chunks: %w", err)
	}
	return nil
}

// compressAfter is how old a chunk of events is when it is compressed: by then
// hardly anything is added to it.
const compressAfter = "60 days"

// Refresh brings the second count of usage up to now and compresses old events.
// Both exist only in TimescaleDB's Community edition: community says whether.
func (u Upkeep) Refresh(ctx context.Context, now time.Time) (community bool, err error) {
	if err := u.pool.QueryRow(ctx, `select _timescaledb_functions.tsl_loaded()`).Scan(&community); err != nil || !community {
		return community, coded(err)
	}
	err = u.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if _, err := conn.Exec(ctx, `set statement_timeout = '30min'`); err != nil {
			return err
		}
		defer func() {
			_, _ = conn.Exec(context.WithoutCancel(ctx), fmt.Sprintf(`set statement_timeout = %d`, statementTimeout.Milliseconds()))
		}()
		if _, err := conn.Exec(ctx, `call refresh_continuous_aggregate('usage_daily', null, $1::timestamptz)`, now.Truncate(24*time.Hour)); err != nil {
			return fmt.Errorf("refresh usage_daily: %w", err)
		}
		_, err := conn.Exec(ctx, `
			select compress_chunk(c, if_not_compressed => true)
			from show_chunks('events', older_than => interval '`+compressAfter+`') c`)
		if err != nil {
			return fmt.Errorf("compress events: %w", err)
		}
		return nil
	})
	return community, coded(err)
}
