package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

const idempotencyHeader = "Idempotency-Key"

// Repeatable is the optional header of a request that creates a resource.
type Repeatable struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Key that makes repeats safe. A repeat creates nothing and returns the first response, or 409 if the first response contained a secret"`
}

// once creates a resource and returns the response. If a request with the same Idempotency-Key has succeeded
// before, once creates nothing and returns the earlier response with repeated set.
func once[Shown any](ctx context.Context, s *server, in Repeatable, operation string, body any, create func(db.Creators) (Shown, error)) (shown Shown, repeated bool, err error) {
	if in.IdempotencyKey == "" {
		shown, err = create(s.Store.Creators())
		return shown, false, err
	}
	if !storable(in.IdempotencyKey) {
		return shown, false, metering.Invalid("header."+idempotencyHeader, "must be UTF-8 without NUL")
	}
	text, err := json.Marshal(body)
	if err != nil {
		return shown, false, fmt.Errorf("hash request: %w", err)
	}
	mac := hmac.New(sha256.New, s.requestKey)
	mac.Write(text)
	claim := db.Claim{Key: in.IdempotencyKey, Operation: operation, Hash: mac.Sum(nil)}
	previous, err := s.Store.Once(ctx, principalOf(ctx).Tenant.ID, claim, func(within db.Creators) ([]byte, error) {
		if shown, err = create(within); err != nil {
			return nil, err
		}
		return json.Marshal(shown)
	})
	if err != nil || previous == nil {
		return shown, false, err
	}
	if err := json.Unmarshal(previous, &shown); err != nil {
		return shown, true, fmt.Errorf("read previous answer: %w", err)
	}
	return shown, true, nil
}

// secretNotRepeated returns the error for a repeat of a request that created a secret, because the secret is not shown
// again. The error identifies the created resource.
func secretNotRepeated(id, lastFour string) error {
	return metering.Errorf(metering.CodeConflict, "this Idempotency-Key has already created %s, which ends in %s; its secret cannot be shown again", id, lastFour)
}
