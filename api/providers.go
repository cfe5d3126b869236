package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// provider contains the fields that all kinds of providers share. Its map settings contains the settings of
// one kind.
type provider struct {
	ID             string                `json:"id" example:"con_3"`
	Type           metering.ProviderKind `json:"type"`
	Account        string                `json:"account,omitempty" doc:"Account at the provider that the saved secret belongs to. Absent for a provider with a URL" example:"acct_1PQ2"`
	Livemode       *bool                 `json:"livemode,omitempty" doc:"Whether the provider is in live mode, in which reports are charged. Absent if the provider has no test mode. Reports in one mode never count as billed in the other mode"`
	SecretLastFour string                `json:"secret_last_four" doc:"Last four characters of the secret"`
	ValidatedAt    time.Time             `json:"validated_at" doc:"Time at which the provider accepted the settings"`
	CreatedAt      time.Time             `json:"created_at"`

	WebhookURL            string   `json:"webhook_url,omitempty" doc:"For a provider that sends events, the URL of the endpoint to add at the provider"`
	WebhookEvents         []string `json:"webhook_events,omitempty" doc:"For a provider that sends events, the event types to send to webhook_url"`
	WebhookSecretLastFour string   `json:"webhook_secret_last_four,omitempty" doc:"For a provider that sends events, the last four characters of the endpoint's signing secret"`

	settings map[string]any
}

// MarshalJSON writes the settings as fields of the same object.
func (p provider) MarshalJSON() ([]byte, error) {
	type rest provider
	return joined(rest(p), p.settings)
}

type providerOutput struct{ Body provider }

func (s *server) registerProviders() {
	huma.Register(s.api, get("list-connectable-providers", "/v1/billing/providers", BillingRead, "List the providers that can be connected",
		"For a provider that sends events, the response contains the endpoint to create at the provider: `webhook_url` and `webhook_events`. Save the provider with "+
			"that endpoint's signing secret."), s.listConnectable)
	huma.Register(s.api, post("make-provider-secret", "/v1/billing/providers/{type}/secret", BillingWrite, "Create a secret for a provider before saving it",
		"Use this call if your receiver verifies signatures from the start, because saving the provider sends a signed ping. Install the secret in the receiver, then save the provider with it.\n\n"+
			"Returns 422 if the provider issues its own secrets."), s.makeProviderSecret)
	huma.Register(s.api, get("get-billing-provider", "/v1/billing/provider", BillingRead, "Get the billing provider",
		"Secrets are not returned, only their last four characters."), s.getProvider)
	huma.Register(s.api, s.settingsBody(put("save-billing-provider", "/v1/billing/provider", BillingWrite, "Save the billing provider",
		"The settings are tested at the provider first. Omit a secret to keep the saved secret.\n\n"+
			"The first save of a provider needs its secrets. Only a webhook's `secret` is created if you omit it.")), s.saveProvider)
	s.describeProvider()
	huma.Register(s.api, remove("delete-billing-provider", "/v1/billing/provider", BillingWrite, "Delete the billing provider",
		"Usage is still counted, but nothing is reported.\n\n"+
			"- Reports that were never sent are withdrawn. Reports with an unknown outcome count as billed until they are resolved.\n"+
			"- A provider that is saved later bills the open periods, except for the usage that another provider has billed.\n"+
			"- A billing period that closes without a provider is never billed.\n"+
			"- Returns 409 while a report is being sent, a closed period is not fully billed, or an invoice is held. The error names the cause."), s.deleteProvider)
}

