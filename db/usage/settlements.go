package usage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// settlement is the reservation that a batch of events settles. The attempt locks the reservation, and ends it
// in the transaction that stores the events.
type settlement struct {
	id     string // id of the reservation
	digest []byte // digest of the events
	now    time.Time
}

// errSettled reports that the reservation is settled already.
type errSettled struct {
	outcomes []Outcome
	digest   []byte
}

func (errSettled) Error() string { return "the reservation is settled already" }

// Settle stores the events for which a reservation was made, and ends the reservation, in one transaction.
// Like Ingest, it returns one outcome per event. Each event has an idempotency key, such as
// metering.SettledKey. A repeated call with the same events returns the same outcomes; with other events, it
// returns CodeConflict. If a key belongs to an event with other content, or is no longer known, Settle returns
// CodeInvalid and stores nothing. A released or expired reservation can be settled too, because its events must
// be counted in any case.
func (w *Writer) Settle(ctx context.Context, tenant metering.TenantID, reservation string, events []metering.Event, now time.Time) (outcomes []Outcome, repeated bool, err error) {
	if err := w.begin(); err != nil {
		return nil, false, err
	}
	defer w.running.Done()
	digest := sha256.New()
	for _, e := range events {
		digest.Write(slices.Concat([]byte(e.IdempotencyKey), []byte{0}, e.Hash[:])) // no key contains NUL
	}
	ctx, cancel := context.WithTimeout(pg.For(context.WithoutCancel(ctx), tenant), w.options.Deadline)
	defer cancel()
	s := &settlement{reservation, digest.Sum(nil), now}
	outcomes, err = w.persist(ctx, tenant, events, s, func() {})
	var former errSettled
	if !errors.As(err, &former) {
		return outcomes, false, err
	}
	if !bytes.Equal(former.digest, s.digest) {
		return nil, false, metering.Errorf(metering.CodeConflict, "the reservation is settled already, with other events; send further events to POST /v1/events")
	}
	return former.outcomes, true, nil
}

// queueSettled queues the statement that locks the reservation. It sets *into to errSettled if the reservation is
// settled already, or to ErrNoReservation if it does not exist.
func (s *settlement) queueSettled(batch *pgx.Batch, tenant metering.TenantID, into *error) {
	batch.Queue(`select settled, settled_with from quota_reservations where tenant_id = $1 and id = $2 for update`, tenant, s.id).QueryRow(func(row pgx.Row) error {
		var outcomes json.RawMessage
		var former errSettled
		err := row.Scan(&outcomes, &former.digest)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			*into = ErrNoReservation
			return nil
		case err != nil || former.digest == nil:
			return err
		}
		if err := json.Unmarshal(outcomes, &former.outcomes); err != nil {
			return err
		}
		*into = former
		return nil
	})
}

// queueEnd queues the statement that ends the reservation and stores the outcomes of its events.
func (s *settlement) queueEnd(batch *pgx.Batch, tenant metering.TenantID, outcomes []Outcome) error {
	text, err := json.Marshal(outcomes)
	if err != nil {
		return err
	}
	batch.Queue(`
		update quota_reservations
		set ended_at = coalesce(ended_at, $3), settled = $4, settled_with = $5
		where tenant_id = $1 and id = $2`, tenant, s.id, metering.Instant(s.now), text, s.digest)
	return nil
}

// requireStored returns CodeInvalid if an event is not counted because its key belongs to an event with other
// content, or is no longer known.
func requireStored(outcomes []Outcome) error {
	for i, outcome := range outcomes {
		at := fmt.Sprintf("body.events[%d].idempotency_key", i)
		switch {
		case outcome.Conflict:
			return metering.Invalid(at, "must not be the key of an event with other content")
		case outcome.Forgotten:
			return metering.Invalid(at, "%s", metering.Forgotten().Message)
		}
	}
	return nil
}

var ErrNoReservation = metering.Errorf(metering.CodeNotFound, "there is no such reservation")
