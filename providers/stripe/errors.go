package stripe

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	stripego "github.com/stripe/stripe-go/v76"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// Refusals that the caller must handle differently from an invalid request.
var (
	// ErrNotLegacy means that the caller must read the item again to get its current Method.
	ErrNotLegacy = errors.New("the subscription item does not use Stripe's legacy metered billing")
	// ErrOutsidePeriod means that the item's period has ended. Stripe then rejects usage records of the period,
	// and accepts its meter events for another hour.
	ErrOutsidePeriod = errors.New("the timestamp is outside the subscription's current period")
)

// Answer is Stripe's response, without its body.
type Answer struct {
	Status     int           // 0: no response
	Code       string        // Stripe's error code; "": none
	RequestID  string        // id of the request in Stripe's log
	RetryAfter time.Duration // 0: Stripe did not ask to wait
	Replayed   bool          // Stripe repeated the saved response of the idempotency key
	Duplicate  bool          // Stripe already has an event with this identifier
	Permission string        // missing permission, such as rak_subscription_read; "": unknown or none
}

// AnswerOf returns the response that caused an error of this package.
func AnswerOf(err error) Answer {
	var said *answered
	if !errors.As(err, &said) {
		return Answer{}
	}
	return said.Answer
}

// answered is the cause of every error after a call. It contains only parts of the response that are safe
// to log. Stripe's messages are not safe, because they repeat data of the request.
type answered struct {
	Answer
	kind, param string
	fraction    bool // the request has a value with decimals
	cause       error
}

func (a *answered) Error() string {
	said := fmt.Sprintf("status %d, type %q, code %q, param %q, request %q", a.Status, a.kind, a.Code, a.param, a.RequestID)
	if a.cause != nil {
		return said + ": " + a.cause.Error()
	}
	return said
}

func (a *answered) Unwrap() error { return a.cause }

// safeName returns text if it has the form of one of Stripe's own names, such as an error code, and "" otherwise.
// Any other text could repeat data of the request.
func safeName(text string) string {
	if !safeNamePattern.MatchString(text) {
		return ""
	}
	return text
}

// permissionPattern matches the name of a permission in the message of a response with the status 403.
var permissionPattern = regexp.MustCompile(`\brak_[a-z0-9_]{1,60}`)

var safeNamePattern = regexp.MustCompile(`^[A-Za-z0-9_.\[\]-]{1,64}$`)

// Parts of Stripe's messages, in lower case, that identify errors without a code.
const (
	duplicateText = "event already exists with identifier"
	notLegacyText = "not on the legacy metered billing system"
	wrongTimeText = "cannot create the usage record with this timestamp"
	currencyText  = "cannot combine currencies on a single customer"
	noCycleText   = "does not have a subscription with id"
)

// judge maps a response of Stripe to its Answer and error. It is the only function that interprets error responses.
// The response that Stripe already has a meter event with the same identifier counts as a success: Answer.Duplicate
// is set, and the error is nil.
func judge(x *exchange, err error) (Answer, error) {
	said := &answered{Answer: Answer{
		Status:     x.status,
		RequestID:  safeName(x.header.Get("Request-Id")),
		RetryAfter: providers.RetryAfter(x.header.Get("Retry-After"), time.Now()),
		Replayed:   x.header.Get("Idempotent-Replayed") == "true",
	}, fraction: x.fraction}
	if err == nil && x.status >= 200 && x.status < 300 {
		return said.Answer, nil
	}
	var problem *stripego.Error
	message := ""
	if errors.As(err, &problem) {
		said.Code, said.kind, said.param = safeName(string(problem.Code)), safeName(string(problem.Type)), safeName(problem.Param)
		message = strings.ToLower(problem.Msg)
	}
	if x.status == http.StatusBadRequest && (strings.Contains(message, duplicateText) || said.Code == "duplicate_meter_event") {
		said.Duplicate = true
		return said.Answer, nil
	}
	if x.status == http.StatusForbidden {
		said.Permission = permissionPattern.FindString(message)
	}
	if x.status == 0 {
		said.cause = withoutURL(err)
	}
	return said.Answer, said.verdict(message)
}

// verdict returns the error for a response that is not a success. message is Stripe's error message in lower case.
// Errors with CodeProviderDown are retried; errors with CodeProviderRefuse need a change by an operator.
func (a *answered) verdict(message string) error {
	down := func(format string, args ...any) error {
		return metering.Errorf(metering.CodeProviderDown, format, args...).Because(a)
	}
	refuse := func(format string, args ...any) error {
		return metering.Errorf(metering.CodeProviderRefuse, format, args...).Because(a)
	}
	switch {
	case a.Status == 0:
		return down("Stripe did not answer")
	case a.Status < 400:
		return down("Stripe's answer could not be read")
	case a.Status == http.StatusTooManyRequests || a.Code == string(stripego.ErrorCodeLockTimeout):
		return down("Stripe asked to wait")
	case a.Status >= 500 && a.Replayed:
		return down("Stripe repeated the status %d that it stored for this idempotency key", a.Status)
	case a.Status >= 500 || a.Status == http.StatusConflict || a.Status == http.StatusRequestTimeout ||
		a.Status == http.StatusFailedDependency || a.Status == http.StatusTooEarly:
		return down("Stripe answered %d", a.Status)
	case a.Status == http.StatusUnauthorized:
		return refuse("Stripe rejected the API key; save another key with PUT /v1/billing/provider")
	case a.Status == http.StatusForbidden:
		return refuse("the API key lacks a permission at Stripe%s; grant it there, or save another key with PUT /v1/billing/provider", inParentheses(a.Permission))
	case strings.Contains(message, notLegacyText):
		a.cause = ErrNotLegacy
		return refuse("the subscription item accepts meter events, not usage records; sync again")
	case strings.Contains(message, wrongTimeText):
		a.cause = ErrOutsidePeriod
		return refuse("the usage is outside the subscription's current period at Stripe, and Stripe accepts usage records only while their period runs")
	case strings.Contains(message, currencyText):
		return refuse("Stripe bills the customer in another currency, so the late usage stays booked; set a price in that currency for later periods")
	case strings.Contains(message, noCycleText):
		return refuse("the customer's subscription at Stripe has ended, so it has no next invoice; charge the amount there manually")
	case a.kind == string(stripego.ErrorTypeIdempotency):
		return refuse("Stripe already received another request with this idempotency key")
	case a.Status == http.StatusBadRequest && a.fraction:
		return refuse("Stripe refused a value with decimals: %s. If the account accepts whole units only, set the meter's usage_scale to 0; otherwise see the request log at Stripe", a.statusAndCode())
	default:
		return refuse("Stripe refused the request: %s. Its request log shows the reason", a.statusAndCode())
	}
}

// statusAndCode returns the status and, if there is one, the error code.
func (a *answered) statusAndCode() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", a.Status, a.Code))
}

// inParentheses returns a space and the text in parentheses, or "" for an empty text.
func inParentheses(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// withoutURL removes the URL from an error of net/http, because the URL contains the customer's id.
func withoutURL(err error) error {
	var call *url.Error
	if errors.As(err, &call) {
		return call.Err
	}
	return err
}
