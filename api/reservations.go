package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/metering"
)

// registerReservations registers the operations of reservations.
func (s *server) registerReservations() {
	const settle = reservationsPath + "/settle"
	huma.Register(s.api, created(post("reserve-quota", quotasPath+"/reserve", QuotasWrite, "Reserve usage before it happens",
		"Reserves all of the amounts, or none of them. When the reservation is granted, usage and reservations together are within every hard quota, however many requests are sent at once.\n\n"+
			"- 201: the amounts are reserved. Settle the reservation with the events of the usage, or release it.\n"+
			"- 200 with `allowed: false`: a hard quota has less left than the requested amount, so nothing is reserved. `quota_id` names, among such quotas, the quota with the least left.\n"+
			"- A reservation counts in the period in which it is granted. The reservation expires after `expires_in`. Extend it for work that takes longer.\n"+
			"- A repeat with the same `id` returns the same reservation. Returns 409 if the `id` belongs to another request, or if the reservation has ended.\n"+
			"- A customer has at most 10,000 reservations that have not ended. Beyond that the request returns 409.\n"+
			"- Returns 503 during the first backfill of a meter with a quota.")), s.reserve)
	s.describeReserve()
	huma.Register(s.api, limited(post("settle-reservation", settle, QuotasWrite, "Settle a reservation with the events of the usage",
		"Stores the events and ends the reservation in one transaction. Needs the permission `events:write` too.\n\n"+
			"- Either all events are stored or none. An invalid event, or an `idempotency_key` that another event has used, returns 422. The reservation then does not end.\n"+
			"- All events are counted, even if they exceed the reservation, or if it is released or expired.\n"+
			"- A repeat with the same events returns the same response and counts nothing twice. Settling again with different events returns 409.\n"+
			"- Odometer derives a missing `idempotency_key` from the reservation and the index of the event.\n"+
			"- Settle within 30 days after the reservation expires. Later the request returns 404.")), s.settleReservation)
	s.describeBody(settle, "EventBatch")
	huma.Register(s.api, post("extend-reservation", reservationsPath+"/extend", QuotasWrite, "Extend a reservation",
		"The reservation expires `expires_in` seconds from now. Returns 409 if it is settled, released or expired."), s.extendReservation)
	huma.Register(s.api, post("release-reservation", reservationsPath+"/release", QuotasWrite, "Release a reservation",
		"Frees the reserved amounts. Repeating the request changes nothing. Returns 409 if the reservation is settled."), s.releaseReservation)
}

// sharedNow returns the time of the database's clock, which all replicas share.
func (s *server) sharedNow() time.Time { return s.ClockOffset.Correct(s.Now()) }

type reservation struct {
	ReservationID string    `json:"reservation_id" example:"rsv_01a21cd26cb27a61bc8d67b58f5b4999"`
	Allowed       bool      `json:"allowed" doc:"Always true: the amounts are reserved"`
	Exceeded      bool      `json:"exceeded" doc:"Whether usage, reservations and the amounts are together above a soft quota"`
	ExpiresAt     time.Time `json:"expires_at"`
}

func showReservation(r limits.Reservation) reservation {
	return reservation{r.ID, true, r.Exceeded, r.ExpiresAt.UTC()}
}

// refusedReservation is the response if a hard quota has less left than the requested amount.
type refusedReservation struct {
	Allowed   bool             `json:"allowed" doc:"Always false: nothing is reserved"`
	QuotaID   string           `json:"quota_id" example:"quo_5"`
	Remaining metering.Decimal `json:"remaining" doc:"Amount that the quota has left"`
	ResetsAt  *time.Time       `json:"resets_at" doc:"Start of the quota's next period. Null if 'period' is 'lifetime'"`
}

type reserveInput struct {
	Body struct {
		ID        *string       `json:"id,omitempty" maxLength:"128" doc:"Your own id of the reservation, which makes a repeat safe. Created if omitted. Letters, digits and '. _ : -'"`
		Customer  string        `json:"customer" maxLength:"255" doc:"External ID of the customer"`
		Amounts   []QuotaAmount `json:"amounts" minItems:"1" maxItems:"20" doc:"Amounts to reserve, all or none"`
		ExpiresIn int64         `json:"expires_in,omitempty" minimum:"1" maximum:"86400" default:"300" doc:"Seconds until the reservation expires"`
	}
}

type reserveOutput struct {
	Status int
	Body   any
}

func (s *server) reserve(ctx context.Context, in *reserveInput) (*reserveOutput, error) {
	request, err := s.readReserve(in)
	if err != nil {
		return nil, err
	}
	answer, err := s.reserver.Reserve(ctx, principalOf(ctx).Tenant.ID, in.Body.Customer, request)
	if err != nil {
		return nil, err
	}
	if l := answer.Refusal; l != nil {
		shown := showLevel(l)
		return &reserveOutput{http.StatusOK, refusedReservation{false, *shown.QuotaID, *shown.Remaining, shown.ResetsAt}}, nil
	}
	return &reserveOutput{http.StatusCreated, showReservation(answer)}, nil
}

func (s *server) readReserve(in *reserveInput) (request limits.ReserveRequest, err error) {
	if !storable(in.Body.Customer) {
		return request, metering.Invalid("body.customer", "must be UTF-8 without NUL")
	}
	for i, a := range in.Body.Amounts {
		amount, err := a.read(itemAt("body.amounts", i))
		if err != nil {
			return request, err
		}
		request.Amounts = append(request.Amounts, amount)
	}
	text, err := json.Marshal(in.Body)
	if err != nil {
		return request, fmt.Errorf("hash request: %w", err)
	}
	digest := sha256.Sum256(text)
	request.Digest, request.For = digest[:], time.Duration(in.Body.ExpiresIn)*time.Second
	if in.Body.ID != nil {
		request.ID = *in.Body.ID
		return request, metering.ValidReservationID("body.id", request.ID)
	}
	id, err := uuid.NewV7()
	request.ID = fmt.Sprintf("rsv_%x", id[:])
	return request, err
}

