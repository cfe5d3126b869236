package api

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/webhook"
)

type provider struct {
	ID             string                `json:"id" example:"prv_3"`
	Type           metering.ProviderKind `json:"type"`
	URL            string                `json:"url,omitempty" doc:"Of a webhook"`
	Account        string                `json:"account,omitempty" doc:"Of Stripe: the account that the key belongs to" example:"acct_1PQ2"`
	SecretLastFour string                `json:"secret_last_four" doc:"All of the secret, or of Stripe's API key, that is ever shown again"`
	ValidatedAt    time.Time             `json:"validated_at" doc:"When a signed ping was answered with 2xx, or Stripe accepted the key"`
	CreatedAt      time.Time             `json:"created_at"`
	Secret         *string               `json:"secret,omitempty" doc:"The signing secret, this once, if it was made here"`

	WebhookURL            string            `json:"webhook_url,omitempty" doc:"Of Stripe: add it there as an endpoint for webhook_events"`
	WebhookEvents         []string          `json:"webhook_events,omitempty" doc:"Of Stripe: the events to send to webhook_url"`
	WebhookSecretLastFour string            `json:"webhook_secret_last_four,omitempty" doc:"Of Stripe: all of the endpoint's signing secret that is ever shown again"`
	Mapping               map[string]string `json:"mapping,omitempty" doc:"Of Stripe: meter slugs to the prices that their usage goes to"`
}

func (s *server) showProvider(tenant metering.TenantID, p metering.Provider) provider {
	shown := provider{
		ID: p.ID.String(), Type: p.Kind, SecretLastFour: p.LastFour, ValidatedAt: p.ValidatedAt.UTC(), CreatedAt: p.CreatedAt.UTC(),
	}
	if p.Kind == metering.Webhook {
		shown.URL = p.Account
		return shown
	}
	shown.Account, shown.Mapping, shown.WebhookSecretLastFour = p.Account, p.Mapping, p.WebhookLastFour
	shown.WebhookEvents = []string{stripe.SubscriptionUpdated, stripe.InvoiceCreated, stripe.InvoiceFinalized}
	shown.WebhookURL = s.BaseURL + strings.Replace(stripeEventsPath, "{tenant_id}", tenant.String(), 1)
	return shown
}

type providerOutput struct{ Body provider }

func (s *server) getProvider(ctx context.Context, _ *struct{}) (*providerOutput, error) {
	tenant := principalOf(ctx).Tenant.ID
	p, err := s.Store.Providers.Active(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return &providerOutput{s.showProvider(tenant, p)}, nil
}

type saveProviderInput struct {
	Body struct {
		Type metering.ProviderKind `json:"type"`

		URL    string  `json:"url,omitempty" maxLength:"2048" doc:"Of a webhook: gets signed usage statements (Standard Webhooks)"`
		Secret *string `json:"secret,omitempty" maxLength:"128" doc:"Of a webhook: whsec_ and 24 to 64 bytes in base64; made here when absent"`

		SecretKey     string            `json:"secret_key,omitempty" maxLength:"255" doc:"Of Stripe: a secret or restricted API key"`
		WebhookSecret string            `json:"webhook_secret,omitempty" maxLength:"255" doc:"Of Stripe: the signing secret of the endpoint there"`
		Mapping       map[string]string `json:"mapping,omitempty" maxProperties:"1000" doc:"Of Stripe: meter slugs to ids of prices. Any other meter goes to the price with its slug as lookup key, or as meter_slug in its metadata"`
	}
}

// saveProvider stores a provider that has been seen to work.
func (s *server) saveProvider(ctx context.Context, in *saveProviderInput) (*providerOutput, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if in.Body.Type == metering.Stripe {
		return s.saveStripe(ctx, in)
	}
	return s.saveWebhook(ctx, in)
}

// check refuses what belongs to the other kind of provider, or cannot be kept.
func (in *saveProviderInput) check() error {
	foreign := []struct {
		field string
		set   bool
		kind  metering.ProviderKind
	}{
		{"url", in.Body.URL != "", metering.Webhook},
		{"secret", in.Body.Secret != nil, metering.Webhook},
		{"secret_key", in.Body.SecretKey != "", metering.Stripe},
		{"webhook_secret", in.Body.WebhookSecret != "", metering.Stripe},
		{"mapping", in.Body.Mapping != nil, metering.Stripe},
	}
	for _, f := range foreign {
		if f.set && f.kind != in.Body.Type {
			return metering.Invalid("body."+f.field, "is of a provider of type %s", f.kind)
		}
	}
	for slug, price := range in.Body.Mapping {
		if !storable(slug + price) {
			return metering.Invalid("body.mapping", "must be UTF-8 without NUL")
		}
	}
	return nil
}

func (s *server) saveWebhook(ctx context.Context, in *saveProviderInput) (*providerOutput, error) {
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
		return nil, refused(err, "it must answer a signed ping with 2xx")
	}
	sealed, err := s.Keyring.Seal(principalOf(ctx).Tenant.ID, db.ProviderSecret, []byte(*secret))
	if err != nil {
		return nil, err
	}
	out, err := s.keepProvider(ctx, metering.Provider{
		Kind: metering.Webhook, Account: in.Body.URL, SealedSecret: sealed, LastFour: lastFour(*secret), ValidatedAt: metering.Instant(now),
	})
	if err == nil && made {
		out.Body.Secret = secret
	}
	return out, err
}

