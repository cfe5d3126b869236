package api

import (
	"strings"

	"github.com/odometer-metering/odometer/metering"
)

// Because is in the body of every operator's verb that changes what is billed,
// or when. The audit log keeps it.
type Because struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"Why, in your words: the audit log keeps it" example:"voided by mistake"`
}

func (b Because) reason() (string, error) {
	reason := strings.TrimSpace(b.Reason)
	if reason == "" || !storable(reason) {
		return "", metering.Invalid("body.reason", "must say something, in UTF-8 without NUL")
	}
	return reason, nil
}
