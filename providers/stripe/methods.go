package stripe

import "github.com/odometer-metering/odometer/billing"

// Methods of sending usage and charges to Stripe.
const (
	UsageRecord billing.Method = "usage_record" // total of the period, always with the same timestamp
	MeterWindow billing.Method = "meter_window" // total of a window, with a timestamp in that window
	MeterDelta  billing.Method = "meter_delta"  // usage since the previous report
	MeterLast   billing.Method = "meter_last"   // total of the period, with a later timestamp than the previous report
	InvoiceItem billing.Method = "invoice_item" // amount on the next invoice, for an invoiced period
	PendingItem billing.Method = "pending_item" // amount on the next invoice, updated repeatedly
)

// CountingOf returns how Stripe counts the quantities sent with the method. Only a report that replaces the
// previous one can be sent again with a new idempotency key.
func CountingOf(m billing.Method) billing.Counting {
	switch m {
	case MeterDelta, InvoiceItem:
		return billing.Adds
	case MeterLast:
		return billing.Latest
	}
	return billing.Replaces
}
