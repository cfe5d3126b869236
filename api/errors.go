package api

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/metering"
)

// Codes that only the HTTP interface uses.
const (
	codeMalformed     metering.Code = "malformed"
	codeMethod        metering.Code = "method_not_allowed"
	codeMediaType     metering.Code = "unsupported_media_type"
	codeNotAcceptable metering.Code = "not_acceptable"
	codeTimeout       metering.Code = "request_timeout"
	codeConfirmation  metering.Code = "confirmation_required"
)

// kind is the HTTP status and the texts of an error code.
type kind struct {
	status     int
	title      string
	advice     string // shown on the page at the URL in the problem's type
	retryAfter int    // seconds; 0: repeating the request unchanged does not help
}

// kinds defines all error codes.
var kinds = map[metering.Code]kind{
	metering.CodeInvalid:        {422, "Validation failed", "Each item of errors names a field and the rule that it breaks. Correct the fields and send the request again.", 0},
	codeMalformed:               {400, "Malformed request", "The body must be valid JSON. detail names the position of the error.", 0},
	metering.CodeUnauthorized:   {401, "Unauthorized", "Send a valid credential: an API key or a login token in Authorization: Bearer, or a request signed with an HMAC secret. Revoked and expired credentials and ended sessions are invalid.", 0},
	metering.CodeForbidden:      {403, "Insufficient permissions", "The credentials are valid, but their scope or role does not permit this operation. Use a credential with the permission that detail names.", 0},
	metering.CodeNotFound:       {404, "Not found", "The resource does not exist in your tenant, or the path does not exist.", 0},
	codeMethod:                  {405, "Method not allowed", "The Allow header lists the methods of this path.", 0},
	codeNotAcceptable:           {406, "Not acceptable", "The only response format is application/json. Correct the Accept header.", 0},
	codeTimeout:                 {408, "Request timeout", "The body arrived too slowly. Send the whole body within the time limit.", 0},
	metering.CodeConflict:       {409, "Conflict", "The resource already exists, or its state does not permit the change. detail names the reason.", 0},
	codeConfirmation:            {409, "Confirmation required", "The request changes the charges of billing periods that have begun, or the currency of later ones. Nothing was changed. confirmation lists the customers, periods and amounts. To apply the change, repeat the request with confirm set to confirmation.token. If anything else changed first, the request returns 409 with a new confirmation.", 0},
	metering.CodePaused:         {409, "Paused", "The customer's syncs are paused. Resume them with POST /v1/billing/syncs/{id}/resume.", 0},
	metering.CodeNoProvider:     {409, "No billing provider", "No billing provider is configured. Save one with PUT /v1/billing/provider.", 0},
	metering.CodeTooLarge:       {413, "Request too large", "Nothing was stored. Send a smaller request.", 0},
	codeMediaType:               {415, "Unsupported media type", "Send Content-Type: application/json and no Content-Encoding.", 0},
	metering.CodeProviderRefuse: {422, "Rejected by the billing provider", "Nothing was saved. detail contains the provider's reason.", 0},
	metering.CodeRateLimited:    {429, "Too many requests", "Wait for the number of seconds in Retry-After before the next request.", 1},
	metering.CodeInternal:       {500, "Internal error", "The service failed. Report the request_id to the operator.", 0},
	metering.CodeOverloaded:     {503, "Overloaded", "Nothing was stored. Repeat the request after the number of seconds in Retry-After.", 1},
	metering.CodeUnavailable:    {503, "Unavailable", "A part of the service does not respond. Repeat the request after the number of seconds in Retry-After.", 5},
	metering.CodeBackfilling:    {503, "Meter is backfilling", "The meter's earlier events are still being counted. Repeat the request after the number of seconds in Retry-After.", 5},
	metering.CodeProviderDown:   {503, "Billing provider unavailable", "The provider did not respond, or asked to wait. Repeat the request after the number of seconds in Retry-After.", 10},
}

// ErrorCode describes an error code.
type ErrorCode struct {
	Code   metering.Code
	Status int
	Title  string
	Advice string
	Retry  bool // whether the same request can succeed after Retry-After
}

