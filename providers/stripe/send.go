package stripe

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"

	stripego "github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/billing/meterevent"
	"github.com/stripe/stripe-go/v76/invoiceitem"
	"github.com/stripe/stripe-go/v76/usagerecord"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Entry is one thing to tell Stripe. It is stored before it is first sent, and
// sent again as it was until the answer is known.
type Entry struct {
	Mechanism      billing.Method
	ItemID         string           // of a usage record
	EventName      string           // of a meter event, as the two keys of its payload
	CustomerKey    string           // "" is Stripe's default
	ValueKey       string           // "" is Stripe's default
	SubscriptionID string           // of an invoice item: whose next invoice gets it
	Currency       string           // of an invoice item: ISO 4217, the one that the customer is billed in
	Description    string           // of an invoice item: the customer reads it on the invoice
	Period         metering.Range   // of an invoice item: what it is charged for
	Customer       string           // at Stripe
	Value          metering.Decimal // whole but of a meter event; of an invoice item the amount in Stripe's smallest unit of the currency, never 0
	Timestamp      time.Time        // in whole seconds; Stripe bills it with the period that it lies in; invoice items have none
	Identifier     string           // of a meter event: Stripe takes it once in at least 24 hours; of an invoice item: what InvoiceItem looks for
	IdempotencyKey string           // Stripe answers the same to it for at least 24 hours
}

// Bounds of https://docs.stripe.com/api/billing/meter-event/create and https://docs.stripe.com/api/idempotent_requests
const (
	maxIdentifierBytes     = 100
	maxIdempotencyKeyBytes = 255
)

const maxDescriptionBytes = 500

// Bounds of a meter event's value: https://docs.stripe.com/changelog/dahlia/2026-04-22/billing-meter-event-values-validation
const (
	maxEventDigits   = 15
	maxEventDecimals = 12
)

// Send tells Stripe one entry. The error is CodeProviderDown where the same
// entry must be sent again, whether or not it was taken, and
// CodeProviderRefuse where it was not taken and somebody has to act first:
// the same refusal may come again for its idempotency key, whatever was done.
// An answer that is Replayed with a status of 500 or more comes again for this
// idempotency key, whatever is tried: an entry that Overwrites may then go out
// under a new key, with all else as it was, and so may an invoice item that
// InvoiceItem does not find.
func (c *Client) Send(ctx context.Context, key string, e Entry) (Answer, error) {
	if err := e.check(); err != nil {
		return Answer{}, err
	}
	ctx, x := open(ctx)
	x.fraction = !whole(e.Value)
	return judge(x, c.create(key, e, stripego.Params{Context: ctx, IdempotencyKey: &e.IdempotencyKey}))
}

func (c *Client) create(key string, e Entry, params stripego.Params) (err error) {
	switch e.Mechanism {
	case UsageRecord:
		quantity, _ := strconv.ParseInt(e.Value.String(), 10, 64) // checked
		_, err = usagerecord.Client{B: c.backend, Key: key}.New(&stripego.UsageRecordParams{
			Params:           params,
			SubscriptionItem: &e.ItemID,
			Action:           new(stripego.UsageRecordActionSet),
			Quantity:         &quantity,
			Timestamp:        new(e.Timestamp.Unix()),
		})
	case InvoiceItem:
		amount, _ := strconv.ParseInt(e.Value.String(), 10, 64) // checked
		_, err = invoiceitem.Client{B: c.backend, Key: key}.New(&stripego.InvoiceItemParams{
			Params:       params,
			Customer:     &e.Customer,
			Subscription: &e.SubscriptionID,
			Currency:     new(strings.ToLower(e.Currency)),
			Amount:       &amount,
			Description:  &e.Description,
			Period:       &stripego.InvoiceItemPeriodParams{Start: new(e.Period.Start.Unix()), End: new(e.Period.End.Unix())},
			Metadata:     map[string]string{entryKey: e.Identifier},
		})
	default:
		_, err = meterevent.Client{B: c.backend, Key: key}.New(&stripego.BillingMeterEventParams{
			Params:     params,
			EventName:  &e.EventName,
			Identifier: &e.Identifier,
			Payload:    e.payload(),
			Timestamp:  new(e.Timestamp.Unix()),
		})
	}
	return err
}

