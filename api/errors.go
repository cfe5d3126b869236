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

// Codes that only HTTP knows.
const (
	codeMalformed     metering.Code = "malformed"
	codeMethod        metering.Code = "method_not_allowed"
	codeMediaType     metering.Code = "unsupported_media_type"
	codeNotAcceptable metering.Code = "not_acceptable"
	codeTimeout       metering.Code = "request_timeout"
	codeConfirmation  metering.Code = "confirmation_required"
)

// kind is what the API makes of an error code.
type kind struct {
	status     int
	title      string
	advice     string // shown on the page behind the problem's type
	retryAfter int    // seconds; 0: trying again unchanged does not help
}

// kinds is the one table from code to HTTP status.
var kinds = map[metering.Code]kind{
	metering.CodeInvalid:        {422, "Validation failed", "Each item of errors names a field of the request and the rule that it breaks.", 0},
	codeMalformed:               {400, "Malformed request", "The body is not the JSON that its Content-Type promises; detail names the place.", 0},
	metering.CodeUnauthorized:   {401, "Unauthorized", "Send Authorization: Bearer with a live API key, or with the token of POST /v1/auth/login, or sign the request with a live HMAC secret. What is revoked, expired or logged out is not valid.", 0},
	metering.CodeForbidden:      {403, "Insufficient permissions", "The credentials are valid, but their scope or role does not include this operation.", 0},
	metering.CodeNotFound:       {404, "Not found", "Nothing with this name exists in your tenant, or the path does not exist.", 0},
	codeMethod:                  {405, "Method not allowed", "The Allow header lists the methods of this path.", 0},
	codeNotAcceptable:           {406, "Not acceptable", "This service answers with application/json.", 0},
	codeTimeout:                 {408, "Request timeout", "Send the whole body within the time limit.", 0},
	metering.CodeConflict:       {409, "Conflict", "It exists already, or its state does not allow the change.", 0},
	codeConfirmation:            {409, "Confirmation required", "The change affects billing periods that have begun. Nothing was changed. confirmation says for how many customers, in which periods and by how much; send the same request with confirm set to confirmation.token to apply it. If another change came first, or another period has begun, the answer is 409 again, with what it changes by then.", 0},
	metering.CodePaused:         {409, "Paused", "An operator has paused the customer. Resume it with POST /v1/billing/syncs/{id}/resume first.", 0},
	metering.CodeNoProvider:     {409, "No billing provider", "Save a billing provider with PUT /v1/billing/provider first.", 0},
	metering.CodeTooLarge:       {413, "Request too large", "Send less at once. Nothing was stored.", 0},
	codeMediaType:               {415, "Unsupported media type", "Send Content-Type: application/json, and no Content-Encoding.", 0},
	metering.CodeProviderRefuse: {422, "Rejected by the billing provider", "Nothing was saved; detail says why.", 0},
	metering.CodeRateLimited:    {429, "Too many requests", "Wait for the seconds in Retry-After before the next attempt.", 1},
	metering.CodeInternal:       {500, "Internal error", "Something went wrong on our side. Tell the operator the request_id.", 0},
	metering.CodeOverloaded:     {503, "Overloaded", "Nothing was stored. Send the same request again after the seconds in Retry-After.", 1},
	metering.CodeUnavailable:    {503, "Unavailable", "A part of the service does not answer. Try again after the seconds in Retry-After.", 5},
	metering.CodeBackfilling:    {503, "Meter is backfilling", "The meter is new and its earlier events are being counted. Try again after the seconds in Retry-After.", 5},
	metering.CodeProviderDown:   {503, "Billing provider unavailable", "The provider did not answer, or asked to wait. Try again after the seconds in Retry-After.", 10},
}

