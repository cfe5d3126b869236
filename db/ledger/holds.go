package ledger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Holds stores the holds of draft invoices. Odometer holds a draft so that it does not become final before it
// is compared with our usage. The requests that hold and release drafts are reports of the ledger.
type Holds struct {
	pool   *pg.Pool
	ledger Ledger
}

// Hold is the record of a draft invoice that Odometer holds, has held, or could not hold.
type Hold struct {
	ID           metering.HoldID
	CustomerID   metering.CustomerID
	ExternalID   string
	CustomerName string
	Connection   metering.ConnectionID
	InvoiceID    string // at the provider
	Period       metering.Range

	State      billing.HoldState
	Reasons    []billing.HoldReason
	Slugs      map[metering.MeterID]string // slugs of the meters in Reasons
	GraceUntil time.Time
	Deadline   time.Time
	Hold       billing.HoldAction
	Release    billing.HoldAction

	Actor          metering.Actor // the actor that requested the release
	Note           string         // the actor's reason
	ReleaseAskedAt *time.Time
	LookedAt       *time.Time
	EndedAt        *time.Time
	RecordedAt     time.Time
}

var errNoHold = metering.Errorf(metering.CodeNotFound, "there is no such hold")

// selectHolds is the SQL that selects holds h with their invoices and reports.
const selectHolds = `
	select h.id, h.customer_id, c.external_id, c.name, h.connection_id, h.invoice_id, i.period_start, i.period_end,
	  h.state, h.reasons, coalesce(m.slugs, '{}'), h.grace_until, h.deadline,
	  h.hold_report, coalesce(a.state, ''), coalesce(a.response, ''), a.lease_until,
	  h.release_report, coalesce(r.state, ''), coalesce(r.response, ''), r.lease_until,
	  h.release_actor, h.release_note, h.release_asked_at, h.looked_at, h.ended_at, h.recorded_at
	from billing_holds h
	join customers c on c.tenant_id = h.tenant_id and c.id = h.customer_id
	join billing_invoices i on i.tenant_id = h.tenant_id and i.connection_id = h.connection_id and i.invoice_id = h.invoice_id
	left join billing_reports a on a.tenant_id = h.tenant_id and a.id = h.hold_report
	left join billing_reports r on r.tenant_id = h.tenant_id and r.id = h.release_report
	cross join lateral (
	  select jsonb_object_agg(m.id, m.slug) as slugs
	  from jsonb_array_elements(h.reasons) found
	  join meters m on m.tenant_id = h.tenant_id and m.id = (found->>'meter_id')::bigint) m
	where h.tenant_id = @tenant`

func scanHold(row pgx.CollectableRow) (h Hold, err error) {
	var hold, release struct {
		id          *uuid.UUID
		leasedUntil *time.Time
	}
	err = row.Scan(&h.ID, &h.CustomerID, &h.ExternalID, &h.CustomerName, &h.Connection, &h.InvoiceID, &h.Period.Start, &h.Period.End,
		&h.State, &h.Reasons, &h.Slugs, &h.GraceUntil, &h.Deadline,
		&hold.id, &h.Hold.State, &h.Hold.Response, &hold.leasedUntil,
		&release.id, &h.Release.State, &h.Release.Response, &release.leasedUntil,
		&h.Actor, &h.Note, &h.ReleaseAskedAt, &h.LookedAt, &h.EndedAt, &h.RecordedAt)
	if hold.id != nil {
		h.Hold.ID = *hold.id
	}
	if hold.leasedUntil != nil {
		h.Hold.LeasedUntil = *hold.leasedUntil
	}
	if release.id != nil {
		h.Release.ID = *release.id
	}
	if release.leasedUntil != nil {
		h.Release.LeasedUntil = *release.leasedUntil
	}
	return h, err
}

// Get returns a hold, or CodeNotFound.
func (s Holds) Get(ctx context.Context, tenant metering.TenantID, id metering.HoldID) (Hold, error) {
	h, err := getHold(ctx, s.pool, tenant, id)
	if err != nil {
		return Hold{}, fmt.Errorf("read hold: %w", pg.Coded(err))
	}
	return h, nil
}

func getHold(ctx context.Context, q pg.Querier, tenant metering.TenantID, id metering.HoldID) (Hold, error) {
	rows, err := q.Query(ctx, selectHolds+` and h.id = @id`, pgx.NamedArgs{"tenant": tenant, "id": id})
	if err != nil {
		return Hold{}, err
	}
	h, err := pgx.CollectExactlyOneRow(rows, scanHold)
	if errors.Is(err, pgx.ErrNoRows) {
		return Hold{}, errNoHold
	}
	return h, err
}

