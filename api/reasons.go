package api

import (
	"strings"

	"github.com/odometer-metering/odometer/metering"
)

// Because is in the body of every operator's verb that changes what is billed,
// or when. The audit log keeps it.
type Because struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"Reason for the audit log" example:"voided by mistake"`
}

func (b Because) reason() (string, error) {
	reason := strings.TrimSpace(b.Reason)
	return reason, metering.ValidReason("body.reason", reason)
}

// asked is who asks a run for something, over the API.
func asked(who metering.Actor, reason string) metering.Asked {
	return metering.Asked{By: string(who), Reason: reason}
}
