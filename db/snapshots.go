package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Prepared is what there is to tell the provider about a customer.
type Prepared struct {
	Send     *Snapshot   // nil: nothing
	Last     bool        // once Send is settled, nothing is left to tell in this pass
	UpToDate []uuid.UUID // acknowledged snapshots that still hold
	Skipped  []metering.SkippedMeter
}

// Snapshot is one stored message to the provider.
type Snapshot struct {
	ID       uuid.UUID
	Sequence int64
	Period   metering.Range
	Deadline time.Time // until when it is worth trying
	Body     []byte
}

// PrepareSnapshot returns the customer's unsettled snapshot or makes the next
// one, for the oldest unfrozen period that changed since its last acknowledged
// one. Snapshots with a sequence above after belong to the caller's own pass:
// a period that has one is done with, however its usage has grown since, and
// also if it was refused, so that it does not hold back the others.
// Meters to hold stay in it as they were acknowledged last. Everything is read
// at one instant.
func (l Ledger) PrepareSnapshot(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, after int64, now time.Time, hold ...metering.MeterID) (prepared Prepared, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		prepared, err = prepareSnapshot(ctx, tx, tenant, customer, after, now, hold)
		return err
	})
	if err != nil {
		return Prepared{}, fmt.Errorf("prepare snapshot: %w", err)
	}
	return prepared, nil
}

// TakeSnapshot is PrepareSnapshot and MarkSent in one transaction, for a
// caller who sends the snapshot at once.
func (l Ledger) TakeSnapshot(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, after int64, now time.Time, lease time.Duration) (prepared Prepared, d Delivery, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		prepared, err = prepareSnapshot(ctx, tx, tenant, customer, after, now, nil)
		if err == nil && prepared.Send != nil {
			d, err = markSent(ctx, tx, tenant, prepared.Send.ID, now, lease)
		}
		return err
	})
	if err != nil {
		return Prepared{}, Delivery{}, fmt.Errorf("take snapshot: %w", err)
	}
	return prepared, d, nil
}

func prepareSnapshot(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, after int64, now time.Time, hold []metering.MeterID) (Prepared, error) {
	p, err := lockPayer(ctx, tx, tenant, customer)
	if err != nil {
		return Prepared{}, err
	}
	b := bill{ctx: ctx, tx: tx, tenant: tenant, payer: p, now: metering.Instant(now), hold: hold}
	return b.prepare(after)
}

func (b *bill) prepare(after int64) (Prepared, error) {
	provider, err := activeProvider(b.ctx, b.tx, b.tenant)
	if err != nil {
		return Prepared{}, err
	}
	if provider.Kind != metering.Webhook {
		return Prepared{}, metering.Errorf(metering.CodeConflict, "the billing provider was replaced; sync again")
	}
	b.account = provider.Account
	waiting, err := b.unsettled()
	if err != nil || waiting != nil {
		return Prepared{Send: waiting}, err
	}
	if err := b.giveUpEntries(); err != nil {
		return Prepared{}, err
	}
	chain, err := extendPeriods(b.ctx, b.tx, b.tenant, b.payer, b.now)
	if err != nil {
		return Prepared{}, err
	}
	if b.prices, err = allPrices(b.ctx, b.tx, b.tenant); err != nil {
		return Prepared{}, err
	}
	var result Prepared
	for i, period := range chain {
		if period.ClosedAt != nil {
			continue
		}
		latest, err := b.latest(period)
		if err != nil {
			return Prepared{}, err
		}
		all, err := b.figures(period)
		if err != nil {
			return Prepared{}, err
		}
		late, err := b.adjustments(chain, place{mechanism: metering.Adjusted, window: period.Range}, latest.lines)
		if err != nil {
			return Prepared{}, err
		}
		if err := b.holdBack(period, all, late); err != nil {
			return Prepared{}, err
		}
		covered, err := b.coverage(period)
		if err != nil {
			return Prepared{}, err
		}
		result.skip(all)
		lines, late := toTell(all), toTell(late)
		ours, same := latest.sequence > after, sameLines(latest.lines, append(lines, late...))
		switch {
		case ours && latest.status == Rejected:
			continue
		case len(lines) == 0:
			err = b.cover(period, covered) // there is nothing to tell
		case latest.status == Acknowledged && same:
			result.UpToDate = append(result.UpToDate, latest.id)
			err = b.cover(period, covered)
		case latest.status == Acknowledged && ours:
			result.UpToDate = append(result.UpToDate, latest.id)
		default:
			result.Last = i == len(chain)-1
			result.Send, err = b.store(period, provider.ID, lines, late, covered)
			return result, err
		}
		if err != nil {
			return Prepared{}, err
		}
	}
	return result, nil
}

