package metering

import (
	"errors"
	"fmt"
	"time"
)

// Code says what kind of failure an Error is. The API maps it to an HTTP
// status and the activities map it to "retry" or "do not retry"; nobody else
// decides either.
type Code string

const (
	CodeInvalid        Code = "invalid"              // the caller's input breaks a rule
	CodeUnauthorized   Code = "unauthorized"         // no credential, or not a live one
	CodeForbidden      Code = "forbidden"            // a live credential without the permission
	CodeNotFound       Code = "not_found"            // no such thing in this tenant
	CodeConflict       Code = "conflict"             // it exists already, or its state forbids the change
	CodeTooLarge       Code = "too_large"            // the request is over a size bound
	CodeRateLimited    Code = "rate_limited"         // too many requests; RetryAfter says when the next may come
	CodeOverloaded     Code = "overloaded"           // try again later; nothing was stored
	CodeUnavailable    Code = "unavailable"          // a part we depend on does not answer
	CodeBackfilling    Code = "meter_backfilling"    // the meter's past is still being counted
	CodePaused         Code = "paused"               // an operator keeps the customer from being reported
	CodeNoProvider     Code = "no_provider"          // the tenant has no billing provider
	CodeProviderRefuse Code = "provider_refused"     // the provider said no, for good
	CodeProviderDown   Code = "provider_unavailable" // the provider did not answer, or asked to wait
	CodeInternal       Code = "internal"             // anything else; its text never leaves the process
)

// Field is one broken rule at one place of a request. Location is a path such
// as "body.events[3].value" or "query.start"; Message names the rule and never
// repeats the offending value. Code is the rule, for callers that act on it.
type Field struct {
	Location string
	Message  string
	Code     FieldCode
}

// FieldCode names a rule, such as the Code of a Rejection.
type FieldCode string

// Error is the one coded error of the program. Message is safe to show to the
// caller; the cause is for the log only.
type Error struct {
	Code       Code
	Message    string
	Fields     []Field
	RetryAfter time.Duration // 0: as is usual for the code
	cause      error
}

func (e *Error) Error() string {
	if e.cause == nil {
		return e.Message
	}
	return e.Message + ": " + e.cause.Error()
}

func (e *Error) Unwrap() error { return e.cause }

// Because returns a copy of e that carries cause for the log.
func (e *Error) Because(cause error) *Error {
	wrapped := *e
	wrapped.cause = cause
	return &wrapped
}

// Errorf makes an Error whose message may be shown to the caller.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid makes a CodeInvalid error about one field.
func Invalid(location, format string, args ...any) *Error {
	message := fmt.Sprintf(format, args...)
	return &Error{Code: CodeInvalid, Message: location + " " + message, Fields: []Field{{Location: location, Message: message}}}
}

// CodeOf returns the code of err: "" for nil, CodeInternal for any error that
// is not an Error.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var coded *Error
	if errors.As(err, &coded) {
		return coded.Code
	}
	return CodeInternal
}
