package stripe

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	stripego "github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/billing/meterevent"
	"github.com/stripe/stripe-go/v76/invoiceitem"
	"github.com/stripe/stripe-go/v76/usagerecord"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Report is one call that sends usage or a charge to Stripe. It is stored before the first attempt, and
// sent unchanged until its outcome is known.
type Report struct {
	Method         billing.Method
	ItemID         string           // for a usage record
	EventName      string           // for a meter event, like the two payload keys below
	CustomerKey    string           // "": Stripe's default
	ValueKey       string           // "": Stripe's default
	SubscriptionID string           // for an invoice item: the subscription that invoices it next
	Currency       string           // for an invoice item: ISO 4217 code of the currency in which the customer is billed
	Description    string           // for an invoice item: text on the customer's invoice
	Period         metering.Range   // for an invoice item: period of the charged usage
	About          *About           // for an invoice item: metadata to restore the charge from if the ledger has lost it
	Customer       string           // id at Stripe
	Value          metering.Decimal // whole, except for a meter event; for an invoice item in the smallest unit, never 0
	Timestamp      time.Time        // in whole seconds; decides Stripe's billing period; zero for invoice items
	Identifier     string           // for a meter event: Stripe deduplicates by it for at least 24 hours; for an invoice item: stored in its metadata
	IdempotencyKey string           // Stripe repeats its response to this key for at least 24 hours
}

// Limits: https://docs.stripe.com/api/billing/meter-event/create and
// https://docs.stripe.com/api/idempotent_requests
const (
	maxIdentifierBytes     = 100
	maxIdempotencyKeyBytes = 255
)

const maxDescription = 500 // characters

// Limits of a meter event's value:
// https://docs.stripe.com/changelog/dahlia/2026-04-22/billing-meter-event-values-validation
const (
	maxEventDigits   = 15
	maxEventDecimals = 12
)

// Send sends one report. CodeProviderDown means that the same report must be sent again, whether or not
// Stripe has accepted it. CodeProviderRefuse means that Stripe has not accepted the report and an operator must
// act first. Stripe can repeat a refusal for the same idempotency key even after the cause is gone.
//
// A Replayed answer with a status of 500 or more repeats for as long as the idempotency key is used. The
// caller can then change the key, and nothing else, in two cases: the report replaces a quantity, or it is
// an invoice item that InvoiceItem does not find.
func (c *Client) Send(ctx context.Context, key string, r Report) (Answer, error) {
	if err := r.check(); err != nil {
		return Answer{}, err
	}
	ctx, x := withExchange(ctx)
	x.fraction = !isWhole(r.Value)
	return judge(x, c.create(key, r, stripego.Params{Context: ctx, IdempotencyKey: &r.IdempotencyKey}))
}

// create makes the call that creates the report's usage record, invoice item or meter event.
func (c *Client) create(key string, r Report, params stripego.Params) (err error) {
	switch r.Method {
	case UsageRecord:
		quantity, _ := strconv.ParseInt(r.Value.String(), 10, 64) // valid, see check
		_, err = usagerecord.Client{B: c.backend, Key: key}.New(&stripego.UsageRecordParams{
			Params:           params,
			SubscriptionItem: &r.ItemID,
			Action:           new(stripego.UsageRecordActionSet),
			Quantity:         &quantity,
			Timestamp:        new(r.Timestamp.Unix()),
		})
	case InvoiceItem:
		amount, _ := strconv.ParseInt(r.Value.String(), 10, 64) // valid, see check
		_, err = invoiceitem.Client{B: c.backend, Key: key}.New(&stripego.InvoiceItemParams{
			Params:       params,
			Customer:     &r.Customer,
			Subscription: &r.SubscriptionID,
			Currency:     new(strings.ToLower(r.Currency)),
			Amount:       &amount,
			Description:  &r.Description,
			Period:       &stripego.InvoiceItemPeriodParams{Start: new(r.Period.Start.Unix()), End: new(r.Period.End.Unix())},
			Metadata:     r.metadata(),
		})
	default:
		_, err = meterevent.Client{B: c.backend, Key: key}.New(&stripego.BillingMeterEventParams{
			Params:     params,
			EventName:  &r.EventName,
			Identifier: &r.Identifier,
			Payload:    r.payload(),
			Timestamp:  new(r.Timestamp.Unix()),
		})
	}
	return err
}