// https://docs.stripe.com/webhooks#verify-official-libraries
var stripeSecret = regexp.MustCompile(`^whsec_[!-~]{8,200}$`)

func (s *server) saveStripe(ctx context.Context, in *saveProviderInput) (*providerOutput, error) {
	if !stripeSecret.MatchString(in.Body.WebhookSecret) {
		return nil, metering.Invalid("body.webhook_secret", "must be the signing secret of the endpoint at Stripe, which begins with whsec_ and is no API key")
	}
	now, tenant := s.Now(), principalOf(ctx).Tenant.ID
	account, err := s.Stripe.Validate(ctx, in.Body.SecretKey)
	if err != nil {
		return nil, refused(err, "Stripe did not answer")
	}
	key, err := s.Keyring.Seal(tenant, db.ProviderSecret, []byte(in.Body.SecretKey))
	if err != nil {
		return nil, err
	}
	hook, err := s.Keyring.Seal(tenant, db.ProviderWebhookSecret, []byte(in.Body.WebhookSecret))
	if err != nil {
		return nil, err
	}
	return s.keepProvider(ctx, metering.Provider{
		Kind: metering.Stripe, Account: account.ID, SealedSecret: key, LastFour: lastFour(in.Body.SecretKey),
		SealedWebhookSecret: hook, WebhookLastFour: lastFour(in.Body.WebhookSecret), Mapping: in.Body.Mapping, ValidatedAt: metering.Instant(now),
	})
}

func lastFour(secret string) string { return secret[len(secret)-4:] }

func (s *server) keepProvider(ctx context.Context, p metering.Provider) (*providerOutput, error) {
	who := principalOf(ctx)
	kind, err := s.Providers.Of(p.Kind)
	if err != nil {
		return nil, err
	}
	p.Statements = kind.Describe().Statements
	saved, err := s.Store.Providers.Save(ctx, who.Tenant.ID, who.Actor, p)
	if err != nil {
		return nil, err
	}
	return &providerOutput{s.showProvider(who.Tenant.ID, saved)}, nil
}

func newWebhookSecret() string {
	random := make([]byte, 32)
	rand.Read(random) // never fails, or ends the program
	return "whsec_" + base64.StdEncoding.EncodeToString(random)
}

// refused makes silence a refusal: a provider that cannot be validated now is
// not saved.
func refused(err error, why string) error {
	if metering.CodeOf(err) != metering.CodeProviderDown {
		return err
	}
	return metering.Errorf(metering.CodeProviderRefuse, "the provider could not be validated: %s", why).
		Because(fmt.Errorf("validate provider: %w", err))
}