// holdBack puts the held meters' figures back to what the provider has
// acknowledged last; one that it was never told of is left out.
func (b *bill) holdBack(period metering.Period, groups ...[]line) error {
	if len(b.hold) == 0 {
		return nil
	}
	known, err := b.lastTold(period, Acknowledged)
	if err != nil {
		return err
	}
	for _, all := range groups {
		for i, l := range all {
			if slices.Contains(b.hold, l.meter) {
				all[i] = known.of(l)
			}
		}
	}
	return nil
}

// of is a held line as it was told.
func (t told) of(l line) line {
	for _, before := range t.lines {
		if before.sameSeries(l) {
			before.slug, before.closed = l.slug, l.closed
			return before
		}
	}
	l.skipped = skippedHeld
	return l
}

// toTell are the lines that go out, in the order of their meters.
func toTell(all []line) []line {
	var lines []line
	for _, l := range all {
		if l.skipped == "" {
			lines = append(lines, l)
		}
	}
	return lines
}

func (p *Prepared) skip(all []line) {
	for _, l := range all {
		known := slices.ContainsFunc(p.Skipped, func(known metering.SkippedMeter) bool { return known.MeterID == l.meter })
		if l.skipped != "" && !known {
			p.Skipped = append(p.Skipped, metering.SkippedMeter{MeterID: l.meter, MeterSlug: l.slug, Reason: l.skipped})
		}
	}
}

// unsettled returns the snapshot that has to be settled before another is
// made. One for an account that has been replaced is given up once nobody is
// sending it: it may or may not have arrived there, and counts as if it had
// not until the receiver's answer turns up.
func (b *bill) unsettled() (*Snapshot, error) {
	var (
		s          Snapshot
		account    string
		leaseUntil *time.Time
	)
	err := b.tx.QueryRow(b.ctx, `
		select s.id, s.sequence, s.body, s.lease_until, r.account, p.starts_at, p.ends_at
		from billing_snapshots s
		join billing_providers r on r.tenant_id = s.tenant_id and r.id = s.provider_id
		join billing_periods p on p.tenant_id = s.tenant_id and p.id = s.period_id
		where s.tenant_id = $1
		  and s.customer_id = $2
		  and s.status in ('prepared', 'sent')`, b.tenant, b.payer.id,
	).Scan(&s.ID, &s.Sequence, &s.Body, &leaseUntil, &account, &s.Period.Start, &s.Period.End)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.Deadline = s.Period.End.Add(b.payer.grace)
	if account == b.account || leaseUntil != nil && leaseUntil.After(b.now) {
		return &s, nil
	}
	return nil, settle(b.ctx, b.tx, b.tenant, s.ID, Rejected, "given up: the provider was replaced", b.now)
}

// told is the last snapshot of a period that was made for the account.
type told struct {
	id       uuid.UUID
	sequence int64
	status   SnapshotStatus
	lines    []line
}

func (b *bill) latest(period metering.Period) (told, error) {
	return b.lastTold(period, Acknowledged, SnapshotPrepared, SnapshotSent, Rejected)
}