// ErrorCodes returns all error codes by status.
func ErrorCodes() []ErrorCode {
	all := make([]ErrorCode, 0, len(kinds))
	for code, k := range kinds {
		all = append(all, ErrorCode{code, k.status, k.title, k.advice, k.retryAfter > 0})
	}
	slices.SortFunc(all, func(a, b ErrorCode) int {
		return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.Code, b.Code))
	})
	return all
}

// codes maps the HTTP statuses that huma sets to error codes.
var codes = map[int]metering.Code{
	http.StatusBadRequest:            codeMalformed,
	http.StatusNotFound:              metering.CodeNotFound,
	http.StatusMethodNotAllowed:      codeMethod,
	http.StatusNotAcceptable:         codeNotAcceptable,
	http.StatusRequestTimeout:        codeTimeout,
	http.StatusRequestEntityTooLarge: metering.CodeTooLarge,
	http.StatusUnsupportedMediaType:  codeMediaType,
	http.StatusUnprocessableEntity:   metering.CodeInvalid,
}

// Problem is an error in the format of RFC 9457 (previously RFC 7807).
type Problem struct {
	Type      string         `json:"type" format:"uri" doc:"URL of the page that explains the code"`
	Title     string         `json:"title" doc:"Short description of the code"`
	Status    int            `json:"status" doc:"HTTP status"`
	Detail    string         `json:"detail" doc:"Description of this error"`
	Code      metering.Code  `json:"code"`
	RequestID string         `json:"request_id" doc:"Id to report to the operator. The header X-Request-Id has the same id"`
	Errors    []FieldProblem `json:"errors" doc:"The fields that break a rule, at most 20 of them"`

	// Confirmation is set if the code is confirmation_required.
	Confirmation *Confirmation `json:"confirmation,omitempty"`

	retryAfter int
}

// maxFieldProblems is the maximum number of broken rules in a problem. A body can break a rule in each of its values.
const maxFieldProblems = 20

// FieldProblem is one broken rule. It never repeats the offending value.
type FieldProblem struct {
	Location string `json:"location" doc:"Field of the request, such as body.slug or query.start"`
	Message  string `json:"message"`

	Code metering.FieldCode `json:"code,omitempty" example:"timestamp_too_old" doc:"Code of the rule. For an event, the same code as in the errors of a batch"`
}

func (p *Problem) Error() string             { return p.Detail }
func (p *Problem) GetStatus() int            { return p.Status }
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// problemOf returns the part of err that the response may contain. Unknown errors become CodeInternal without
// details.
func problemOf(err error) *Problem {
	code := metering.CodeOf(err)
	k, known := kinds[code]
	if !known {
		code, k = metering.CodeInternal, kinds[metering.CodeInternal]
	}
	p := &Problem{Title: k.title, Status: k.status, Code: code, Detail: k.title, Errors: []FieldProblem{}, retryAfter: k.retryAfter}
	var coded *metering.Error
	if code == metering.CodeInternal || !errors.As(err, &coded) {
		return p
	}
	p.Detail = coded.Message
	var unconfirmed *confirmationError
	if errors.As(err, &unconfirmed) {
		p.Confirmation = &unconfirmed.confirmation
	}
	if coded.RetryAfter > 0 {
		p.retryAfter = int(math.Ceil(coded.RetryAfter.Seconds()))
	}
	for _, f := range coded.Fields[:min(len(coded.Fields), maxFieldProblems)] {
		p.Errors = append(p.Errors, FieldProblem(f))
	}
	return p
}

// frameworkProblem converts errors of huma to a problem. Texts of these errors can repeat request data, so the
// problem contains only the texts of validation rules.
func frameworkProblem(status int, errs []error) *Problem {
	if status == http.StatusInternalServerError && len(errs) > 0 {
		return problemOf(errs[0])
	}
	code, known := codes[status]
	if !known {
		code = metering.CodeInternal
	}
	if code == codeMediaType {
		errs = nil // huma's text repeats the Content-Type header
	}
	found := metering.Error{Code: code, Message: kinds[code].title}
	for _, err := range errs[:min(len(errs), maxFieldProblems)] {
		var detail *huma.ErrorDetail
		if errors.As(err, &detail) && known {
			found.Fields = append(found.Fields, metering.Field{Location: shortened(detail.Location), Message: plain(detail.Message)})
		}
	}
	if len(found.Fields) > 0 {
		found.Message = found.Fields[0].Location + ": " + found.Fields[0].Message
	}
	return problemOf(&found)
}

