package stripe

import "github.com/odometer-metering/odometer/billing"

// How Stripe is told.
const (
	UsageRecord billing.Method = "usage_record" // the period's total, at one timestamp of the period
	MeterWindow billing.Method = "meter_window" // a window's total, in that window
	MeterDelta  billing.Method = "meter_delta"  // what came since the last report
	MeterLast   billing.Method = "meter_last"   // the period's total, later than the last report
	InvoiceItem billing.Method = "invoice_item" // money on the next invoice, for usage of a period that is invoiced
	PendingItem billing.Method = "pending_item" // the same, set to what a line of ours comes to
)

// CountingOf says what Stripe does with the quantities that it is told. Only
// what replaces the one before it may be sent again under a new idempotency key.
func CountingOf(m billing.Method) billing.Counting {
	switch m {
	case MeterDelta, InvoiceItem:
		return billing.Adds
	case MeterLast:
		return billing.Latest
	}
	return billing.Replaces
}
