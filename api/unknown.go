package api

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/metering"
)

// filterParameter is the name under which the OpenAPI document describes all parameters with the prefix
// metering.FilterPrefix. Requests cannot use this name.
const filterParameter = "filter"

// filtering makes an operation accept parameters with the prefix metering.FilterPrefix, and documents them.
func filtering(op huma.Operation) huma.Operation {
	op.Metadata["filtering"] = true
	explode := true
	op.Parameters = append(op.Parameters, &huma.Param{
		Name: filterParameter, In: "query", Style: "form", Explode: &explode,
		Description: "Filters by property. Send each filter as a separate parameter `filter.<property>=value`. The keys of this object are the names of the parameters. Several values of one property are alternatives: repeat the parameter.",
		Schema:      &huma.Schema{Type: huma.TypeObject, AdditionalProperties: &huma.Schema{Type: huma.TypeString}},
		Example:     map[string]string{metering.FilterPrefix + "model": "large"},
	})
	return op
}

// ignoringUnknownQuery makes an operation ignore unknown query parameters. An OIDC issuer can add parameters to its
// redirect, and a mail program can add tracking parameters to a link.
func ignoringUnknownQuery(op huma.Operation) huma.Operation {
	op.Metadata["ignoresUnknownQuery"] = true
	return op
}

// refuseUnknown refuses a request with a query parameter, body, encoding or header that the operation would
// ignore.
func (s *server) refuseUnknown(ctx huma.Context, next func(huma.Context)) {
	request := exchangeOf(ctx.Context()).request
	err := refuseUnknownQuery(ctx.Operation(), request.URL.RawQuery)
	if err == nil {
		err = refuseUnusedBody(ctx.Operation(), request)
	}
	if err == nil {
		err = refuseEncodedBody(ctx.Operation(), request)
	}
	if err == nil {
		err = refuseUnusedKey(ctx.Operation(), request)
	}
	if err != nil {
		s.refuseOperation(ctx, err)
		return
	}
	next(ctx)
}

func refuseUnknownQuery(op *huma.Operation, raw string) error {
	if raw == "" || op.Metadata["ignoresUnknownQuery"] == true {
		return nil
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return metering.Invalid("query", "must be percent-encoded name=value pairs, separated by &")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if op.Metadata["filtering"] == true && strings.HasPrefix(name, metering.FilterPrefix) {
			continue
		}
		location := shortened("query." + strings.ToValidUTF8(name, "�"))
		if !slices.Contains(queryParameters(op), name) {
			return metering.Invalid(location, "is not a parameter of this operation%s", offered(op))
		}
		if len(query[name]) > 1 && !isRepeatable(op, name) {
			return metering.Invalid(location, "must be given once")
		}
		if slices.Contains(query[name], "") && !allowsEmpty(op, name) {
			return metering.Invalid(location, "must not be empty; omit the parameter if it has no value")
		}
	}
	return nil
}

// isRepeatable reports whether a query parameter is an array. An array repeats the name of the parameter.
func isRepeatable(op *huma.Operation, name string) bool {
	return slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool {
		return p.In == "query" && p.Name == name && p.Schema.Type == huma.TypeArray
	})
}

// refuseEncodedBody refuses a body with a Content-Encoding other than identity.
func refuseEncodedBody(op *huma.Operation, request *http.Request) error {
	if op.Method == http.MethodGet {
		return nil
	}
	for encoding := range strings.SplitSeq(strings.Join(request.Header.Values("Content-Encoding"), ","), ",") {
		if encoding = strings.TrimSpace(encoding); encoding != "" && !strings.EqualFold(encoding, "identity") {
			return metering.Errorf(codeMediaType, "Content-Encoding must be absent or identity: send the body as plain JSON")
		}
	}
	return nil
}

// refuseUnusedKey refuses an Idempotency-Key that a POST would ignore, because the caller would expect a
// repeat to be safe. It also refuses a repeated or an empty key. Other methods are safe to repeat. Requests of billing
// providers are exempt, because a provider's headers cannot be changed.
func refuseUnusedKey(op *huma.Operation, request *http.Request) error {
	const location = "header." + idempotencyHeader
	keys := request.Header.Values(idempotencyHeader)
	switch honoured := slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.In == "header" && p.Name == idempotencyHeader }); {
	case len(keys) == 0, op.Method != http.MethodPost, op.Path == providerEventsRoute:
		return nil
	case !honoured && strings.HasPrefix(op.Path, eventsPath):
		return metering.Invalid(location, "must be absent: give each event an idempotency_key instead")
	case !honoured:
		return metering.Invalid(location, "must be absent: this operation does not support it")
	case len(keys) > 1:
		return metering.Invalid(location, "must be given once")
	case keys[0] == "":
		return metering.Invalid(location, "must not be empty")
	}
	return nil
}

// allowsEmpty reports whether a query parameter accepts an empty value. An empty value of any other parameter
// would silently widen the query, for example if a variable in a script is not set.
func allowsEmpty(op *huma.Operation, name string) bool {
	return slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool {
		return p.In == "query" && p.Name == name && p.AllowEmptyValue
	})
}

// offered returns the end of an error message, with the parameters of the operation.
func offered(op *huma.Operation) string {
	names := queryParameters(op)
	if op.Metadata["filtering"] == true {
		names = append(names, metering.FilterPrefix+"<property>")
	}
	if len(names) == 0 {
		return "; it has none"
	}
	return "; available: " + strings.Join(names, ", ")
}

// queryParameters returns the names of an operation's query parameters, except filterParameter.
func queryParameters(op *huma.Operation) (names []string) {
	for _, p := range op.Parameters {
		if p.In == "query" && p.Name != filterParameter {
			names = append(names, p.Name)
		}
	}
	return names
}

// refuseUnusedBody refuses a body if the operation has none. It accepts {} and the body of a GET, which is
// not read.
func refuseUnusedBody(op *huma.Operation, request *http.Request) error {
	const empty = int64(len(`{}`))
	if op.RequestBody != nil || op.Method == http.MethodGet || request.ContentLength >= 0 && request.ContentLength <= empty {
		return nil
	}
	return metering.Invalid("body", "must be empty: this operation has no body")
}