func (b *bill) lastTold(period metering.Period, statuses ...SnapshotStatus) (told, error) {
	var t told
	err := b.tx.QueryRow(b.ctx, `
		select s.id, s.sequence, s.status
		from billing_snapshots s
		join billing_providers r on r.tenant_id = s.tenant_id and r.id = s.provider_id
		where s.tenant_id = $1
		  and s.period_id = $2
		  and r.account = $3
		  and s.status = any($4)
		order by s.sequence desc
		limit 1`, b.tenant, period.ID, b.account, statuses).Scan(&t.id, &t.sequence, &t.status)
	if errors.Is(err, pgx.ErrNoRows) {
		return told{}, nil
	}
	if err != nil {
		return told{}, err
	}
	rows, err := b.tx.Query(b.ctx, `
		select case when `+adjusts+` then r.period_id else 0 end, r.meter_id,
		  e.cumulative_total, e.event_count, e.value, e.price_version, e.unit_price, e.charge, e.amount, e.currency
		from billing_entries e
		join billing_series r on r.tenant_id = e.tenant_id and r.id = e.series_id
		join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id
		where e.tenant_id = $1
		  and e.snapshot_id = $2
		order by `+adjusts+`, p.starts_at, r.meter_id`, b.tenant, t.id)
	if err != nil {
		return told{}, err
	}
	t.lines, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l line, err error) {
		err = row.Scan(&l.closed.ID, &l.meter, &l.cumulative, &l.events, &l.value, &l.priceVersion, &l.unitPrice, &l.charge, &l.amount, &l.currency)
		return l, err
	})
	return t, err
}

// store keeps the period's next snapshot with its entries, before anyone is told.
func (b *bill) store(period metering.Period, provider metering.ProviderID, lines, late []line, covered coverage) (*Snapshot, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	s := Snapshot{ID: id, Period: period.Range, Deadline: period.Deadline(b.payer.grace)}
	if s.Sequence, err = lastSequence(b.ctx, b.tx, b.tenant, b.payer.id); err != nil {
		return nil, err
	}
	s.Sequence++
	if s.Body, err = b.body(s, lines, late); err != nil {
		return nil, err
	}
	var batch pgx.Batch
	batch.Queue(`
		insert into billing_snapshots
		  (tenant_id, id, customer_id, sequence, provider_id, period_id, body, prepared_at, covered_events, covered_catalog)
		values (@tenant, @id, @customer, @sequence, @provider, @period, @body, @now, @events, @catalog)`, pgx.NamedArgs{
		"tenant": b.tenant, "id": s.ID, "customer": b.payer.id, "sequence": s.Sequence, "provider": provider,
		"period": period.ID, "body": s.Body, "now": b.now, "events": covered.events, "catalog": covered.catalog,
	})
	for _, l := range append(lines, late...) {
		entry, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		at := place{mechanism: metering.InSnapshot, period: period.ID, window: period.Range}
		if l.closed.ID != 0 {
			at.mechanism, at.period = metering.Adjusted, l.closed.ID
		}
		b.queue(&batch, at, l, message{id: entry, identifier: s.ID.String(), snapshot: &s.ID})
	}
	return &s, b.tx.SendBatch(b.ctx, &batch).Close()
}

func (b *bill) body(s Snapshot, lines, late []line) ([]byte, error) {
	currencies := make([]string, len(lines))
	for i, l := range lines {
		currencies[i] = l.currency
	}
	snapshot := metering.Snapshot{
		TenantID: b.tenant.String(), CustomerExternalID: b.payer.externalID,
		Period:   metering.SnapshotPeriod{Start: s.Period.Start.UTC(), End: s.Period.End.UTC()},
		Sequence: s.Sequence, Currency: b.inCommon(currencies),
	}
	for _, l := range lines {
		snapshot.Meters = append(snapshot.Meters, metering.SnapshotLine{
			MeterID: l.meter.String(), MeterSlug: l.slug, Usage: l.value, UnitPrice: l.unitPrice, Amount: l.amount, Currency: l.currency,
		})
	}
	for _, l := range late {
		snapshot.Adjustments = append(snapshot.Adjustments, l.adjustment())
	}
	return snapshot.Message(b.now)
}

// adjustment is how a line of a closed period is told.
func (l line) adjustment() metering.Adjustment {
	return metering.Adjustment{
		Period:  metering.SnapshotPeriod{Start: l.closed.Start.UTC(), End: l.closed.End.UTC()},
		MeterID: l.meter.String(), MeterSlug: l.slug, Usage: l.value, UnitPrice: l.unitPrice, Amount: l.amount, Currency: l.currency,
	}
}

// lastSequence is the highest sequence that the customer's snapshots have used.
func lastSequence(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID) (sequence int64, err error) {
	err = q.QueryRow(ctx, `
		select coalesce(max(sequence), 0)
		from billing_snapshots
		where tenant_id = $1
		  and customer_id = $2`, tenant, customer).Scan(&sequence)
	return sequence, err
}
