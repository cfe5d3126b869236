package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// Digest is a hash of the customer's events in a closed period that have the event type of a meter. To verify a
// copy of these events, compare the digest of the copy with this digest.
type Digest struct {
	Algorithm string // DigestAlgorithm at the time of the digest
	Value     []byte // 32 bytes
	Events    int64  // number of events
}

// DigestAlgorithm names the algorithm of new digests:
//   - An event is five lines with a line feed between them: its ID, timestamp (UTC, in microseconds), type, value
//     without trailing zeros, and properties as PostgreSQL prints a jsonb, empty if there are none.
//   - The hash of an event is the SHA-256 of these lines.
//   - The hash of a UTC day with events is the SHA-256 of its event hashes, by timestamp and ID.
//   - The digest is the SHA-256 of the hashes of the days, in order.
const DigestAlgorithm = "sha256-events-1"

const eventDigest = `sha256(convert_to(concat_ws(E'\n', e.id, to_char(e.ts at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
	e.event_type, trim_scale(e.value), coalesce(e.properties::text, '')), 'UTF8'))`

// DigestClosed computes the digests of up to limit closed periods that lack them, and returns the number of
// these periods. A digest covers the events that had arrived when the period closed. Ingest does not wait
// for it.
func (l Ledger) DigestClosed(ctx context.Context, limit int) (made int, err error) {
	type period struct {
		Tenant metering.TenantID
		ID     metering.PeriodID
	}
	rows, err := l.pool.Query(ctx, `select distinct tenant_id, period_id from billing_period_totals where digest is null and meter_version_id is not null order by 1, 2 limit $1`, limit)
	if err != nil {
		return 0, fmt.Errorf("find periods without digests: %w", pg.Coded(err))
	}
	periods, err := pgx.CollectRows(rows, pgx.RowToStructByPos[period])
	if err != nil {
		return 0, fmt.Errorf("find periods without digests: %w", pg.Coded(err))
	}
	for _, p := range periods {
		if err := l.digest(ctx, p.Tenant, p.ID); err != nil {
			return made, fmt.Errorf("digest %s: %w", p.ID, pg.Coded(err))
		}
		made++
	}
	return made, nil
}

// digest computes and stores the missing digests of one closed period.
func (l Ledger) digest(ctx context.Context, tenant metering.TenantID, period metering.PeriodID) error {
	return pg.InTx(ctx, l.pool, func(tx pgx.Tx) error {
		if err := pg.AllowLongStatements(ctx, tx); err != nil {
			return err
		}
		var several bool
		err := tx.QueryRow(ctx, `
			select c.streams > 1
			from billing_periods p
			join customers c on c.tenant_id = p.tenant_id and c.id = p.customer_id
			where p.tenant_id = $1
			  and p.id = $2`, tenant, period).Scan(&several)
		if err != nil {
			return err
		}
		of := digestOf{key: "e.event_type", total: "v.event_type"}
		if several { // a meter may belong to the period's billing schedule for only part of the period
			of = digestOf{key: "k.meter_id", total: "v.meter_id", fed: `
			  join billing_period_totals k on k.tenant_id = p.tenant_id and k.period_id = p.id
			  join meter_versions g on g.tenant_id = k.tenant_id and g.id = k.meter_version_id and g.event_type = e.event_type
			    and ` + usage.StreamAt("p.tenant_id", "p.customer_id", "k.meter_id", "e.ts") + ` = p.stream`}
		}
		_, err = tx.Exec(ctx, of.statement(), tenant, period, DigestAlgorithm)
		return err
	})
}

// digestOf holds the SQL that groups events by digest.
type digestOf struct {
	key   string // group of an event
	total string // group of a meter version v
	fed   string // joins of the tables that key needs
}

func (of digestOf) statement() string {
	return `
			with days as (
			  select ` + of.key + ` as key, count(*) as events, sha256(string_agg(` + eventDigest + `, ''::bytea order by e.ts, e.id)) as digest,
			    (e.ts at time zone 'UTC')::date as day
			  from billing_periods p
			  join events e on e.tenant_id = p.tenant_id and e.customer_id = p.customer_id and e.ts >= p.starts_at and e.ts < p.ends_at and e.epoch < p.closed_epoch` + of.fed + `
			  where p.tenant_id = $1
			    and p.id = $2
			  group by ` + of.key + `, day),
			keys as (
			  select key, sum(events) as events, sha256(string_agg(digest, ''::bytea order by day)) as digest
			  from days
			  group by 1)
			update billing_period_totals t
			set digest = coalesce(y.digest, sha256('')), digest_events = coalesce(y.events, 0), digest_algorithm = $3
			from meter_versions v
			left join keys y on y.key = ` + of.total + `
			where t.tenant_id = $1
			  and t.period_id = $2
			  and t.digest is null
			  and v.tenant_id = t.tenant_id
			  and v.id = t.meter_version_id`
}

// Digests returns the digests of a period's meters. A closed period has no digests until a maintenance run has computed
// them.
func (l Ledger) Digests(ctx context.Context, tenant metering.TenantID, period metering.PeriodID) (map[metering.MeterID]Digest, error) {
	rows, err := l.pool.Query(ctx, `
		select meter_id, digest_algorithm, digest, digest_events
		from billing_period_totals
		where tenant_id = $1
		  and period_id = $2
		  and digest is not null`, tenant, period)
	if err != nil {
		return nil, fmt.Errorf("read digests: %w", pg.Coded(err))
	}
	digests := make(map[metering.MeterID]Digest)
	var meter metering.MeterID
	var d Digest
	_, err = pgx.ForEachRow(rows, []any{&meter, &d.Algorithm, &d.Value, &d.Events}, func() error {
		digests[meter], d = d, Digest{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read digests: %w", pg.Coded(err))
	}
	return digests, nil
}
