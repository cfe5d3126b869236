package api

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// Secrets are as hard to guess as 32 random bytes.
const (
	secretPrefix = "hms_"
	secretLength = 43 // 62^43 > 2^256
)

// HMACSecret is a secret without the secret itself.
type HMACSecret struct {
	ID        string         `json:"id" example:"sec_3"`
	Name      string         `json:"name"`
	Scope     metering.Scope `json:"scope"`
	LastFour  string         `json:"last_four"`
	CreatedAt time.Time      `json:"created_at"`
	ExpiresAt *time.Time     `json:"expires_at"`
	RevokedAt *time.Time     `json:"revoked_at"`
	Successor *string        `json:"successor_id" doc:"The secret that replaces this one, which is valid beside it until expires_at"`
}

func showHMACSecret(h metering.HMACSecret) HMACSecret {
	shown := HMACSecret{
		ID: h.ID.String(), Name: h.Name, Scope: h.Scope, LastFour: h.LastFour,
		CreatedAt: h.CreatedAt.UTC(), ExpiresAt: h.ExpiresAt, RevokedAt: h.RevokedAt,
	}
	if h.SuccessorID != nil {
		shown.Successor = new(h.SuccessorID.String())
	}
	return shown
}

type createHMACSecretInput struct {
	Repeatable
	Body struct{ NewCredential }
}

type createHMACSecretOutput struct{ Body createdHMACSecret }

type createdHMACSecret struct {
	Secret string `json:"secret" doc:"What to sign with: its bytes as they stand here. It is shown this once and cannot be shown again"`
	HMACSecret
}

func (s *server) createHMACSecret(ctx context.Context, in *createHMACSecretInput) (*createHMACSecretOutput, error) {
	who := principalOf(ctx)
	if err := in.Body.check(who, s.Now()); err != nil {
		return nil, err
	}
	secret, record, err := s.newSecret(who.Tenant.ID)
	if err != nil {
		return nil, err
	}
	record.Name, record.Scope, record.ExpiresAt = in.Body.Name, in.Body.Scope, in.Body.ExpiresAt
	shown, repeated, err := once(ctx, s, in.Repeatable, "create-hmac-secret", in.Body, func(within db.Creators) (HMACSecret, error) {
		made, err := within.HMACSecrets.Create(ctx, who.Tenant.ID, who.Actor, record, s.Now())
		return showHMACSecret(made), err
	})
	if err != nil {
		return nil, err
	}
	if repeated {
		return nil, alreadyMade(shown.ID, shown.LastFour)
	}
	return &createHMACSecretOutput{createdHMACSecret{secret, shown}}, nil
}

// newSecret makes a secret, and what is kept of it.
func (s *server) newSecret(tenant metering.TenantID) (secret string, record metering.HMACSecret, err error) {
	secret = secretPrefix + randomText(secretLength)
	sealed, err := s.Keyring.Seal(tenant, db.SigningSecret, []byte(secret))
	return secret, metering.HMACSecret{Sealed: sealed, LastFour: secret[len(secret)-4:]}, err
}

type listHMACSecretsOutput struct{ Body List[HMACSecret] }

func (s *server) listHMACSecrets(ctx context.Context, _ *struct{}) (*listHMACSecretsOutput, error) {
	secrets, err := s.Store.HMACSecrets.List(ctx, principalOf(ctx).Tenant.ID)
	if err != nil {
		return nil, err
	}
	out := &listHMACSecretsOutput{List[HMACSecret]{Data: []HMACSecret{}}}
	for _, h := range secrets {
		out.Body.Data = append(out.Body.Data, showHMACSecret(h))
	}
	return out, nil
}

type rotateHMACSecretInput struct {
	ID string `path:"id" example:"sec_3"`
	Repeatable
	Body *struct {
		OverlapSeconds *int `json:"overlap_seconds,omitempty" minimum:"0" maximum:"604800" default:"86400" doc:"How long the old secret is valid beside the new one"`
	}
}

// rotateHMACSecret makes a secret that replaces another and shows it. The old
// one ends in time by its row; the workflow that records it can wait.
func (s *server) rotateHMACSecret(ctx context.Context, in *rotateHMACSecretInput) (*createHMACSecretOutput, error) {
	who := principalOf(ctx)
	old, err := s.rotatableSecret(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	secret, record, err := s.newSecret(who.Tenant.ID)
	if err != nil {
		return nil, err
	}
	overlap := metering.DefaultOverlap
	if in.Body != nil && in.Body.OverlapSeconds != nil {
		overlap = time.Duration(*in.Body.OverlapSeconds) * time.Second
	}
	shown, repeated, err := once(ctx, s, in.Repeatable, "rotate-hmac-secret", in, func(within db.Creators) (HMACSecret, error) {
		now := s.Now()
		made, err := within.HMACSecrets.Rotate(ctx, who.Tenant.ID, who.Actor, old.ID, record, now.Add(overlap), now)
		return showHMACSecret(made), err
	})
	if err != nil {
		return nil, err
	}
	if repeated {
		return nil, alreadyMade(shown.ID, shown.LastFour)
	}
	if err := workflows.StartRotateHMACSecret(context.WithoutCancel(ctx), s.Temporal, who.Tenant.ID, old.ID); err != nil {
		s.Log.WarnContext(ctx, "the end of a secret's overlap will be recorded later", "error", err)
	}
	return &createHMACSecretOutput{createdHMACSecret{secret, shown}}, nil
}

// rotatableSecret is one that may do no more than who asks.
func (s *server) rotatableSecret(ctx context.Context, text string) (metering.HMACSecret, error) {
	who := principalOf(ctx)
	id, ok := metering.ParseHMACSecretID(text)
	if !ok {
		return metering.HMACSecret{}, metering.Errorf(metering.CodeNotFound, "there is no such HMAC secret")
	}
	secret, err := s.Store.HMACSecrets.Get(ctx, who.Tenant.ID, id)
	if err == nil && !within(Principal{Scope: secret.Scope}, who) {
		err = metering.Errorf(metering.CodeForbidden, "nobody can rotate a secret that may do more than themselves")
	}
	return secret, err
}

type revokeHMACSecretInput struct {
	ID string `path:"id" example:"sec_3"`
}

type revokeHMACSecretOutput struct {
	Body struct {
		ID      string `json:"id"`
		Revoked bool   `json:"revoked"`
	}
}

func (s *server) revokeHMACSecret(ctx context.Context, in *revokeHMACSecretInput) (*revokeHMACSecretOutput, error) {
	who := principalOf(ctx)
	id, ok := metering.ParseHMACSecretID(in.ID)
	if !ok {
		return nil, metering.Errorf(metering.CodeNotFound, "there is no such HMAC secret")
	}
	if err := s.Store.HMACSecrets.Revoke(ctx, who.Tenant.ID, who.Actor, id); err != nil {
		return nil, err
	}
	out := new(revokeHMACSecretOutput)
	out.Body.ID, out.Body.Revoked = id.String(), true
	return out, nil
}
