package api

import (
	"cmp"
	"context"
	"time"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

const (
	defaultRotationWait = 10 * time.Second
	rotationPoll        = 50 * time.Millisecond
	// rotationMargin is how much longer than its request a rotation may be
	// activated: the request's own withdrawal comes first.
	rotationMargin = 5 * time.Second
)

type rotateAPIKeyInput struct {
	ID             string `path:"id" example:"key_12"`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"A repeat is 409 and says what was made: the key itself is shown once"`
}

// rotateAPIKey makes a key and shows it once it has taken the old one's place.
// Until then the key is in this request's memory and nowhere else.
func (s *server) rotateAPIKey(ctx context.Context, in *rotateAPIKeyInput) (*createAPIKeyOutput, error) {
	who := principalOf(ctx)
	old, err := s.rotatable(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if !storable(in.IdempotencyKey) {
		return nil, metering.Invalid("header.Idempotency-Key", "must be UTF-8 without NUL")
	}
	now := s.Now()
	if !old.Live(now) {
		return nil, cmp.Or[error](s.Store.Rotations.Repeated(ctx, who.Tenant.ID, old.ID, in.IdempotencyKey), errNotRotatable)
	}
	key, hash, lastFour := s.Keys.Make(old.Scope)
	rotation, err := s.Store.Rotations.Begin(ctx, who.Tenant.ID, who.Actor, metering.Rotation{
		OldKeyID: old.ID, LastFour: lastFour, IdempotencyKey: in.IdempotencyKey,
		PendingUntil: now.Add(s.rotationWait() + rotationMargin),
	}, hash, now)
	if err != nil {
		return nil, err
	}
	rotation, err = s.carryOut(ctx, rotation)
	if err != nil {
		return nil, err
	}
	record, err := s.Store.APIKeys.Get(context.WithoutCancel(ctx), who.Tenant.ID, *rotation.NewKeyID)
	if err != nil {
		return nil, err
	}
	return &createAPIKeyOutput{createdAPIKey{key, s.showAPIKey(record)}}, nil
}

func (s *server) rotationWait() time.Duration { return cmp.Or(s.RotationWait, defaultRotationWait) }

// rotatable is a key that may do no more than who asks.
func (s *server) rotatable(ctx context.Context, text string) (metering.APIKey, error) {
	who := principalOf(ctx)
	id, ok := parseKeyID(text)
	if !ok {
		return metering.APIKey{}, metering.Errorf(metering.CodeNotFound, "there is no such API key")
	}
	key, err := s.Store.APIKeys.Get(ctx, who.Tenant.ID, id)
	if err != nil {
		return metering.APIKey{}, err
	}
	if !within(Principal{Scope: key.Scope}, who) {
		return metering.APIKey{}, metering.Errorf(metering.CodeForbidden, "nobody can rotate a key that may do more than themselves")
	}
	return key, nil
}

var errNotRotatable = metering.Errorf(metering.CodeConflict, "the key is revoked or expired; create a new one")

// carryOut starts the rotation and waits for its end; what does not end in
// time, or cannot be started, is withdrawn, unless it was activated before.
func (s *server) carryOut(ctx context.Context, rotation metering.Rotation) (metering.Rotation, error) {
	tenant := principalOf(ctx).Tenant.ID
	failure := workflows.StartRotateAPIKey(ctx, s.Temporal, tenant, rotation.ID)
	if failure == nil {
		failure = s.awaitRotation(ctx, rotation.ID)
	}
	ended, err := s.Store.Rotations.Withdraw(context.WithoutCancel(ctx), tenant, rotation.ID, s.Now())
	switch {
	case err != nil:
		return ended, err
	case ended.Status == metering.RotationActivated:
		return ended, nil
	case ended.Status == metering.RotationRefused:
		return ended, errNotRotatable
	}
	return ended, failure
}

// awaitRotation returns nil once the rotation has ended.
func (s *server) awaitRotation(ctx context.Context, id metering.RotationID) error {
	late := metering.Errorf(metering.CodeUnavailable, "the rotation was not carried out in time; the old key is still valid, try again")
	deadline := time.After(s.rotationWait())
	for {
		rotation, err := s.Store.Rotations.Get(ctx, principalOf(ctx).Tenant.ID, id)
		if err != nil {
			return err
		}
		if rotation.Status != metering.RotationPending {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return late
		case <-s.Stopping:
			return late
		case <-time.After(rotationPoll):
		}
	}
}
