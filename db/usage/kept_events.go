package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// KeptFrom returns the instant from which events are kept, or the zero time if all events are kept.
func KeptFrom(ctx context.Context, q pg.Querier) (time.Time, error) {
	var kept *time.Time
	err := q.QueryRow(ctx, `select kept_from from event_retention`).Scan(&kept)
	if err != nil || kept == nil {
		return time.Time{}, pg.Coded(err)
	}
	return kept.UTC(), nil
}

// lockEdge returns the instant from which events are kept, like KeptFrom. It locks event_retention, so that the
// instant does not change until the transaction ends.
func lockEdge(ctx context.Context, tx pgx.Tx) (time.Time, error) {
	var kept *time.Time
	err := tx.QueryRow(ctx, `select kept_from from event_retention for share`).Scan(&kept)
	if err != nil || kept == nil {
		return time.Time{}, err
	}
	return kept.UTC(), nil
}

// requireKept returns CodeInvalid if events of a range are no longer kept. Call it after reading the events.
// Retention raises the instant of KeptFrom before it drops events, so requireKept detects that events were
// dropped before or during the read.
func requireKept(ctx context.Context, q pg.Querier, r metering.Range, location string) error {
	edge, err := KeptFrom(ctx, q)
	if err != nil || !r.Start.Before(edge) {
		return err
	}
	return metering.Invalid(location, "must not be before %s; earlier events are no longer kept", edge.Format(time.RFC3339))
}

// requireWhole returns CodeInvalid if the range covers an hour of the zone in part and the events of that hour
// are no longer kept. Call it after reading the range. It does not check reads in a transaction. Billing reads
// in a transaction, and the events of a billing period are kept until the period is closed.
func (u Usage) requireWhole(ctx context.Context, r metering.Range, zone string) error {
	pool, ok := u.q.(*pg.Pool)
	ragged := metering.Split(r, metering.Location(zone)).Ragged
	if !ok || len(ragged) == 0 {
		return nil
	}
	edge, err := KeptFrom(ctx, pool)
	if err != nil || !ragged[0].Start.Before(edge) {
		return err
	}
	location := "query.start"
	if metering.WindowOf(r.Start, metering.Hour, metering.Location(zone)).Start.Equal(r.Start) {
		location = "query.end"
	}
	return metering.Invalid(location, "must be at a full hour in the tenant's time zone, because events before %s are no longer kept", edge.Format(time.RFC3339))
}
