package api

import (
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

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
