package limits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// ReserveRequest requests usage of a customer in advance. Either all amounts are granted, or none.
type ReserveRequest struct {
	ID      string // id of the reservation
	Amounts []QuotaAmount
	For     time.Duration // time from the grant to the expiry of the reservation
	Digest  []byte        // digest of the request body, which identifies a repeat
}

// Reservation is the response to a ReserveRequest: the grant or the refusal.
type Reservation struct {
	ID        string
	Exceeded  bool // the reservation exceeds a soft quota
	ExpiresAt time.Time
	Refusal   *metering.QuotaLevel // the hard quota that refuses the reservation; nil: no quota refuses it
	Err       error                // the rule that the request breaks
}

// Reserve answers requests for one customer in order. customer is the external ID. No other transaction grants
// usage to the customer meanwhile. After each grant, the sum of usage and reservations is at most the limit of
// each hard quota. A repeat of a granted request returns the same response. A refusal is not stored. A request
// gets CodeConflict in Reservation.Err if another request or an ended reservation has its id, or if the
// customer has the maximum number of reservations.
func (s Quotas) Reserve(ctx context.Context, tenant metering.TenantID, customer string, requests []ReserveRequest, now time.Time) (answers []Reservation, err error) {
	err = s.withQuotaLock(ctx, tenant, customer, func(tx pgx.Tx) error {
		grant := &granting{levelRead: s.levelRead(ctx, tx, tenant, now), customer: customer, requests: requests}
		answers, err = grant.answer()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reserve: %w", err)
	}
	return answers, nil
}

// quotaLock is the SQL of the advisory lock key that serializes grants to a customer.
const quotaLock = `hashtextextended('quotas of ' || $2::text, $1)`

// withQuotaLock runs fn on one snapshot of the database while no other transaction grants usage to the customer.
func (s Quotas) withQuotaLock(ctx context.Context, tenant metering.TenantID, customer string, fn func(tx pgx.Tx) error) error {
	return s.pool.AcquireFunc(pg.For(ctx, tenant), func(conn *pgxpool.Conn) error {
		return pg.WithLock(ctx, conn, quotaLock, []any{tenant, customer}, func() error { return pg.AtOneInstantOn(ctx, conn, s.pool, pg.LookUp, fn) })
	})
}

// granting is a transaction that answers requests for a customer.
type granting struct {
	*levelRead
	customer string
	requests []ReserveRequest

	asked   [][]askedAmount // the amounts of each request
	answers []Reservation
	former  map[string]formerReservation
	live    int // number of the customer's live reservations
	grants  pgx.Batch
}

// formerReservation is an earlier reservation with the id of a request.
type formerReservation struct {
	digest    []byte
	exceeded  bool
	expiresAt time.Time
	ended     bool
}

// answer decides the requests, stores the granted reservations, and queues the evaluation of quota alerts.
func (g *granting) answer() ([]Reservation, error) {
	if err := g.prepare(); err != nil {
		return nil, err
	}
	var all []askedAmount
	for _, asked := range g.asked {
		all = append(all, asked...)
	}
	levels, err := g.levels(all)
	if err != nil {
		return nil, err
	}
	for i := range g.requests {
		if g.answers[i].Err == nil {
			g.answers[i] = g.decide(g.requests[i], g.asked[i], levels[g.customers[g.customer]])
		}
	}
	if g.grants.Len() == 0 {
		return g.answers, nil
	}
	g.grants.Queue(queueQuotaAlerts, pgx.NamedArgs{"tenant": g.tenant, "customer": g.customers[g.customer]})
	return g.answers, g.q.SendBatch(g.ctx, &g.grants).Close()
}

// prepare resolves the names of the requests and reads earlier reservations with their ids. It ends expired
// reservations, so that none is extended after its amount was granted again.
func (g *granting) prepare() error {
	var checks []QuotaCheck
	var ids []string
	for _, request := range g.requests {
		ids = append(ids, request.ID)
		for _, amount := range request.Amounts {
			checks = append(checks, QuotaCheck{g.customer, amount})
		}
	}
	if err := g.find(checks); err != nil {
		return err
	}
	g.asked, g.answers = make([][]askedAmount, len(g.requests)), make([]Reservation, len(g.requests))
	for i, request := range g.requests {
		g.asked[i], g.answers[i].Err = g.resolveAll(request)
	}
	return g.readFormer(ids)
}

// resolveAll returns the amounts of a request, or an error for the rule that one of them breaks.
func (g *granting) resolveAll(request ReserveRequest) (all []askedAmount, err error) {
	if _, known := g.customers[g.customer]; !known {
		return nil, metering.Invalid("body.customer", noSuchCustomer)
	}
	for i, amount := range request.Amounts {
		asked, err := g.resolve(QuotaCheck{g.customer, amount}, fmt.Sprintf("body.amounts[%d]", i))
		if err != nil {
			return nil, err
		}
		all = append(all, asked)
	}
	return all, nil
}

// readFormer ends the customer's expired reservations. It then reads the reservations with these ids, and the number of
// the customer's live reservations.
func (g *granting) readFormer(ids []string) error {
	g.former = make(map[string]formerReservation)
	var batch pgx.Batch
	batch.Queue(`update quota_reservations set ended_at = expires_at where tenant_id = $1 and customer_id = $2 and ended_at is null and expires_at <= $3`,
		g.tenant, g.customers[g.customer], g.now)
	batch.Queue(`select id, digest, exceeded, expires_at, ended_at is not null from quota_reservations where tenant_id = $1 and id = any($2)`,
		g.tenant, ids).Query(func(rows pgx.Rows) error {
		var id string
		var former formerReservation
		_, err := pgx.ForEachRow(rows, []any{&id, &former.digest, &former.exceeded, &former.expiresAt, &former.ended}, func() error {
			g.former[id] = former
			return nil
		})
		return err
	})
	batch.Queue(`select count(*) from quota_reservations where tenant_id = $1 and customer_id = $2 and ended_at is null`,
		g.tenant, g.customers[g.customer]).QueryRow(func(row pgx.Row) error { return row.Scan(&g.live) })
	if err := g.q.SendBatch(g.ctx, &batch).Close(); err != nil {
		return fmt.Errorf("read earlier reservations: %w", err)
	}
	return nil
}

// decide grants a request and deducts it from the levels, or refuses it.
func (g *granting) decide(request ReserveRequest, asked []askedAmount, levels []*customerLevel) Reservation {
	if former, taken := g.former[request.ID]; taken {
		return former.repeat(request)
	}
	needs := needsOf(asked, levels)
	decision := metering.DecideQuota(needs)
	if !decision.Allowed {
		return Reservation{ID: request.ID, Refusal: decision.Tightest}
	}
	if g.live >= metering.MaxReservations {
		return Reservation{Err: errManyReservations}
	}
	for _, need := range needs {
		for _, l := range levels {
			if l.ID == need.ID {
				l.Reserved = l.Reserved.Add(need.Amount)
			}
		}
	}
	g.live++
	until := g.now.Add(request.For)
	g.former[request.ID] = formerReservation{digest: request.Digest, exceeded: decision.Exceeded, expiresAt: until}
	g.grant(request, asked, decision.Exceeded, until)
	return Reservation{ID: request.ID, Exceeded: decision.Exceeded, ExpiresAt: until}
}

var errManyReservations = metering.Errorf(metering.CodeConflict, "the customer already has %d reservations that are not settled, released or expired, the maximum; settle or release some first", metering.MaxReservations)

// repeat answers a request with the id of an earlier reservation.
func (f formerReservation) repeat(request ReserveRequest) Reservation {
	switch {
	case !bytes.Equal(f.digest, request.Digest):
		return Reservation{Err: metering.Errorf(metering.CodeConflict, "another request has reserved under this id; use a new id for each reservation")}
	case f.ended:
		return Reservation{Err: metering.Errorf(metering.CodeConflict, "the reservation with this id is settled, released or expired; use a new id")}
	}
	return Reservation{ID: request.ID, Exceeded: f.exceeded, ExpiresAt: f.expiresAt}
}

// grant queues the insert of a reservation. If the customer was erased after g looked it up, the foreign key to
// customers makes the insert fail, and the transaction is repeated.
func (g *granting) grant(request ReserveRequest, asked []askedAmount, exceeded bool, until time.Time) {
	meters, groups, amounts := make([]int64, len(asked)), make([]*[16]byte, len(asked)), make([]string, len(asked))
	for i, a := range asked {
		meters[i], groups[i], amounts[i] = int64(a.meter.ID), catalog.GroupID(a.group), a.amount.String()
	}
	g.grants.Queue(`
		insert into quota_reservations (tenant_id, id, customer_id, meter_ids, group_ids, amounts, digest, exceeded, granted_at, expires_at)
		values ($1, $2, $3, $4, $5, $6::text[]::numeric[], $7, $8, $9, $10)`,
		g.tenant, request.ID, g.customers[g.customer], meters, groups, amounts, request.Digest, exceeded, g.now, until)
}

// Extend sets the expiry of a reservation to the given duration after now. It fails with CodeConflict if the
// reservation is settled, released or expired, because its amount may be granted again.
func (s Quotas) Extend(ctx context.Context, tenant metering.TenantID, id string, by time.Duration, now time.Time) (extended Reservation, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		extended = Reservation{ID: id}
		err := tx.QueryRow(ctx, `
			update quota_reservations
			set expires_at = $4
			where tenant_id = $1 and id = $2 and ended_at is null and expires_at > $3
			returning exceeded, expires_at`, tenant, id, metering.Instant(now), metering.Instant(now.Add(by))).Scan(&extended.Exceeded, &extended.ExpiresAt)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if _, err := granted(ctx, tx, tenant, id); err != nil {
			return err
		}
		return metering.Errorf(metering.CodeConflict, "the reservation is settled, released or expired; make another one")
	})
	if err != nil {
		return Reservation{}, fmt.Errorf("extend reservation: %w", err)
	}
	return extended, nil
}