func (e Entry) payload() map[string]string {
	customer, value := e.CustomerKey, e.ValueKey
	if customer == "" {
		customer = "stripe_customer_id"
	}
	if value == "" {
		value = "value"
	}
	return map[string]string{customer: e.Customer, value: e.Value.String()}
}

func (e Entry) check() error {
	switch {
	case e.IdempotencyKey == "" || len(e.IdempotencyKey) > maxIdempotencyKeyBytes:
		return metering.Invalid("entry.idempotency_key", "must have 1 to %d bytes", maxIdempotencyKeyBytes)
	case e.Timestamp.IsZero() && e.Mechanism != InvoiceItem:
		return metering.Invalid("entry.timestamp", "must be set")
	}
	switch e.Mechanism {
	case UsageRecord:
		return e.checkRecord()
	case MeterWindow, MeterDelta, MeterLast:
		return e.checkEvent()
	case InvoiceItem:
		return e.checkInvoiceItem()
	default:
		return metering.Invalid("entry.mechanism", "must be one of Stripe's")
	}
}

func (e Entry) checkRecord() error {
	if e.ItemID == "" {
		return metering.Invalid("entry.item_id", "must be set")
	}
	if !whole(e.Value) {
		return errFraction
	}
	if _, err := strconv.ParseInt(e.Value.String(), 10, 64); err != nil || e.Value.IsNegative() {
		return metering.Errorf(metering.CodeProviderRefuse, "Stripe's usage records take quantities from 0 to 2^63-1")
	}
	return nil
}

func (e Entry) checkEvent() error {
	switch {
	case e.EventName == "" || e.Customer == "":
		return metering.Invalid("entry.event_name", "and customer must be set")
	case e.Identifier == "" || len(e.Identifier) > maxIdentifierBytes:
		return metering.Invalid("entry.identifier", "must have 1 to %d bytes", maxIdentifierBytes)
	case !e.Value.Equal(billing.Units(e.Value, maxEventDecimals)):
		return metering.Invalid("entry.value", "must have at most %d decimals", maxEventDecimals)
	case digits(e.Value) > maxEventDigits:
		return metering.Errorf(metering.CodeProviderRefuse,
			"entry.value must have at most %d digits, as Stripe's meter events do; lower the meter's usage_scale", maxEventDigits)
	}
	return nil
}

// digits are those of the plain notation without leading zeros.
func digits(value metering.Decimal) int {
	return len(strings.TrimLeft(strings.Replace(value.String(), ".", "", 1), "-0"))
}

func whole(value metering.Decimal) bool { return value.Equal(billing.Units(value, 0)) }

var errFraction = metering.Invalid("entry.value", "must be whole")

var currencyPattern = regexp.MustCompile(`^[A-Z]{3}$`)

func (e Entry) checkInvoiceItem() error {
	switch {
	case e.Customer == "" || e.SubscriptionID == "":
		return metering.Invalid("entry.subscription_id", "and customer must be set")
	case e.Identifier == "" || len(e.Identifier) > maxIdentifierBytes:
		return metering.Invalid("entry.identifier", "must have 1 to %d bytes", maxIdentifierBytes)
	case !currencyPattern.MatchString(e.Currency):
		return metering.Invalid("entry.currency", "must be a code of ISO 4217")
	case e.Description == "" || len(e.Description) > maxDescriptionBytes:
		return metering.Invalid("entry.description", "must have 1 to %d bytes", maxDescriptionBytes)
	case !e.Period.Start.Before(e.Period.End):
		return metering.Invalid("entry.period", "must end after it begins")
	case !whole(e.Value):
		return errFraction
	case e.Value.IsZero():
		return metering.Invalid("entry.value", "must not be 0: there is nothing to charge")
	}
	if _, err := strconv.ParseInt(e.Value.String(), 10, 64); err != nil {
		return metering.Errorf(metering.CodeProviderRefuse, "Stripe's invoice items take amounts of at most 2^63-1")
	}
	return nil
}
