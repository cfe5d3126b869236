package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// Fields of the request that saves a provider, in addition to the provider's settings. newReceiver states
// whether the provider's URL belongs to a new receiver.
const (
	providerType = "type"
	newReceiver  = "new_receiver"
)

// settingsBody sets the schema of the request body of an operation that saves a provider.
func (s *server) settingsBody(op huma.Operation) huma.Operation {
	schema := &huma.Schema{
		Type: huma.TypeObject, Required: []string{providerType}, AdditionalProperties: false,
		Properties: map[string]*huma.Schema{providerType: s.kindSchema(), newReceiver: {
			Type: huma.TypeBoolean, Description: "Only for a provider with a URL. 'true': the URL belongs to a new receiver, which gets only usage that other connections have not billed. " +
				"'false': the URL belongs to the receiver that had the URL before, or else to the latest receiver, which has moved to this URL. The statements of that receiver continue. " +
				"Saving the same URL again keeps the receiver",
		}},
	}
	s.eachSetting(func(setting providers.Setting) {
		if shared, is := schema.Properties[setting.Name]; is {
			shared.Description += ". " + setting.Doc
			return
		}
		schema.Properties[setting.Name] = sentSetting(setting)
	})
	schema.PrecomputeMessages()
	s.api.OpenAPI().Components.Schemas.Map()["SaveProvider"] = schema
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: &huma.Schema{Ref: "#/components/schemas/SaveProvider"}},
	}}
	return op
}

// describeProvider adds the settings to the schema of a provider in responses. Secrets are excluded, except those
// that Odometer creates.
func (s *server) describeProvider() {
	schemas := s.api.OpenAPI().Components.Schemas.Map()
	schemas["Connectable"].Properties[providerType] = s.kindSchema()
	shown := schemas["Provider"].Properties
	shown[providerType] = s.kindSchema()
	s.eachSetting(func(setting providers.Setting) {
		if setting.Make != nil {
			shown[setting.Name] = &huma.Schema{Type: huma.TypeString, Description: "The secret, if Odometer created it. The secret is shown only in this response"}
		}
		if setting.Use.Shown() {
			schema := settingSchema(setting)
			schema.MaxLength, schema.MaxProperties, schema.Minimum, schema.Maximum = nil, nil, nil, nil
			if setting.Use.Maps() {
				schema.AdditionalProperties = &huma.Schema{Type: huma.TypeString}
			}
			shown[setting.Name] = schema
		}
	})
}

func (s *server) eachSetting(do func(providers.Setting)) {
	for _, kind := range s.Providers.Kinds() {
		for _, setting := range s.Providers[kind].Describe().Settings {
			do(setting)
		}
	}
}

func (s *server) kindSchema() *huma.Schema {
	schema := &huma.Schema{Type: huma.TypeString}
	for _, kind := range s.Providers.Kinds() {
		schema.Enum = append(schema.Enum, string(kind))
	}
	return schema
}

// sentSetting returns the schema of a setting in a request.
func sentSetting(setting providers.Setting) *huma.Schema {
	schema := settingSchema(setting)
	if setting.InRequest != "" {
		schema.Description += ". " + setting.InRequest
	}
	if setting.Use == providers.CallSecret || setting.Use == providers.EventSecret {
		schema.Description += ". Default: the saved value"
	}
	return schema
}

func settingSchema(setting providers.Setting) *huma.Schema {
	if setting.Use.Maps() {
		return &huma.Schema{
			Type: huma.TypeObject, Description: setting.Doc, MaxProperties: &setting.MaxLength,
			AdditionalProperties: &huma.Schema{Type: huma.TypeString, MaxLength: new(maxMapped)},
		}
	}
	if setting.Max > 0 {
		return &huma.Schema{Type: huma.TypeInteger, Description: setting.Doc, Minimum: new(float64(1)), Maximum: new(float64(setting.Max))}
	}
	schema := &huma.Schema{Type: huma.TypeString, Description: setting.Doc}
	if setting.MaxLength > 0 {
		schema.MaxLength = &setting.MaxLength
	}
	for _, value := range setting.Values {
		schema.Enum = append(schema.Enum, value)
	}
	return schema
}

