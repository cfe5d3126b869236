package api

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
)

type provider struct {
	ID             string                `json:"id" example:"prv_3"`
	Type           metering.ProviderKind `json:"type" enum:"webhook"`
	URL            string                `json:"url"`
	SecretLastFour string                `json:"secret_last_four" doc:"All of the secret that is ever shown again"`
	ValidatedAt    time.Time             `json:"validated_at" doc:"When a signed ping was answered with 2xx"`
	CreatedAt      time.Time             `json:"created_at"`
	Secret         *string               `json:"secret,omitempty" doc:"The signing secret, this once, if it was made here"`
}

func showProvider(p metering.Provider) provider {
	return provider{
		ID: p.ID.String(), Type: p.Kind, URL: p.Account, SecretLastFour: p.LastFour,
		ValidatedAt: p.ValidatedAt.UTC(), CreatedAt: p.CreatedAt.UTC(),
	}
}

type providerOutput struct{ Body provider }

func (s *server) getProvider(ctx context.Context, _ *struct{}) (*providerOutput, error) {
	p, err := s.Store.Providers.Active(ctx, principalOf(ctx).Tenant.ID)
	if err != nil {
		return nil, err
	}
	return &providerOutput{showProvider(p)}, nil
}

type saveProviderInput struct {
	Body struct {
		Type   metering.ProviderKind `json:"type" enum:"webhook"`
		URL    string                `json:"url" maxLength:"2048" doc:"Gets signed usage snapshots (Standard Webhooks)"`
		Secret *string               `json:"secret,omitempty" maxLength:"128" doc:"whsec_ and 24 to 64 bytes in base64; made here when absent"`
	}
}

// saveProvider stores a provider that has answered a signed ping.
func (s *server) saveProvider(ctx context.Context, in *saveProviderInput) (*providerOutput, error) {
	secret, made := in.Body.Secret, false
	if secret == nil {
		fresh := newWebhookSecret()
		secret, made = &fresh, true
	}
	if err := webhook.CheckSecret("body.secret", *secret); err != nil {
		return nil, err
	}
	if err := s.Guard.CheckURL("body.url", in.Body.URL); err != nil {
		return nil, err
	}
	now := s.Now()
	if err := s.Webhook.Ping(ctx, in.Body.URL, *secret, now); err != nil {
		return nil, refused(err)
	}
	who := principalOf(ctx)
	sealed, err := s.Keyring.Seal(who.Tenant.ID, db.ProviderSecret, []byte(*secret))
	if err != nil {
		return nil, err
	}
	saved, err := s.Store.Providers.Save(ctx, who.Tenant.ID, who.Actor, metering.Provider{
		Kind: in.Body.Type, Account: in.Body.URL, SealedSecret: sealed,
		LastFour: (*secret)[len(*secret)-4:], ValidatedAt: metering.Instant(now),
	})
	if err != nil {
		return nil, err
	}
	out := &providerOutput{showProvider(saved)}
	if made {
		out.Body.Secret = secret
	}
	return out, nil
}

func newWebhookSecret() string {
	random := make([]byte, 32)
	rand.Read(random) // never fails, or ends the program
	return "whsec_" + base64.StdEncoding.EncodeToString(random)
}

// refused makes silence a refusal: a provider that cannot be validated now is
// not saved.
func refused(err error) error {
	if metering.CodeOf(err) != metering.CodeProviderDown {
		return err
	}
	return metering.Errorf(metering.CodeProviderRefuse, "the provider could not be validated: it must answer a signed ping with 2xx").
		Because(fmt.Errorf("ping: %w", err))
}
