package metering

import (
	"errors"
	"fmt"
	"time"
)

// Code is the kind of failure of an Error. Only the API maps it to an HTTP status, and only the activities
// decide from it whether to retry.
type Code string

const (
	CodeInvalid        Code = "invalid"              // the caller's input breaks a rule
	CodeUnauthorized   Code = "unauthorized"         // no credential, or an invalid one
	CodeForbidden      Code = "forbidden"            // a valid credential without the permission
	CodeNotFound       Code = "not_found"            // no such resource in this tenant
	CodeConflict       Code = "conflict"             // the resource already exists, or its state forbids the change
	CodeTooLarge       Code = "too_large"            // the request exceeds a size limit
	CodeRateLimited    Code = "rate_limited"         // too many requests; RetryAfter is the time to wait
	CodeOverloaded     Code = "overloaded"           // nothing was stored; try again later
	CodeUnavailable    Code = "unavailable"          // a dependency does not respond
	CodeBackfilling    Code = "meter_backfilling"    // the meter's earlier events are still being counted
	CodePaused         Code = "paused"               // the reports of the customer are paused
	CodeNoProvider     Code = "no_provider"          // the tenant has no billing provider
	CodeProviderRefuse Code = "provider_refused"     // the provider refused permanently
	CodeProviderDown   Code = "provider_unavailable" // the provider did not respond, or asked to wait
	CodeInternal       Code = "internal"             // any other error; its text is never sent to a caller
)

// Field describes a field of a request that breaks a rule. Location is a path such as "body.events[3].value" or
// "query.start". Message states the rule and never repeats the invalid value. Code identifies the rule for
// programs.
type Field struct {
	Location string
	Message  string
	Code     FieldCode
}

// FieldCode identifies a rule, such as the Code of a Rejection.
type FieldCode string

// Error is the only error type with a Code. Message is safe to show to the caller; the cause is for the log
// only.
type Error struct {
	Code       Code
	Message    string
	Fields     []Field
	RetryAfter time.Duration // 0: the default for the code
	cause      error
}

func (e *Error) Error() string {
	if e.cause == nil {
		return e.Message
	}
	return e.Message + ": " + e.cause.Error()
}

func (e *Error) Unwrap() error { return e.cause }

// Because returns a copy of e with cause, which is for the log only.
func (e *Error) Because(cause error) *Error {
	wrapped := *e
	wrapped.cause = cause
	return &wrapped
}

// Errorf returns an Error with a message that may be shown to the caller.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns a CodeInvalid error about one field.
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