// maxMapped is the maximum length in characters of a value in a setting that maps meter slugs. A provider's ids are
// shorter.
const maxMapped = 255

// joined returns the JSON of an object with additional fields.
func joined(object any, additional map[string]any) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil || len(additional) == 0 {
		return text, err
	}
	rest, err := json.Marshal(additional)
	if err != nil {
		return nil, err
	}
	return append(append(text[:len(text)-1], ','), rest[1:]...), nil
}

// sentProvider contains the settings in a request that saves a provider.
type sentProvider struct {
	providers.Settings
	providers.Secrets
	anew bool               // save a new receiver instead of updating a saved one
	made string             // name of the setting for which a secret was created here
	last *metering.Provider // saved provider that supplies the event secret; nil: no event secret is reused
}

// readSettings returns the settings in a body that has passed schema validation.
func (s *server) readSettings(about providers.Description, body map[string]any) (in sentProvider, err error) {
	in.Now = s.Now()
	in.anew, _ = body[newReceiver].(bool)
	for _, setting := range about.Settings {
		text, _ := body[setting.Name].(string)
		switch setting.Use {
		case providers.Address:
			in.Address, err = text, s.Guard.CheckURL(setting.Location(), text)
		case providers.Mapping:
			in.Mapping, err = mappingOf(setting, body[setting.Name])
		case providers.Bills:
			in.Bills = metering.Bills(text)
		case providers.EventSecret:
			in.Event = text
		case providers.CallSecret:
			in.Call = text
		}
		if err != nil {
			return in, err
		}
	}
	return in, in.readText(about, body)
}

// readText reads the settings of invoice lines from a body. If the body has such a setting, it must also have
// the setting `bills`.
func (in *sentProvider) readText(about providers.Description, body map[string]any) (err error) {
	for _, setting := range about.Settings {
		if !setting.Use.OfLines() || !isGiven(setting, body) {
			continue
		}
		text, _ := body[setting.Name].(string)
		switch setting.Use {
		case providers.Product:
			in.Text.Product = text
		case providers.Products:
			in.Text.Products, err = mappingOf(setting, body[setting.Name])
		case providers.TaxBehavior:
			in.Text.TaxBehavior = text
		case providers.TaxCode:
			in.Text.TaxCode = text
		case providers.CollectionMethod:
			in.Text.CollectionMethod = text
		case providers.DaysUntilDue:
			days, _ := body[setting.Name].(float64) // the schema allows whole numbers only
			in.Text.DaysUntilDue = int64(days)
		}
		switch bills, _ := about.Setting(providers.Bills); {
		case err != nil:
			return err
		case !storable(text):
			return metering.Invalid(setting.Location(), "must be UTF-8 without NUL")
		case in.Bills == "":
			return metering.Invalid(setting.Location(), "needs %s in the same request; omit both to keep the saved values", bills.Name)
		}
	}
	return nil
}

// addSecrets adds the secrets that the body omits. It reuses a saved secret. If no secret is saved, it
// creates one, provided that Odometer may create secrets for this kind of provider.
func (s *server) addSecrets(ctx context.Context, about providers.Description, body map[string]any, in *sentProvider) error {
	for _, setting := range about.Settings {
		secret := setting.Use == providers.CallSecret || setting.Use == providers.EventSecret
		if !secret || isGiven(setting, body) {
			continue
		}
		kept, err := s.reuseSecret(ctx, about, setting, in)
		switch {
		case err != nil:
			return err
		case kept:
		case setting.Make != nil:
			in.Call, in.made = setting.Make(), setting.Name
		default:
			return metering.Invalid(setting.Location(), "is required when a provider of type %s is saved for the first time", about.Kind)
		}
	}
	return nil
}