// Grant is the customer and the time of a reservation.
type Grant struct {
	Customer string // external id
	At       time.Time
}

// Granted returns the grant of a reservation, or CodeNotFound.
func (s Quotas) Granted(ctx context.Context, tenant metering.TenantID, id string) (Grant, error) {
	return granted(pg.For(ctx, tenant), s.pool, tenant, id)
}

// granted is Quotas.Granted for a pool or a transaction.
func granted(ctx context.Context, q pg.Querier, tenant metering.TenantID, id string) (g Grant, err error) {
	err = q.QueryRow(ctx, `
		select c.external_id, r.granted_at
		from quota_reservations r
		join customers c on c.tenant_id = r.tenant_id and c.id = r.customer_id
		where r.tenant_id = $1 and r.id = $2`, tenant, id).Scan(&g.Customer, &g.At)
	if errors.Is(err, pgx.ErrNoRows) {
		return g, usage.ErrNoReservation
	}
	return g, pg.Coded(err)
}

// Release frees the amounts of a reservation. It has no effect on a released or expired reservation. It
// fails with CodeConflict if the reservation is settled.
func (s Quotas) Release(ctx context.Context, tenant metering.TenantID, id string, now time.Time) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		var settled bool
		err := tx.QueryRow(ctx, `
			update quota_reservations
			set ended_at = coalesce(ended_at, $3)
			where tenant_id = $1 and id = $2
			returning settled_with is not null`, tenant, id, metering.Instant(now)).Scan(&settled)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return usage.ErrNoReservation
		case err == nil && settled:
			return metering.Errorf(metering.CodeConflict, "the reservation is settled already: its events are counted")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("release reservation: %w", err)
	}
	return nil
}

// Sweep deletes up to limit reservations, of any tenant, that expired before an instant.
func (s Quotas) Sweep(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return pg.OldRows{Table: "quota_reservations", Key: "tenant_id, id", By: "expires_at", Noun: "reservations"}.Sweep(ctx, s.pool, before, limit)
}
