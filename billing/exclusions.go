package billing

import (
	"cmp"

	"github.com/odometer-metering/odometer/metering"
)

// ExclusionCode identifies the reason why a report plan excludes a meter.
type ExclusionCode string

const (
	ExcludedBackfilling        ExclusionCode = "backfilling"
	ExcludedNotRead            ExclusionCode = "not_read_yet"
	ExcludedOtherSubscription  ExclusionCode = "other_subscription"
	ExcludedNoTarget           ExclusionCode = "no_target"
	ExcludedSharedTarget       ExclusionCode = "shared_target"
	ExcludedByOperator         ExclusionCode = "excluded_by_operator"
	ExcludedPriceCurrency      ExclusionCode = "price_currency"
	ExcludedLateCurrency       ExclusionCode = "late_currency"
	ExcludedRestored           ExclusionCode = "restored"
	ExcludedBeforeSubscription ExclusionCode = "before_subscription"
	ExcludedInvoiceFinal       ExclusionCode = "invoice_final"
	ExcludedPeriodOver         ExclusionCode = "period_over"
	ExcludedNoWindow           ExclusionCode = "no_window"
	ExcludedLineFinal          ExclusionCode = "line_final"
	ExcludedNoInvoiceLine      ExclusionCode = "no_invoice_line"
	ExcludedTooManyLines       ExclusionCode = "too_many_lines"
)

// Values returns all codes.
func (ExclusionCode) Values() []ExclusionCode { return exclusions.codes() }

// ExclusionReason is the reason why a meter is not reported. The zero value means that the meter is reported.
type ExclusionReason struct {
	Code   ExclusionCode `json:"code"`
	Detail string        `json:"detail,omitempty"` // the cause at the provider, in words; "": none is known
}

// NoTarget returns the reason why nothing at the provider bills a meter. cause is the cause at the provider, in words.
// If cause is "", NoTarget returns the zero value.
func NoTarget(cause string) ExclusionReason {
	if cause == "" {
		return ExclusionReason{}
	}
	return ExclusionReason{ExcludedNoTarget, cause}
}

// Text returns the reason in words. It returns the zero Text if the meter is reported.
func (r ExclusionReason) Text() Text {
	text := exclusions.textOf(r.Code)
	text.Message = cmp.Or(r.Detail, text.Message)
	return text
}

// Exclusion is a meter that a report plan excludes, with the reason.
type Exclusion struct {
	MeterID   metering.MeterID
	MeterSlug string
	ExclusionReason
}
