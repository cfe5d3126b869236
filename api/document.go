package api

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/metering"
)

// document is the OpenAPI document before any operation is in it.
func document() huma.Config {
	config := huma.DefaultConfig("Odometer", "1")
	config.Info.Description = "Usage metering and billing sync. Amounts and quantities are exact decimals; instants are UTC.\n\n" + numbersDescription + "\n\n" + limitsDescription
	config.Info.License = &huma.License{Name: "Apache-2.0", URL: "https://www.apache.org/licenses/LICENSE-2.0"}
	config.Servers = []*huma.Server{{URL: "/", Description: "Where this document is served"}}
	config.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	config.CreateHooks = nil // no $schema in answers
	config.DocsPath = ""
	config.SchemasPath = ""
	config.OpenAPIPath = ""
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal}
	config.Formats = map[string]huma.Format{"application/json": format, "json": format}
	config.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[metering.Decimal](), reflect.TypeFor[decimalSchema]())
	config.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[SentDecimal](), reflect.TypeFor[decimalSchema]())
	config.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[json.RawMessage](), reflect.TypeFor[objectSchema]())
	config.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[metering.Code](), reflect.TypeFor[codeSchema]())
	describeSets(config.Components.Schemas)
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"apiKey":  {Type: "http", Scheme: "bearer", Description: "An API key, such as svc_adm_ and 32 letters and digits"},
		"hmac":    {Type: "apiKey", In: "header", Name: "Authorization", Description: hmacDescription},
		"session": {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "The token of POST /v1/auth/login"},
		"cookie":  {Type: "apiKey", In: "cookie", Name: sessionCookie, Description: cookieDescription},
	}
	return config
}

// noCredential is said where none is needed: what is not said, a linter takes
// for forgotten.
var noCredential = []map[string][]string{}

// describeRefusals documents in the range of its statuses what default has for
// every error: generators and linters look for what a client can mend there.
func (s *server) describeRefusals() {
	for _, op := range operationsIn(s.api.OpenAPI()) {
		if failure := op.Responses["default"]; failure != nil {
			op.Responses["4XX"] = &huma.Response{Description: "Why the request is refused", Content: failure.Content, Headers: failure.Headers}
		}
	}
}

const numbersDescription = "Decimals are JSON numbers of any length. A client that would read them into floats sends `" + numbersHeader + ": " + asStrings +
	"`: the decimals of the answer are then strings with every digit, as /openapi-strings.json describes them"

// describeEmptyParameters documents that refuseUnknownQuery refuses an empty text.
// An empty group_by has a meaning.
func (s *server) describeEmptyParameters() {
	for _, op := range operationsIn(s.api.OpenAPI()) {
		for _, p := range op.Parameters {
			switch {
			case p.In != "query" || op.Metadata["addedTo"] == true:
			case p.Name == "group_by":
				p.AllowEmptyValue = true
			case p.Schema.Type == huma.TypeString && p.Schema.Format == "" && len(p.Schema.Enum) == 0:
				p.Schema.MinLength = new(1)
			}
		}
	}
}

const limitsDescription = "Requests are limited by the minute, which begins with the first one: those with events (`x-rate-limit: events`) by tenant, " +
	"all others that need a credential (`x-rate-limit: calls`) by credential and by tenant. Every answer after authentication says in " +
	"X-RateLimit-Limit and X-RateLimit-Remaining how the limit stands that is nearest; beyond, the answer is 429 with Retry-After"

const hmacDescription = "`HMAC v2:` and the base64 of HMAC-SHA256, keyed with the bytes of the secret as it was shown, over seven lines " +
	"without an end of line after the last: `v2`, X-Timestamp, X-Request-Id, X-Tenant-Id, the method, the path with its query as it is sent, " +
	"and the SHA-256 of the body in lower-case hexadecimals, of an empty one for GET. Or `HMAC v1:` and the same over " +
	"`<X-Timestamp>:<X-Request-Id>:<body>`; without a body it may only read, unless the tenant has set `v1_bodyless_writes`. Also needed: X-Timestamp (Unix seconds, within " +
	"300 s of the server's clock), X-Request-Id (1 to 128 of `A-Za-z0-9._-`, another for every attempt) and X-Tenant-Id (`ten_42`)"

const cookieDescription = "What POST /v1/auth/login sets in browsers; over https its name begins with __Host-. Where the method is not " +
	"GET, X-CSRF-Token must be the session's csrf_token, as POST /v1/auth/login and GET /v1/auth/session say it"

// schemaName names the body of createMeterInput CreateMeter, and that of
// totalOutput Total.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for _, suffix := range []string{"InputBody", "OutputBody"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

const decimalFormat = "decimal"

type decimalSchema struct{}

func (decimalSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeNumber, Format: decimalFormat, Description: "An exact decimal number"}
}

// codeSchema lists the error codes without closing the list.
type codeSchema struct{}

func (codeSchema) Schema(huma.Registry) *huma.Schema {
	known := slices.Sorted(maps.Keys(kinds))
	names := make([]string, 0, len(known))
	for _, code := range known {
		names = append(names, string(code))
	}
	return &huma.Schema{
		Type: huma.TypeString, Extensions: map[string]any{"x-extensible-enum": names},
		Description: "The kind of problem, for programs: " + strings.Join(names, ", ") + ". More may be added",
	}
}

// SentDecimal is a decimal of a request, or the rule that it breaks: an error
// of UnmarshalJSON would be the whole body's.
type SentDecimal struct {
	metering.Decimal
	broken error
	sent   bool
}

// UnmarshalJSON reads a JSON number; what is wrong with it, Resolve says.
func (d *SentDecimal) UnmarshalJSON(literal []byte) error {
	d.broken, d.sent = d.Decimal.UnmarshalJSON(literal), true
	return nil
}

// Resolve names the place of a decimal that breaks a rule.
func (d *SentDecimal) Resolve(_ huma.Context, place *huma.PathBuffer) []error {
	if d.broken == nil {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: place.String(), Message: d.broken.Error()}}
}

// SentText is a text that may be null, or absent, which differs.
type SentText struct {
	Text *string
	Sent bool
}

// UnmarshalJSON reads a JSON string or null.
func (s *SentText) UnmarshalJSON(literal []byte) error {
	s.Sent = true
	return json.Unmarshal(literal, &s.Text)
}

// Schema is that of the text.
func (SentText) Schema(huma.Registry) *huma.Schema {
	most := 255
	return &huma.Schema{Type: huma.TypeString, Nullable: true, MaxLength: &most}
}

type objectSchema struct{}

func (objectSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// describeStatus documents that a POST or PUT also answers with status.
func (s *server) describeStatus(path, status, description string) {
	item := s.api.OpenAPI().Paths[path]
	op := item.Post
	if op == nil {
		op = item.Put
	}
	op.Responses[status] = &huma.Response{Description: description, Content: op.Responses["200"].Content}
}
