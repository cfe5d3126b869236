package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
	"github.com/odometer-metering/odometer/workflows"
)

func (s *server) registerRotations() {
	huma.Register(s.api, created(post("rotate-api-key", "/v1/api-keys/{id}/rotate", KeysManage, "Rotate an API key",
		"Returns a new key with the same name, scope and expiry. The old key is revoked immediately, or after `overlap_seconds`. Returns 409 if the old "+
			"key is revoked or expired.")), s.rotateAPIKey)
	huma.Register(s.api, created(post("rotate-hmac-secret", "/v1/hmac-secrets/{id}/rotate", KeysManage, "Rotate an HMAC secret",
		"Returns a new secret with the same name, scope, signatures and expiry. The old secret stays valid for `overlap_seconds`.")), s.rotateHMACSecret)
	huma.Register(s.api, created(post("rotate-webhook-secret", "/v1/webhooks/{id}/rotate-secret", HooksWrite, "Rotate a webhook's secret",
		"Returns the new secret. Messages are signed with both secrets for `overlap_seconds`.")), s.rotateWebhookSecret)
}

// startRotation starts the workflow run of a committed rotation.
func (s *server) startRotation(ctx context.Context, r metering.Rotation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), runWait)
	defer cancel()
	if err := workflows.StartRotateCredential(ctx, s.Temporal, r.TenantID, r.ID); err != nil {
		s.Log.WarnContext(ctx, "start the end of a rotation: Temporal did not answer, a worker starts it", "error", err)
	}
}

func (s *server) rotating(who Principal, overlap time.Duration) access.Rotating {
	return access.Rotating{Tenant: who.Tenant.ID, Actor: who.Actor, Now: s.Now(), Overlap: overlap}
}

// KeyOverlap is the optional body of a request that rotates an API key.
type KeyOverlap struct {
	Seconds *int `json:"overlap_seconds,omitempty" minimum:"0" maximum:"604800" default:"0" doc:"Seconds that the old key stays valid with the new key. With 0, the old key is revoked immediately"`
}

func (o *KeyOverlap) overlap() time.Duration {
	if o == nil || o.Seconds == nil {
		return 0
	}
	return time.Duration(*o.Seconds) * time.Second
}

// SecretOverlap is the optional body of a request that rotates a secret.
type SecretOverlap struct {
	Seconds *int `json:"overlap_seconds,omitempty" minimum:"0" maximum:"604800" default:"86400" doc:"Seconds that the old secret stays valid with the new secret. During this time, webhook messages are signed with both"`
}

func (o *SecretOverlap) overlap() time.Duration {
	if o == nil || o.Seconds == nil {
		return metering.DefaultOverlap
	}
	return time.Duration(*o.Seconds) * time.Second
}

type rotateAPIKeyInput struct {
	ID string `path:"id" example:"key_12"`
	Repeatable
	Body *KeyOverlap
}

// rotateAPIKey creates a key that replaces an old key, and returns it.
func (s *server) rotateAPIKey(ctx context.Context, in *rotateAPIKeyInput) (*createAPIKeyOutput, error) {
	who := principalOf(ctx)
	old, err := s.rotatableCredential(ctx, metering.APIKeyCredential, in.ID)
	if err != nil {
		return nil, err
	}
	key, record := s.Keys.Make(old.Scope)
	var begun metering.Rotation
	shown, repeated, err := once(ctx, s, in.Repeatable, "rotate-api-key", in, func(within db.Creators) (APIKeyMetadata, error) {
		made, r, err := within.Rotations.Credential(ctx, s.rotating(who, in.Body.overlap()), old.ID, record)
		begun = r
		return s.showAPIKey(made), err
	})
	if err != nil {
		return nil, err
	}
	if repeated {
		return nil, secretNotRepeated(shown.ID, shown.LastFour)
	}
	s.startRotation(ctx, begun)
	return &createAPIKeyOutput{createdAPIKey{key, shown}}, nil
}

type rotateHMACSecretInput struct {
	ID string `path:"id" example:"sec_3"`
	Repeatable
	Body *SecretOverlap
}

// rotateHMACSecret creates a secret that replaces an old secret, and returns it.
func (s *server) rotateHMACSecret(ctx context.Context, in *rotateHMACSecretInput) (*createHMACSecretOutput, error) {
	who := principalOf(ctx)
	old, err := s.rotatableCredential(ctx, metering.HMACSecretCredential, in.ID)
	if err != nil {
		return nil, err
	}
	secret, record, err := s.newSecret(who.Tenant.ID)
	if err != nil {
		return nil, err
	}
	var begun metering.Rotation
	shown, repeated, err := once(ctx, s, in.Repeatable, "rotate-hmac-secret", in, func(within db.Creators) (HMACSecret, error) {
		made, r, err := within.Rotations.Credential(ctx, s.rotating(who, in.Body.overlap()), old.ID, record)
		begun = r
		return showHMACSecret(made), err
	})
	if err != nil {
		return nil, err
	}
	if repeated {
		return nil, secretNotRepeated(shown.ID, shown.LastFour)
	}
	s.startRotation(ctx, begun)
	return &createHMACSecretOutput{createdHMACSecret{secret, shown}}, nil
}

type rotateWebhookSecretInput struct {
	WebhookPath
	Repeatable
	Body *SecretOverlap
}

// rotateWebhookSecret creates a secret and returns it. Messages are signed with it immediately.
func (s *server) rotateWebhookSecret(ctx context.Context, in *rotateWebhookSecretInput) (*createWebhookOutput, error) {
	who := principalOf(ctx)
	id, err := in.endpoint()
	if err != nil {
		return nil, err
	}
	secret := webhook.NewSecret()
	sealed, err := s.Keyring.Seal(who.Tenant.ID, seal.EndpointSecret, []byte(secret))
	if err != nil {
		return nil, err
	}
	var begun metering.Rotation
	shown, repeated, err := once(ctx, s, in.Repeatable, "rotate-webhook-secret", in, func(within db.Creators) (Webhook, error) {
		e, r, err := within.Rotations.WebhookSecret(ctx, s.rotating(who, in.Body.overlap()), id, sealed, lastFour(secret))
		begun = r
		return showWebhook(e), err
	})
	if err != nil {
		return nil, err
	}
	if repeated {
		return nil, secretNotRepeated("a secret of "+shown.ID, shown.SecretLastFour)
	}
	s.startRotation(ctx, begun)
	return &createWebhookOutput{createdWebhook{secret, shown}}, nil
}