// ErrorCode describes an error code.
type ErrorCode struct {
	Code   metering.Code
	Status int
	Title  string
	Advice string
	Retry  bool // whether to send the same request again after Retry-After
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

// codes maps the statuses that the framework decides on its own.
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

// Problem is an error as RFC 9457 (formerly 7807) describes it.
type Problem struct {
	Type      string         `json:"type" format:"uri" doc:"Where this kind of problem is explained"`
	Title     string         `json:"title" doc:"The kind of problem in words"`
	Status    int            `json:"status" doc:"The HTTP status"`
	Detail    string         `json:"detail" doc:"What went wrong this time"`
	Code      metering.Code  `json:"code"`
	RequestID string         `json:"request_id" doc:"What to tell the operator; also in X-Request-Id"`
	Errors    []FieldProblem `json:"errors" doc:"The rules that were broken, one by one"`

	// Confirmation comes with the code confirmation_required.
	Confirmation *Confirmation `json:"confirmation,omitempty"`

	retryAfter int
}

// FieldProblem is one broken rule. It never repeats the offending value.
type FieldProblem struct {
	Location string `json:"location" doc:"Such as body.slug or query.start"`
	Message  string `json:"message"`

	Code metering.FieldCode `json:"code,omitempty" example:"timestamp_too_old" doc:"The rule, for programs that act on it: of an event it is the code that errors of a batch have"`
}

func (p *Problem) Error() string             { return p.Detail }
func (p *Problem) GetStatus() int            { return p.Status }
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// problemOf says what the caller may know about err.
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
	for _, f := range coded.Fields {
		p.Errors = append(p.Errors, FieldProblem(f))
	}
	return p
}

// frameworkProblem turns what huma found into a problem. Its texts may repeat
// what was sent, so only those about a rule pass.
func frameworkProblem(status int, errs []error) *Problem {
	if status == http.StatusInternalServerError && len(errs) > 0 {
		return problemOf(errs[0])
	}
	code, known := codes[status]
	if !known {
		code = metering.CodeInternal
	}
	if code == codeMediaType {
		errs = nil // huma's text is the header
	}
	found := metering.Error{Code: code, Message: kinds[code].title}
	for _, err := range errs {
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

// plain removes the words that huma adds to an error of UnmarshalText.
func plain(message string) string {
	return strings.TrimPrefix(message, "invalid value: ")
}

// shortened bounds a location, which may contain a property name of the
// caller's; those of a mapping all are.
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

// adaptHuma makes huma answer with our problems, and describe arrays that are
// never null, and compare names exactly. The settings are global to the process.
var adaptHuma = sync.OnceFunc(func() {
	huma.DefaultArrayNullable = false
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, _ string, errs ...error) huma.StatusError {
		return frameworkProblem(status, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, message string, errs ...error) huma.StatusError {
		x := exchangeOf(ctx.Context())
		if message == "cannot read request body" {
			if x.err = bodyProblem(errors.Join(errs...), 0); x.err != nil {
				return x.problem(ctx, problemOf(x.err))
			}
			status = http.StatusBadRequest // the client went away
		}
		if problem := unclearBody(errs); problem != nil {
			return x.problem(ctx, problemOf(problem))
		}
		if status == http.StatusInternalServerError {
			x.err = errors.Join(errs...) // those of validation may repeat what was sent
		}
		return x.problem(ctx, frameworkProblem(status, errs))
	}
})

// unclearBody returns the rule that unmarshal has found broken. Of its error huma keeps the
// text alone, beside the body.
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

// refuseOperation answers with an error instead of running an operation.
func (s *server) refuseOperation(ctx huma.Context, err error) {
	_ = huma.WriteErr(s.api, ctx, http.StatusInternalServerError, "", err) // fails only when the client has gone
}

func (x *exchange) problem(ctx huma.Context, p *Problem) *Problem {
	x.address(p, ctx.SetHeader)
	return p
}

// address fills in what belongs to this exchange, and the headers that go with it.
func (x *exchange) address(p *Problem, setHeader func(name, value string)) {
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

// explainError is the page behind a problem's type.
func (s *server) explainError(w http.ResponseWriter, r *http.Request) {
	code := metering.Code(r.PathValue("code"))
	k, ok := kinds[code]
	if !ok {
		s.refuse(w, r, metering.Errorf(metering.CodeNotFound, "there is no such kind of problem"))
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	err := errorPage.Execute(w, map[string]any{"Title": k.title, "Code": code, "Status": k.status, "Advice": k.advice})
	if err != nil {
		exchangeOf(r.Context()).err = fmt.Errorf("write error page: %w", err)
	}
}