// HoldFilter selects holds. Zero fields match every hold.
type HoldFilter struct {
	Customer metering.CustomerID
	State    billing.HoldState
	Before   metering.HoldID // the last hold of the previous page
}

// List returns up to limit holds, newest first.
func (s Holds) List(ctx context.Context, tenant metering.TenantID, f HoldFilter, limit int) (page pg.Page[Hold], err error) {
	if f.Before == 0 {
		f.Before = math.MaxInt64
	}
	rows, err := s.pool.Query(ctx, selectHolds+`
		  and h.id < @before
		  and (@customer = 0 or h.customer_id = @customer)
		  and (@state = '' or h.state = @state)
		order by h.id desc
		limit @limit`, pgx.NamedArgs{"tenant": tenant, "before": f.Before, "customer": int64(f.Customer), "state": string(f.State), "limit": limit + 1})
	if err != nil {
		return page, fmt.Errorf("list holds: %w", pg.Coded(err))
	}
	page, err = pg.ReadPage(ctx, rows, limit, scanHold)
	if err != nil {
		return page, fmt.Errorf("list holds: %w", pg.Coded(err))
	}
	return page, nil
}

// OpenHold identifies a hold that has not ended.
type OpenHold struct {
	Tenant   metering.TenantID
	Customer metering.CustomerID
	ID       metering.HoldID
}

// Open returns all tenants' holds that have not ended and were recorded before the given instant.
func (s Holds) Open(ctx context.Context, before time.Time) ([]OpenHold, error) {
	rows, err := s.pool.Query(ctx, `
		select tenant_id, customer_id, id
		from billing_holds
		where ended_at is null
		  and recorded_at < $1
		order by recorded_at`, before)
	if err != nil {
		return nil, fmt.Errorf("list open holds: %w", pg.Coded(err))
	}
	open, err := pgx.CollectRows(rows, pgx.RowToStructByPos[OpenHold])
	if err != nil {
		return nil, fmt.Errorf("list open holds: %w", pg.Coded(err))
	}
	return open, nil
}

// OpenOf returns the ID of an invoice's hold that has not ended, or 0 if there is none.
func (s Holds) OpenOf(ctx context.Context, tenant metering.TenantID, connection metering.ConnectionID, invoice string) (id metering.HoldID, err error) {
	err = s.pool.QueryRow(ctx, `
		select coalesce((
		  select id
		  from billing_holds
		  where tenant_id = $1
		    and connection_id = $2
		    and invoice_id = $3
		    and ended_at is null), 0)`, tenant, connection, invoice).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("find hold: %w", pg.Coded(err))
	}
	return id, nil
}

// AskRelease requests the release of a held invoice, even if the invoice disagrees with our usage. It returns
// CodeNotFound if there is no such hold, and CodeConflict if the hold cannot be released any more. Requesting
// it again changes nothing.
func (s Holds) AskRelease(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.HoldID, note string, now time.Time) (h Hold, err error) {
	err = pg.AtOneInstant(ctx, s.pool, func(tx pgx.Tx) error {
		if err := takeTurnOf(ctx, tx, "billing_holds", tenant, int64(id)); err != nil {
			return err
		}
		if h, err = getHold(ctx, tx, tenant, id); err != nil || h.ReleaseAskedAt != nil && !h.State.Ended() {
			return err
		}
		if !h.State.Releasable() {
			return metering.Errorf(metering.CodeConflict, "the hold is %s; only a hold that still keeps its invoice a draft can be released", h.State)
		}
		_, err := tx.Exec(ctx, `
			update billing_holds
			set release_actor = $3, release_note = $4, release_asked_at = $5
			where tenant_id = $1
			  and id = $2`, tenant, id, actor, note, metering.Instant(now))
		if err != nil {
			return err
		}
		released := audit.Decision{Actor: actor, Action: "hold.release", Resource: id.String(), Reason: note}
		if err := audit.RecordDecision(ctx, tx, tenant, released, audit.Fields{"release_asked": false}, audit.Fields{"release_asked": true}); err != nil {
			return err
		}
		h, err = getHold(ctx, tx, tenant, id)
		return err
	})
	if err != nil {
		return Hold{}, fmt.Errorf("ask for release: %w", err)
	}
	return h, nil
}
