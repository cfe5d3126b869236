package api

import (
	"strings"

	"github.com/odometer-metering/odometer/metering"
)

// Because is the body of operator requests that change the billed amounts or the time of billing. The audit
// log stores the reason.
type Because struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"Reason for the audit log" example:"voided by mistake"`
}

func (b Because) reason() (string, error) {
	reason := strings.TrimSpace(b.Reason)
	return reason, metering.ValidReason("body.reason", reason)
}

// askedBy returns the actor and the reason of an API request, to pass to a workflow run.
func askedBy(who metering.Actor, reason string) metering.Asked {
	return metering.Asked{By: string(who), Reason: reason}
}
