package api

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// document returns the configuration of the OpenAPI document, without operations.
func document() huma.Config {
	config := huma.DefaultConfig("Odometer", "1")
	config.Info.Description = "Usage metering and billing. Amounts and quantities are exact decimals. Times in responses are UTC.\n\n" + numbersDescription + "\n\n" + limitsDescription
	config.Info.License = &huma.License{Name: "Apache-2.0", URL: "https://www.apache.org/licenses/LICENSE-2.0"}
	config.Servers = []*huma.Server{{URL: "/", Description: "The server of this document"}}
	config.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	config.CreateHooks = nil // no $schema in responses
	config.DocsPath = ""
	config.SchemasPath = ""
	config.OpenAPIPath = ""
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal}
	config.Formats = map[string]huma.Format{"application/json": format, "json": format}
	config.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[metering.Decimal](), reflect.TypeFor[decimalSchema]())
	config.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[SentDecimal](), reflect.TypeFor[decimalSchema]())
	config.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[json.RawMessage](), reflect.TypeFor[objectSchema]())
	config.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[metering.Code](), reflect.TypeFor[codeSchema]())
	config.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[metering.FilterValue](), reflect.TypeFor[filterValueSchema]())
	config.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[metering.Scalar](), reflect.TypeFor[scalarSchema]())
	describeSets(config.Components.Schemas)
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"apiKey":  {Type: "http", Scheme: "bearer", Description: "An API key: 'svc_', the scope, '_' and 32 letters or digits, such as 'svc_adm_…'"},
		"hmac":    {Type: "apiKey", In: "header", Name: "Authorization", Description: hmacDescription},
		"session": {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "The token of POST /v1/auth/login"},
		"cookie":  {Type: "apiKey", In: "cookie", Name: sessionCookie, Description: cookieDescription},
	}
	return config
}

// noCredential declares in the document that an operation needs no credential. Without this declaration, linters
// report the operation.
var noCredential = []map[string][]string{}

// describeRefusals documents the default error response also under 4XX, because client generators and linters
// expect client errors there.
func (s *server) describeRefusals() {
	for _, op := range operationsIn(s.api.OpenAPI()) {
		if failure := op.Responses["default"]; failure != nil {
			op.Responses["4XX"] = &huma.Response{Description: "The request is refused", Content: failure.Content, Headers: failure.Headers}
		}
	}
}

const numbersDescription = "Decimals are JSON numbers of any length. If your JSON reader has only floats, send the header `" + numbersHeader + ": " + asStrings +
	"`. The decimals of the response are then strings with every digit, as `/openapi-strings.json` describes."

// describeEmptyParameters documents that query parameters must not be empty, because refuseUnknownQuery refuses
// empty values. The exception is group_by, because an empty group_by has a meaning.
func (s *server) describeEmptyParameters() {
	for _, op := range operationsIn(s.api.OpenAPI()) {
		for _, p := range op.Parameters {
			switch {
			case p.In != "query" || op.Metadata["ignoresUnknownQuery"] == true:
			case p.Name == "group_by":
				p.AllowEmptyValue = true
			case p.Schema.Type == huma.TypeString && p.Schema.Format == "" && len(p.Schema.Enum) == 0:
				p.Schema.MinLength = new(1)
			}
		}
	}
}

const limitsDescription = "Requests are limited per minute. The minute begins with the first request.\n\n" +
	"- `x-rate-limit: events`: requests with events, per tenant.\n" +
	"- `x-rate-limit: calls`: all other requests with a credential, per credential and per tenant.\n\n" +
	"`X-RateLimit-Limit` and `X-RateLimit-Remaining` of each authenticated response show the limit with the fewest requests left. " +
	"Beyond the limit, the request returns 429 with `Retry-After`."

const hmacDescription = "`HMAC v2:` followed by a signature in base64. The signature is the HMAC-SHA256 of seven lines. " +
	"The key is the secret as it was shown. The last line has no line end:\n\n" +
	"1. `v2`\n2. X-Timestamp\n3. X-Request-Id\n4. X-Tenant-Id\n5. The method\n6. The path and query as sent\n" +
	"7. The SHA-256 of the body in lower-case hexadecimal; for GET, of an empty body\n\n" +
	"These headers are required:\n\n" +
	"- X-Timestamp: Unix seconds, within 300 seconds of the server's clock\n" +
	"- X-Request-Id: 1 to 128 of `A-Za-z0-9._-`, new for every attempt\n" +
	"- X-Tenant-Id: such as `ten_42`\n\n" +
	"`HMAC v1:` signs `<X-Timestamp>:<X-Request-Id>:<body>` instead. Without a body, a v1 request can only read, " +
	"unless the tenant has set `v1_bodyless_writes`."

const cookieDescription = "The session cookie that `POST /v1/auth/login` sets in browsers. With https its name begins with `__Host-`. " +
	"For every method except GET, send the session's `csrf_token` in X-CSRF-Token. " +
	"`POST /v1/auth/login` and `GET /v1/auth/session` return it."

// schemaName returns the name of a schema without the suffixes InputBody and OutputBody. The schema of the body
// of createMeterInput is therefore CreateMeter.
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

// codeSchema is the schema of error codes. It lists the known codes and allows other codes, so that a later
// version can add codes.
type codeSchema struct{}