func (s *server) getProvider(ctx context.Context, _ *struct{}) (*providerOutput, error) {
	tenant := principalOf(ctx).Tenant.ID
	saved, err := s.Store.Providers.Active(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return s.showProvider(tenant, saved)
}

func (s *server) showProvider(tenant metering.TenantID, saved metering.Provider) (*providerOutput, error) {
	kind, err := s.Providers.Of(saved.Kind)
	if err != nil {
		return nil, err
	}
	shown := provider{
		ID: saved.ID.String(), Type: saved.Kind, Account: saved.Account, Livemode: saved.Livemode, SecretLastFour: saved.LastFour, WebhookSecretLastFour: saved.WebhookLastFour,
		ValidatedAt: saved.ValidatedAt.UTC(), CreatedAt: saved.CreatedAt.UTC(), settings: map[string]any{},
	}
	shown.WebhookURL, shown.WebhookEvents = s.endpointOf(kind, tenant)
	for _, setting := range kind.Describe().Settings {
		addSetting(shown.settings, setting, saved)
	}
	return &providerOutput{shown}, nil
}

// endpointOf returns the URL of this API to which the provider can send a tenant's events, and the event types to
// send. It returns nothing if providers of this kind send no events.
func (s *server) endpointOf(kind providers.Provider, tenant metering.TenantID) (url string, types []string) {
	events, sends := kind.(providers.Events)
	if !sends {
		return "", nil
	}
	return s.BaseURL + providerEventsPath(kind.Describe().Kind, tenant), events.Signals().Types
}

type connectable struct {
	Type          metering.ProviderKind `json:"type"`
	Connected     bool                  `json:"connected" doc:"Whether this provider is the current billing provider"`
	WebhookURL    string                `json:"webhook_url,omitempty" doc:"For a provider that sends events, the URL of the endpoint to add at the provider. Save its signing secret as webhook_secret"`
	WebhookEvents []string              `json:"webhook_events,omitempty" doc:"For a provider that sends events, the event types to send to webhook_url"`
}

type connectablesOutput struct {
	Body struct {
		Data []connectable `json:"data"`
	}
}

// listConnectable lists the kinds of providers. For a kind that sends events, the response contains webhook_url and
// webhook_events. With these values, an operator creates an endpoint at the provider, and then saves the provider
// with the endpoint's signing secret. listConnectable itself creates nothing.
func (s *server) listConnectable(ctx context.Context, _ *struct{}) (*connectablesOutput, error) {
	tenant := principalOf(ctx).Tenant.ID
	active, err := s.Store.Providers.Active(ctx, tenant)
	if err != nil && metering.CodeOf(err) != metering.CodeNoProvider {
		return nil, err
	}
	out := new(connectablesOutput)
	for _, kind := range s.Providers.Kinds() {
		one, err := s.Providers.Of(kind)
		if err != nil {
			return nil, err
		}
		url, events := s.endpointOf(one, tenant)
		out.Body.Data = append(out.Body.Data, connectable{kind, active.Kind == kind, url, events})
	}
	return out, nil
}

type makeProviderSecretInput struct {
	Type metering.ProviderKind `path:"type" example:"webhook"`
}

type providerSecretOutput struct {
	Body struct {
		Secret string `json:"secret" doc:"The new secret. Odometer does not store the secret: install it in the receiver, then save the provider with it"`
	}
}

// makeProviderSecret returns a new secret to install in a receiver before the provider is saved. Saving sends
// a signed ping, which the receiver can then verify.
func (s *server) makeProviderSecret(_ context.Context, in *makeProviderSecretInput) (*providerSecretOutput, error) {
	if kind, err := s.Providers.Of(in.Type); err == nil {
		if setting, _ := kind.Describe().Setting(providers.CallSecret); setting.Make != nil {
			out := new(providerSecretOutput)
			out.Body.Secret = setting.Make()
			return out, nil
		}
	}
	return nil, metering.Invalid("path.type", "must be a provider type with a secret that is created here")
}

// addSetting adds the saved value of a setting. Secrets are not shown.
func addSetting(shown map[string]any, setting providers.Setting, saved metering.Provider) {
	text := func(value string) {
		if value != "" {
			shown[setting.Name] = value
		}
	}
	mapping := func(values map[string]string) {
		if len(values) > 0 {
			shown[setting.Name] = values
		}
	}
	switch setting.Use {
	case providers.Address:
		shown[setting.Name] = saved.Address
	case providers.Mapping:
		mapping(saved.Mapping)
	case providers.Bills:
		text(string(saved.Bills))
	case providers.Product:
		text(saved.Text.Product)
	case providers.Products:
		mapping(saved.Text.Products)
	case providers.TaxBehavior:
		text(saved.Text.TaxBehavior)
	case providers.TaxCode:
		text(saved.Text.TaxCode)
	case providers.CollectionMethod:
		text(saved.Text.CollectionMethod)
	case providers.DaysUntilDue:
		if saved.Text.DaysUntilDue > 0 {
			shown[setting.Name] = saved.Text.DaysUntilDue
		}
	}
}

// saveProviderInput contains the settings of one provider, with the kind of the provider in `type`.
type saveProviderInput struct{ Body map[string]any }

// saveProvider stores a provider after the provider has accepted the settings.
func (s *server) saveProvider(ctx context.Context, in *saveProviderInput) (*providerOutput, error) {
	name, _ := in.Body[providerType].(string)
	kind, err := s.Providers.Of(metering.ProviderKind(name))
	if err != nil {
		return nil, err
	}
	if err := s.refuseForeign(kind.Describe(), in.Body); err != nil {
		return nil, err
	}
	given, err := s.readSettings(kind.Describe(), in.Body)
	if err != nil {
		return nil, err
	}
	if err := s.addSecrets(ctx, kind.Describe(), in.Body, &given); err != nil {
		return nil, err
	}
	if a := s.minutes.take(ctx, "provider-saves:"+principalOf(ctx).Tenant.ID.String(), savesOfTenant); !a.allowed {
		return nil, tooMany(a, "a tenant can save its billing provider at most %d times a minute", savesOfTenant)
	}
	identity, err := kind.Validate(ctx, given.Settings, given.Secrets)
	if err != nil {
		return nil, given.validationError(err)
	}
	if err := given.refuseReusedSecret(kind.Describe(), identity); err != nil {
		return nil, err
	}
	out, err := s.storeProvider(ctx, kind.Describe(), identity, given)
	if err == nil && given.made != "" {
		out.Body.settings[given.made] = given.Call
	}
	return out, err
}

// savesOfTenant is the number of times per minute that a tenant can save its billing provider. Each save calls the
// provider, and all tenants call it from the same address.
const savesOfTenant = 20

// storeProvider encrypts the secrets of a validated provider, stores the provider and returns it as a response.
func (s *server) storeProvider(ctx context.Context, about providers.Description, identity providers.Identity, in sentProvider) (*providerOutput, error) {
	who := principalOf(ctx)
	p := metering.Provider{
		Kind: about.Kind, Statements: about.Statements, Invoices: about.Invoices, Account: identity.Account, Livemode: livemode(identity.Mode), Address: in.Address,
		Mapping: in.Mapping, Bills: in.Bills, Text: in.Text, ValidatedAt: metering.Instant(in.Now), LastFour: lastFour(in.Call), WebhookLastFour: lastFour(in.Event),
	}
	var err error
	if p.SealedSecret, err = s.Keyring.Seal(who.Tenant.ID, seal.ProviderSecret, []byte(in.Call)); err != nil {
		return nil, err
	}
	if in.Event != "" {
		if p.SealedWebhookSecret, err = s.Keyring.Seal(who.Tenant.ID, seal.ProviderWebhookSecret, []byte(in.Event)); err != nil {
			return nil, err
		}
	}
	save := s.Store.Providers.Save
	if in.anew {
		save = s.Store.Providers.Begin
	}
	saved, err := save(ctx, who.Tenant.ID, who.Actor, p)
	if err != nil {
		return nil, err
	}
	return s.showProvider(who.Tenant.ID, saved)
}

type deleteProviderOutput struct {
	Body struct {
		Deleted bool `json:"deleted"`
	}
}

// deleteProvider deletes the billing provider, so that no more usage is reported.
func (s *server) deleteProvider(ctx context.Context, _ *struct{}) (*deleteProviderOutput, error) {
	who := principalOf(ctx)
	if err := s.Store.Providers.Delete(ctx, who.Tenant.ID, who.Actor, s.Now()); err != nil {
		return nil, err
	}
	out := new(deleteProviderOutput)
	out.Body.Deleted = true
	return out, nil
}

// livemode reports whether the mode is live. It returns nil if the provider has no modes.
func livemode(m providers.Mode) *bool {
	if m == "" {
		return nil
	}
	live := m == providers.Live
	return &live
}

// lastFour returns the last four characters of a secret, or nothing if the secret has eight or fewer.
func lastFour(secret string) string {
	const shown = 4
	if len(secret) <= 2*shown {
		return ""
	}
	return secret[len(secret)-shown:]
}