// plain removes the prefix that huma adds to an error of UnmarshalText.
func plain(message string) string {
	return strings.TrimPrefix(message, "invalid value: ")
}

// shortened bounds a location to 120 bytes, because the location can contain a property name that the caller
// chose. Below body.mapping, the caller chooses all names, so shortened removes them.
func shortened(location string) string {
	const most = 120
	if strings.HasPrefix(location, "body.mapping.") {
		return "body.mapping"
	}
	if len(location) <= most {
		return location
	}
	return strings.ToValidUTF8(location[:most], "") + "…"
}

// adaptHuma configures huma: errors are problems, arrays are never null, and property names are
// case-sensitive. The settings are global to the process.
var adaptHuma = sync.OnceFunc(func() {
	huma.DefaultArrayNullable = false
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, _ string, errs ...error) huma.StatusError {
		return frameworkProblem(status, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, message string, errs ...error) huma.StatusError {
		x := exchangeOf(ctx.Context())
		if message == "cannot read request body" { // huma's own text
			if x.err = bodyProblem(errors.Join(errs...)); x.err != nil {
				return x.problem(ctx, problemOf(x.err))
			}
			status = http.StatusBadRequest // the client has disconnected
		}
		if problem := unclearBody(errs); problem != nil {
			return x.problem(ctx, problemOf(problem))
		}
		if status == http.StatusInternalServerError {
			x.err = errors.Join(errs...) // only for the log; errors of validation can repeat request data
		}
		return x.problem(ctx, frameworkProblem(status, errs))
	}
})

// unclearBody returns the error of a JSON body that breaks a rule of unclearRule, or nil. It checks the body
// again, because huma retains only the text of the error that unmarshal returned.
func unclearBody(errs []error) error {
	for _, err := range errs {
		var detail *huma.ErrorDetail
		if !errors.As(err, &detail) || detail.Location != "body" {
			continue
		}
		if body, sent := detail.Value.(string); sent {
			return unclearRule([]byte(body))
		}
	}
	return nil
}

// refuseOperation responds with an error instead of running the operation.
func (s *server) refuseOperation(ctx huma.Context, err error) {
	_ = huma.WriteErr(s.api, ctx, http.StatusInternalServerError, "", err) // fails only if the client has disconnected
}

// problem completes a problem that huma sends, and returns it.
func (x *exchange) problem(ctx huma.Context, p *Problem) *Problem {
	x.completeProblem(p, ctx.SetHeader)
	return p
}

// completeProblem sets the problem's type and request id, and the headers Retry-After and WWW-Authenticate if they
// apply.
func (x *exchange) completeProblem(p *Problem, setHeader func(name, value string)) {
	p.Type = x.errorDocs + "/" + string(p.Code)
	p.RequestID = x.id
	if p.retryAfter > 0 {
		setHeader("Retry-After", strconv.Itoa(p.retryAfter))
	}
	if p.Status == http.StatusUnauthorized {
		setHeader("WWW-Authenticate", "Bearer")
	}
}

var errorPage = template.Must(template.New("error").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<h1>{{.Title}}</h1>
<p>Code <code>{{.Code}}</code>, status {{.Status}}.</p>
<p>{{.Advice}}</p>
</html>
`))

// explainError serves the page at the URL in a problem's type.
func (s *server) explainError(w http.ResponseWriter, r *http.Request) {
	code := metering.Code(r.PathValue("code"))
	k, ok := kinds[code]
	if !ok {
		s.refuse(w, r, metering.Errorf(metering.CodeNotFound, "there is no error page with this code"))
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	err := errorPage.Execute(w, map[string]any{"Title": k.title, "Code": code, "Status": k.status, "Advice": k.advice})
	if err != nil {
		exchangeOf(r.Context()).err = fmt.Errorf("write error page: %w", err)
	}
}