// itemAt returns the location of an item in a request.
func itemAt(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// describeReserve documents the responses of the reserve operation. Each status has a schema of its own.
func (s *server) describeReserve() {
	document := s.api.OpenAPI()
	answer := func(description string, body reflect.Type) *huma.Response {
		schema := document.Components.Schemas.Schema(body, true, "")
		return &huma.Response{Description: description, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
	}
	responses := document.Paths[quotasPath+"/reserve"].Post.Responses
	responses["200"] = answer("A hard quota has less left than the requested amount. Nothing is reserved", reflect.TypeFor[refusedReservation]())
	responses["201"] = answer("Reserved", reflect.TypeFor[reservation]())
}

// ReservationPath identifies a reservation in a path.
type ReservationPath struct {
	ID string `path:"id" maxLength:"128" doc:"The reservation's id"`
}

func (p ReservationPath) valid() error {
	if metering.ValidReservationID("path.id", p.ID) != nil {
		return metering.Errorf(metering.CodeNotFound, "there is no such reservation")
	}
	return nil
}

type reservationOutput struct{ Body reservation }

type extendReservationInput struct {
	ReservationPath

	Body struct {
		ExpiresIn int64 `json:"expires_in" minimum:"1" maximum:"86400" doc:"Seconds from now until the reservation expires"`
	}
}

func (s *server) extendReservation(ctx context.Context, in *extendReservationInput) (*reservationOutput, error) {
	if err := in.valid(); err != nil {
		return nil, err
	}
	extended, err := s.Store.Quotas.Extend(ctx, principalOf(ctx).Tenant.ID, in.ID, time.Duration(in.Body.ExpiresIn)*time.Second, s.sharedNow())
	if err != nil {
		return nil, err
	}
	return &reservationOutput{showReservation(extended)}, nil
}

type releaseReservationOutput struct {
	Body struct {
		ReservationID string `json:"reservation_id" example:"rsv_01a21cd26cb27a61bc8d67b58f5b4999"`
		Released      bool   `json:"released"`
	}
}

func (s *server) releaseReservation(ctx context.Context, in *ReservationPath) (*releaseReservationOutput, error) {
	if err := in.valid(); err != nil {
		return nil, err
	}
	if err := s.Store.Quotas.Release(ctx, principalOf(ctx).Tenant.ID, in.ID, s.sharedNow()); err != nil {
		return nil, err
	}
	out := new(releaseReservationOutput)
	out.Body.ReservationID, out.Body.Released = in.ID, true
	return out, nil
}

// settleReservation stores all events of a request, or none.
func (s *server) settleReservation(ctx context.Context, in *ReservationPath) (*ingestOutput, error) {
	who := principalOf(ctx)
	if !EventsWrite.allows(who) {
		return nil, metering.Errorf(metering.CodeForbidden, "%s lacks permission %s, which settling requires because it stores events", who, EventsWrite)
	}
	if err := in.valid(); err != nil {
		return nil, err
	}
	return s.withEventsBody(ctx, func(body io.Reader) (ingestResult, error) {
		batch, err := s.readBatch(ctx, body)
		if err != nil {
			return ingestResult{}, err
		}
		events, err := s.judgeSettlement(ctx, in.ID, batch.events)
		if err != nil {
			return ingestResult{}, err
		}
		outcomes, repeated, err := s.Writer.Settle(ctx, who.Tenant.ID, in.ID, events, s.sharedNow())
		if err != nil {
			return ingestResult{}, err
		}
		indexes := make([]int, len(events))
		for i := range indexes {
			indexes[i] = i
		}
		if repeated {
			return ingestResultOf(events, indexes, outcomes, nil), nil
		}
		result := s.reportIngest(ctx, events, indexes, outcomes, nil)
		result.Warnings = append(result.Warnings, batch.unknownFieldWarnings(ctx)...)
		return result, nil
	})
}

// judgeSettlement returns the events of a settlement, or an error for the first event that breaks a rule.
func (s *server) judgeSettlement(ctx context.Context, reservation string, sent []sentEvent) ([]metering.Event, error) {
	now, events := s.Now(), make([]metering.Event, len(sent))
	for i, e := range sent {
		if e.rejection == nil && e.IdempotencyKey == nil {
			// judge hashes only events with a key. The final key is set below, because it needs the time of the grant.
			e.IdempotencyKey = new("pending")
		}
		var rejection *metering.Rejection
		if events[i], rejection = e.judge(now, s.Retention); rejection != nil {
			return nil, refusalIn(itemAt("body.events", i), rejection)
		}
	}
	granted, err := s.Store.Quotas.Granted(ctx, principalOf(ctx).Tenant.ID, reservation)
	if err != nil {
		return nil, err
	}
	for i, e := range sent {
		if e.IdempotencyKey == nil {
			events[i].IdempotencyKey = metering.SettledKey(reservation, granted.At, i)
		}
	}
	rejected, err := s.rejectBeforeStoring(ctx, events, sent)
	if err != nil {
		return nil, err
	}
	for i, e := range events {
		if e.ExternalID != granted.Customer {
			return nil, metering.Invalid(itemAt("body.events", i)+".customer_id", "must be the customer of the reservation")
		}
		if rejected[i] != nil {
			return nil, refusalIn(itemAt("body.events", i), rejected[i])
		}
	}
	return events, nil
}