// reuseSecret copies the secret of a saved provider of this kind to in, and reports whether it found one. It prefers
// the provider at in.Address, then the active provider, then the last retired one. A new receiver reuses only
// the secret of the active provider at its address.
func (s *server) reuseSecret(ctx context.Context, about providers.Description, setting providers.Setting, in *sentProvider) (kept bool, err error) {
	tenant := principalOf(ctx).Tenant.ID
	last, err := s.Store.Providers.Last(ctx, tenant, about.Kind, in.Address, in.anew)
	if metering.CodeOf(err) == metering.CodeNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sealed, purpose := last.SealedSecret, seal.ProviderSecret
	if setting.Use == providers.EventSecret {
		sealed, purpose, in.last = last.SealedWebhookSecret, seal.ProviderWebhookSecret, &last
	}
	if len(sealed) == 0 {
		return false, nil
	}
	secret, err := s.Keyring.Open(tenant, purpose, sealed)
	if err != nil {
		return false, metering.Invalid(setting.Location(), "is required, because the saved secret cannot be decrypted with this server's keys").Because(err)
	}
	if setting.Use == providers.EventSecret {
		in.Event = string(secret)
	} else {
		in.Call = string(secret)
	}
	return true, nil
}

// refuseReusedSecret returns an error if the reused event secret belongs to another account or mode. The events of
// this account are signed with a different secret.
func (in sentProvider) refuseReusedSecret(about providers.Description, identity providers.Identity) error {
	setting, has := about.Setting(providers.EventSecret)
	if !has || in.last == nil || in.last.Account == identity.Account && sameMode(in.last.Livemode, livemode(identity.Mode)) {
		return nil
	}
	return metering.Invalid(setting.Location(), "is required, because the saved secret belongs to another account or mode")
}

// sameMode reports whether two modes are equal. A nil mode equals only a nil mode.
func sameMode(a, b *bool) bool { return a == b || a != nil && b != nil && *a == *b }

// mappingOf reads a setting that maps slugs of meters to texts from a request body.
func mappingOf(setting providers.Setting, value any) (map[string]string, error) {
	object, _ := value.(map[string]any)
	mapping := make(map[string]string, len(object))
	for slug, price := range object {
		if len(slug) > metering.MaxSlugBytes {
			return nil, metering.Invalid(setting.Location(), "must have slugs of meters as names, which have at most %d characters", metering.MaxSlugBytes)
		}
		mapping[slug], _ = price.(string)
		if !storable(slug + mapping[slug]) {
			return nil, metering.Invalid(setting.Location(), "must be UTF-8 without NUL")
		}
	}
	return mapping, nil
}

// refuseForeign returns an error if the body has a setting that only other kinds of providers have.
func (s *server) refuseForeign(about providers.Description, body map[string]any) error {
	if _, has := about.Setting(providers.Address); !has && body[newReceiver] == true {
		return metering.Invalid("body."+newReceiver, "is only for a provider with a URL; another account or mode is always a separate connection")
	}
	own := map[string]bool{}
	for _, setting := range about.Settings {
		own[setting.Name] = true
	}
	for _, kind := range s.Providers.Kinds() {
		for _, setting := range s.Providers[kind].Describe().Settings {
			if !own[setting.Name] && isGiven(setting, body) {
				return metering.Invalid(setting.Location(), "is only for a provider of type %s", kind)
			}
		}
	}
	return nil
}

// isGiven reports whether a body has a setting. An empty text counts as absent, unless it is a secret
// that can be created here.
func isGiven(setting providers.Setting, body map[string]any) bool {
	value, has := body[setting.Name]
	return has && (value != "" || setting.Make != nil)
}

// validationError converts the error of a failed validation. If the provider did not respond, the result has
// CodeProviderRefuse, because a provider that cannot be validated is not saved. If the provider refused a secret that
// Odometer created for this request, the error names three steps: create a secret, install it in the receiver, save
// it.
func (in sentProvider) validationError(err error) error {
	var refused *metering.Error
	switch {
	case !errors.As(err, &refused):
		return err
	case refused.Code == metering.CodeProviderDown:
		return metering.Errorf(metering.CodeProviderRefuse, "the provider could not be validated: %s", refused.Message).
			Because(fmt.Errorf("validate provider: %w", err))
	case refused.Code == metering.CodeProviderRefuse && in.made != "":
		return metering.Errorf(metering.CodeProviderRefuse, "%s. The request has no %[2]s. If the receiver verifies signatures, create one with "+
			"POST /v1/billing/providers/{type}/secret, install it in the receiver, and save it as %[2]s", refused.Message, in.made).Because(err)
	}
	return err
}
