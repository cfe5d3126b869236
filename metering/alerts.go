package metering

import (
	"slices"
	"time"
)

// Limits on alerts.
const (
	MaxAlerts           = 1_000 // per tenant
	MaxAlertsOfCustomer = 100   // per customer, of alerts that cover only this customer
	MaxThresholds       = 10
	MaxQuotaPercent     = 1_000 // maximum threshold of a quota alert, in percent
	percentDecimals     = 2     // maximum number of decimals of a quota alert's threshold
	MaxSilentMinutes    = 7 * 24 * 60
)

// WatchedAfterEvent is how long a silence alert monitors a customer after the last event. The
// alert does not fire later.
const WatchedAfterEvent = 30 * 24 * time.Hour

// AlertType is the kind of value that an alert monitors.
type AlertType string

const (
	UsageAlert   AlertType = "usage"   // a meter's total in a billing period
	SpendAlert   AlertType = "spend"   // the estimated charge of a billing period
	QuotaAlert   AlertType = "quota"   // the share of a quota that is used or reserved, in percent
	SilenceAlert AlertType = "silence" // the minutes since a customer's last event
)

// Values returns all types.
func (AlertType) Values() []AlertType {
	return []AlertType{UsageAlert, SpendAlert, QuotaAlert, SilenceAlert}
}

// Alert notifies the tenant when a customer reaches a threshold.
type Alert struct {
	ID         AlertID
	Name       string
	Type       AlertType
	CustomerID CustomerID // the only customer; 0: any
	PlanID     PlanID     // the only plan; 0: any. If CustomerID is also 0, the alert covers all customers
	MeterID    MeterID    // 0: all meters, or the quotas of all meters; always 0 for a silence alert
	Group      *Group     // the only group that a usage or quota alert covers; nil: all
	Thresholds []Decimal  // ascending; empty for a silence alert
	Minutes    int        // for a silence alert
	Currency   string     // for a spend alert
	Enabled    bool
	CreatedAt  time.Time
	ChangedAt  time.Time // time of the latest change

	ExternalID string // of the customer
	Plan       string // slug
	Meter      string // slug
	Unit       string // of the meter
}

// AppliesTo reports whether the alert covers a customer with the given plan. Plan 0 means no plan.
func (a Alert) AppliesTo(customer CustomerID, plan PlanID) bool {
	switch {
	case a.CustomerID != 0:
		return a.CustomerID == customer
	case a.PlanID != 0:
		return a.PlanID == plan
	}
	return true
}

// ReadsQuota reports whether a quota alert monitors the quota. The alert must also apply to the customer, see
// AppliesTo.
func (a Alert) ReadsQuota(q Quota) bool {
	return q.Limit != nil && (a.MeterID == 0 || a.MeterID == q.Meter.ID) && (a.Group == nil || q.Group != nil && q.Group.ID == a.Group.ID)
}

// Reached returns the thresholds that are at most value, ascending.
func (a Alert) Reached(value Decimal) []Decimal {
	above := slices.IndexFunc(a.Thresholds, func(t Decimal) bool { return t.Cmp(value) > 0 })
	if above < 0 {
		return a.Thresholds
	}
	return a.Thresholds[:above]
}

// Silence returns the time without an event after which a silence alert fires.
func (a Alert) Silence() time.Duration { return time.Duration(a.Minutes) * time.Minute }

// Validate returns an error if the alert breaks a rule. It sorts the thresholds.
func (a *Alert) Validate() error {
	if a.Name == "" {
		return Invalid("body.name", "is required")
	}
	if err := ValidName(a.Name); err != nil {
		return err
	}
	if a.Type == SilenceAlert {
		return a.validateSilence()
	}
	switch {
	case a.Minutes != 0:
		return Invalid("body.minutes", "is only for silence alerts; omit it")
	case a.Type == UsageAlert && a.MeterID == 0:
		return Invalid("body.meter", "is required for a usage alert")
	case a.Type != SpendAlert && a.Currency != "":
		return Invalid("body.currency", "is only for spend alerts; omit it")
	case a.Type == SpendAlert && a.Group != nil:
		return Invalid("body.group", "is only for usage and quota alerts; omit it")
	case a.Type == SpendAlert:
		if err := ValidCurrency("body.currency", a.Currency); err != nil {
			return err
		}
	}
	return a.validateThresholds()
}

func (a *Alert) validateSilence() error {
	switch {
	case a.MeterID != 0:
		return Invalid("body.meter", "is not for silence alerts, which count every event; omit it")
	case a.Group != nil:
		return Invalid("body.group", "is only for usage and quota alerts; omit it")
	case a.Currency != "":
		return Invalid("body.currency", "is only for spend alerts; omit it")
	case len(a.Thresholds) > 0:
		return Invalid("body.thresholds", "is not for silence alerts; use minutes instead")
	case a.Minutes < 1 || a.Minutes > MaxSilentMinutes:
		return Invalid("body.minutes", "must be 1 to %d", MaxSilentMinutes)
	}
	return nil
}

func (a *Alert) validateThresholds() error {
	if len(a.Thresholds) == 0 || len(a.Thresholds) > MaxThresholds {
		return Invalid("body.thresholds", "must have 1 to %d numbers", MaxThresholds)
	}
	slices.SortFunc(a.Thresholds, Decimal.Cmp)
	for i, t := range a.Thresholds {
		if t.IsZero() || t.IsNegative() {
			return Invalid("body.thresholds", "must have numbers above 0 only")
		}
		if i > 0 && t.Equal(a.Thresholds[i-1]) {
			return Invalid("body.thresholds", "must have each number only once")
		}
		if a.Type == QuotaAlert && (t.Cmp(Whole(MaxQuotaPercent)) > 0 || !t.Round(percentDecimals).Equal(t)) {
			return Invalid("body.thresholds", "must have percentages of at most %d with at most %d decimals", MaxQuotaPercent, percentDecimals)
		}
	}
	return nil
}

// Firing is one crossing of an alert's threshold by a customer.
type Firing struct {
	ID         FiringID
	AlertID    AlertID
	CustomerID CustomerID
	ExternalID string
	Threshold  Decimal
	QuotaID    QuotaID // for a quota alert; otherwise 0
	Stream     int
	Period     Range // the billing period; for a quota alert, the quota's window; for silence, the minutes after the event
	Value      Decimal
	Late       bool // Period had ended when the alert was evaluated; always false for a silence alert
	At         time.Time
}
