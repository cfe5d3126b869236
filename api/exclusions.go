package api

import "github.com/odometer-metering/odometer/billing"

// Exclusion is the reason why a meter is not reported.
type Exclusion struct {
	Reason billing.ExclusionCode `json:"reason" doc:"Reason why the meter is not reported. 'message' and 'next_step' explain it"`
	billing.Text
}

func showExclusion(r billing.ExclusionReason) Exclusion { return Exclusion{r.Code, r.Text()} }