// payload returns the payload of the meter event.
func (r Report) payload() map[string]string {
	customer, value := r.CustomerKey, r.ValueKey
	if customer == "" {
		customer = "stripe_customer_id"
	}
	if value == "" {
		value = "value"
	}
	return map[string]string{customer: r.Customer, value: r.Value.String()}
}

// check returns an error if a field of the report is missing or malformed.
func (r Report) check() error {
	switch {
	case r.IdempotencyKey == "" || len(r.IdempotencyKey) > maxIdempotencyKeyBytes:
		return metering.Invalid("report.idempotency_key", "must have 1 to %d bytes", maxIdempotencyKeyBytes)
	case r.Timestamp.IsZero() && r.Method != InvoiceItem:
		return metering.Invalid("report.timestamp", "must be set")
	}
	switch r.Method {
	case UsageRecord:
		return r.checkRecord()
	case MeterWindow, MeterDelta, MeterLast:
		return r.checkEvent()
	case InvoiceItem:
		return r.checkInvoiceItem()
	default:
		return metering.Invalid("report.method", "must be one of Stripe's")
	}
}

// checkRecord checks the fields of a usage record.
func (r Report) checkRecord() error {
	if r.ItemID == "" {
		return metering.Invalid("report.item_id", "must be set")
	}
	if !isWhole(r.Value) {
		return errFraction
	}
	if _, err := strconv.ParseInt(r.Value.String(), 10, 64); err != nil || r.Value.IsNegative() {
		return metering.Errorf(metering.CodeProviderRefuse, "the quantity must be 0 to 2^63-1, as Stripe's usage records require")
	}
	return nil
}

// checkEvent checks the fields of a meter event.
func (r Report) checkEvent() error {
	switch {
	case r.EventName == "" || r.Customer == "":
		return metering.Invalid("report.event_name", "and customer must be set")
	case r.Identifier == "" || len(r.Identifier) > maxIdentifierBytes:
		return metering.Invalid("report.identifier", "must have 1 to %d bytes", maxIdentifierBytes)
	case !r.Value.Equal(billing.Units(r.Value, maxEventDecimals)):
		return metering.Invalid("report.value", "must have at most %d decimals", maxEventDecimals)
	case digits(r.Value) > maxEventDigits:
		return metering.Errorf(metering.CodeProviderRefuse,
			"report.value must have at most %d digits, as Stripe's meter events require; lower the meter's usage_scale", maxEventDigits)
	}
	return nil
}

// digits returns the number of digits in plain notation, without leading zeros.
func digits(value metering.Decimal) int {
	return len(strings.TrimLeft(strings.Replace(value.String(), ".", "", 1), "-0"))
}

// isWhole reports whether a value is a whole number.
func isWhole(value metering.Decimal) bool { return value.Equal(billing.Units(value, 0)) }

var errFraction = metering.Invalid("report.value", "must be a whole number")

var currencyPattern = regexp.MustCompile(`^[A-Z]{3}$`)

// checkInvoiceItem checks the fields of an invoice item.
func (r Report) checkInvoiceItem() error {
	switch {
	case r.Customer == "" || r.SubscriptionID == "":
		return metering.Invalid("report.subscription_id", "and customer must be set")
	case r.Identifier == "" || len(r.Identifier) > maxIdentifierBytes:
		return metering.Invalid("report.identifier", "must have 1 to %d bytes", maxIdentifierBytes)
	case !currencyPattern.MatchString(r.Currency):
		return metering.Invalid("report.currency", "must be an ISO 4217 currency code")
	case r.Description == "" || utf8.RuneCountInString(r.Description) > maxDescription:
		return metering.Invalid("report.description", "must have 1 to %d characters", maxDescription)
	case !r.Period.Start.Before(r.Period.End):
		return metering.Invalid("report.period", "must end after its start")
	case !isWhole(r.Value):
		return errFraction
	case r.Value.IsZero():
		return metering.Invalid("report.value", "must not be 0: there is nothing to charge")
	}
	if _, err := strconv.ParseInt(r.Value.String(), 10, 64); err != nil {
		return metering.Errorf(metering.CodeProviderRefuse, "the amount exceeds 2^63-1, the maximum of a Stripe invoice item")
	}
	return nil
}