func (codeSchema) Schema(huma.Registry) *huma.Schema {
	known := slices.Sorted(maps.Keys(kinds))
	names := make([]string, 0, len(known))
	for _, code := range known {
		names = append(names, string(code))
	}
	return &huma.Schema{
		Type: huma.TypeString, Extensions: map[string]any{"x-extensible-enum": names},
		Description: "Error code for programs: '" + strings.Join(names, "', '") + "'. Future versions can add codes",
	}
}

// SentDecimal is a decimal in a request. UnmarshalJSON cannot report the location of an error in the body, so
// broken retains the error until Resolve reports it.
type SentDecimal struct {
	metering.Decimal
	broken error
	sent   bool
}

// UnmarshalJSON reads a JSON number. It always returns nil, and Resolve reports the error.
func (d *SentDecimal) UnmarshalJSON(literal []byte) error {
	d.broken, d.sent = d.Decimal.UnmarshalJSON(literal), true
	return nil
}

// Resolve returns the error of UnmarshalJSON with the location of the decimal in the body.
func (d *SentDecimal) Resolve(_ huma.Context, place *huma.PathBuffer) []error {
	if d.broken == nil {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: place.String(), Message: d.broken.Error()}}
}

// SentText is a text in a request. Sent distinguishes null from an absent field.
type SentText struct {
	Text *string
	Sent bool
}

// UnmarshalJSON reads a JSON string or null.
func (s *SentText) UnmarshalJSON(literal []byte) error {
	s.Sent = true
	return json.Unmarshal(literal, &s.Text)
}

// Schema returns the schema of a nullable text.
func (SentText) Schema(huma.Registry) *huma.Schema {
	most := 255
	return &huma.Schema{Type: huma.TypeString, Nullable: true, MaxLength: &most}
}

// filterValueSchema is the schema of filter values. It declares no type, because client generators would create
// one type for each alternative.
type filterValueSchema struct{}

func (filterValueSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "A string, a number or a boolean"}
}

type objectSchema struct{}

func (objectSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// describeStatus documents an additional success status of a POST or PUT.
func (s *server) describeStatus(path, status, description string) {
	item := s.api.OpenAPI().Paths[path]
	op := item.Post
	if op == nil {
		op = item.Put
	}
	op.Responses[status] = &huma.Response{Description: description, Content: op.Responses["200"].Content}
}

// documents has the three forms of the OpenAPI document: 3.1, 3.0, and 3.1 with decimals as strings. Each form
// is built at its first request and cached. The 3.0 form takes three times as long to build as the 3.1 form.
type documents struct{ v31, v30, strings func() ([]byte, error) }

func (s *server) registerDocuments() {
	documents := s.documents()
	s.mux.HandleFunc("GET /openapi.json", s.serveDocument(documents.v31))
	s.mux.HandleFunc("GET /openapi-3.0.json", s.serveDocument(documents.v30))
	s.mux.HandleFunc("GET /openapi-strings.json", s.serveDocument(documents.strings))
}

func (s *server) documents() documents {
	whole := sync.OnceValues(func() (huma.OpenAPI, error) {
		whole := *s.api.OpenAPI()
		markAllNames(&whole)
		return whole, exemplify(&whole)
	})
	return documents{
		v31: sync.OnceValues(func() ([]byte, error) {
			document, err := whole()
			if err != nil {
				return nil, err
			}
			return document.MarshalJSON()
		}),
		v30: sync.OnceValues(func() ([]byte, error) {
			document, err := whole()
			if err != nil {
				return nil, err
			}
			document.Webhooks = nil // new in 3.1
			return document.Downgrade()
		}),
		strings: sync.OnceValues(func() ([]byte, error) {
			document, err := whole()
			if err != nil {
				return nil, err
			}
			return stringsDocument(&document, s.decimals)
		}),
	}
}

// serveDocument returns a handler for a document that does not change while the process runs.
func (s *server) serveDocument(document func() ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := document()
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/openapi+json")
		if _, err := w.Write(text); err != nil {
			exchangeOf(r.Context()).err = err
		}
	}
}

//go:generate sh -c "go run ../cmd/odometer openapi >openapi.json.new && mv openapi.json.new openapi.json"
//go:generate sh -c "go run ../cmd/odometer openapi -3.0 >openapi-3.0.json.new && mv openapi-3.0.json.new openapi-3.0.json"

// Documents returns the OpenAPI document of an API with these providers in versions 3.1 and 3.0, indented.
func Documents(kinds providers.Registry) (v31, v30 []byte, err error) {
	d := newServer(Deps{Providers: kinds}).documents()
	if v31, err = d.v31(); err != nil {
		return nil, nil, err
	}
	v30, err = d.v30()
	return indented(v31), indented(v30), err
}

// StringsDocument returns the OpenAPI document in which the decimals of responses are strings, indented.
func StringsDocument(kinds providers.Registry) ([]byte, error) {
	text, err := newServer(Deps{Providers: kinds}).documents().strings()
	return indented(text), err
}

func indented(text []byte) []byte {
	var pretty bytes.Buffer
	if json.Indent(&pretty, text, "", "  ") != nil {
		return text
	}
	pretty.WriteByte('\n')
	return pretty.Bytes()
}

// operationsIn returns the operations of all paths and webhooks in a document.
func operationsIn(document *huma.OpenAPI) (all []*huma.Operation) {
	for _, items := range []map[string]*huma.PathItem{document.Paths, document.Webhooks} {
		for _, item := range items {
			for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
				if op != nil {
					all = append(all, op)
				}
			}
		}
	}
	return all
}
