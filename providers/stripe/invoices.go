package stripe

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	stripego "github.com/stripe/stripe-go/v76"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Invoice is a draft or final invoice of Stripe.
type Invoice struct {
	ID             string
	CustomerID     string
	SubscriptionID string // "": no subscription; billing.OwnInvoiceOf: a standalone invoice of Odometer
	Status         string // draft, open, paid, uncollectible or void
	Void           bool   // no payment is due, because the invoice was voided or credited in full
	BillingReason  string // subscription_cycle: created at the end of a period
	Currency       string // ISO 4217
	Total          metering.Decimal
	PeriodStart    time.Time // start of the period that ended
	PeriodEnd      time.Time
	CreatedAt      time.Time
	FinalizedAt    time.Time // zero for a draft
	Lines          []InvoiceLine
}

// InvoiceLine is one line of an invoice, before tax and discounts.
type InvoiceLine struct {
	ID          string
	ItemID      string // item of the subscription; "": no item created the line
	Identifier  string // of the last Report that set the line's invoice item; "": no report
	PriceID     string
	Quantity    metering.Decimal
	Amount      metering.Decimal
	PeriodStart time.Time
	PeriodEnd   time.Time
	Proration   bool
}

// Invoice returns an invoice with all of its lines.
func (c *Client) Invoice(ctx context.Context, key, id string) (Invoice, error) {
	in, err := c.readInvoice(ctx, key, id)
	if err != nil {
		return Invoice{}, err
	}
	return in.invoice(), nil
}

// readInvoice returns an invoice as the API encodes it, with all of its lines.
func (c *Client) readInvoice(ctx context.Context, key, id string) (in invoice, err error) {
	if err := c.read(ctx, key, stripego.FormatURLPath("/v1/invoices/%s", id), nil, &in); err != nil {
		return in, fmt.Errorf("get invoice: %w", err)
	}
	if in.Lines.HasMore {
		in.Lines.Data, err = list[invoiceLine](ctx, c, key, stripego.FormatURLPath("/v1/invoices/%s/lines", id), query())
		if err != nil {
			return in, fmt.Errorf("list invoice lines: %w", err)
		}
	}
	return in, nil
}

// invoice is an invoice in the API. Since version 2025-03-31, parent holds the origin of an invoice or a
// line: https://docs.stripe.com/changelog/basil/2025-03-31/adds-new-parent-field-to-invoicing-objects
type invoice struct {
	ID            string            `json:"id"`
	Customer      reference         `json:"customer"`
	Status        string            `json:"status"`
	BillingReason string            `json:"billing_reason"`
	Currency      string            `json:"currency"`
	Total         metering.Decimal  `json:"total"`
	CreditedOpen  metering.Decimal  `json:"pre_payment_credit_notes_amount"`
	CreditedPaid  metering.Decimal  `json:"post_payment_credit_notes_amount"`
	PeriodStart   int64             `json:"period_start"`
	PeriodEnd     int64             `json:"period_end"`
	Created       int64             `json:"created"`
	Metadata      map[string]string `json:"metadata"`
	Subscription  reference         `json:"subscription"`
	Parent        struct {
		Details struct {
			Subscription reference `json:"subscription"`
		} `json:"subscription_details"`
	} `json:"parent"`
	Transitions struct {
		FinalizedAt int64 `json:"finalized_at"`
	} `json:"status_transitions"`
	Lines struct {
		Data    []invoiceLine `json:"data"`
		HasMore bool          `json:"has_more"`
	} `json:"lines"`
}

type invoiceLine struct {
	ID        string            `json:"id"`
	Amount    metering.Decimal  `json:"amount"`
	Quantity  *metering.Decimal `json:"quantity"`
	Proration bool              `json:"proration"`
	Metadata  map[string]string `json:"metadata"`
	Item      reference         `json:"subscription_item"`
	Price     price             `json:"price"`
	Pricing   struct {
		Details struct {
			Price reference `json:"price"`
		} `json:"price_details"`
	} `json:"pricing"`
	Parent struct {
		Details struct {
			Item      reference `json:"subscription_item"`
			Proration bool      `json:"proration"`
		} `json:"subscription_item_details"`
	} `json:"parent"`
	Period struct {
		Start int64 `json:"start"`
		End   int64 `json:"end"`
	} `json:"period"`
}

func (l invoiceLine) id() string { return l.ID }

func (in invoice) id() string { return in.ID }

// subscription returns the id of the invoice's subscription, or that of billing.OwnInvoiceOf for a standalone
// invoice that Odometer has created for a period.
func (in invoice) subscription() string {
	if _, ours := in.standalonePeriod(); ours {
		schedule, _ := strconv.Atoi(in.Metadata[ownScheduleKey]) // 0 on error: the field is missing
		return billing.OwnInvoiceOf(schedule)
	}
	return in.subscriptionAtStripe()
}

// subscriptionAtStripe returns the id of the invoice's subscription; "" for a standalone invoice.
func (in invoice) subscriptionAtStripe() string {
	return firstNonEmpty(in.Subscription, in.Parent.Details.Subscription)
}

// invoice converts the invoice of the API. A standalone invoice gets the period that it bills from its metadata.
func (in invoice) invoice() Invoice {
	currency := strings.ToUpper(in.Currency)
	out := Invoice{
		ID: in.ID, CustomerID: string(in.Customer), Status: in.Status, Void: in.void(), BillingReason: in.BillingReason,
		SubscriptionID: in.subscription(),
		Currency:       currency, Total: Amount(in.Total, currency),
		PeriodStart: instant(in.PeriodStart), PeriodEnd: instant(in.PeriodEnd),
		CreatedAt: instant(in.Created), FinalizedAt: instant(in.Transitions.FinalizedAt),
	}
	if period, ours := in.standalonePeriod(); ours {
		out.PeriodStart, out.PeriodEnd = period.Start, period.End
	}
	for _, l := range in.Lines.Data {
		line := InvoiceLine{
			ID: l.ID, ItemID: firstNonEmpty(l.Item, l.Parent.Details.Item), PriceID: firstNonEmpty(reference(l.Price.ID), l.Pricing.Details.Price),
			Identifier: l.Metadata[reportKey], Amount: Amount(l.Amount, currency),
			PeriodStart: instant(l.Period.Start), PeriodEnd: instant(l.Period.End),
			Proration: l.Proration || l.Parent.Details.Proration,
		}
		if l.Quantity != nil {
			line.Quantity = *l.Quantity
		}
		out.Lines = append(out.Lines, line)
	}
	return out
}

// void reports whether no payment is due. Stripe does not reduce the total of an invoice by its credit
// notes.
func (in invoice) void() bool {
	credited := in.CreditedOpen.Add(in.CreditedPaid)
	return in.Status == "void" || !credited.IsZero() && credited.Cmp(in.Total) >= 0
}

// firstNonEmpty returns the first reference that is not empty.
func firstNonEmpty(a, b reference) string {
	if a != "" {
		return string(a)
	}
	return string(b)
}

// units maps currencies to their smallest unit at Stripe, if it is not a hundredth of the currency. Stripe's list
// differs from ISO 4217: https://docs.stripe.com/currencies#minor-units
var units = map[string]unit{
	"BIF": one, "CLP": one, "DJF": one, "GNF": one, "JPY": one, "KMF": one, "KRW": one, "MGA": one,
	"PYG": one, "RWF": one, "VND": one, "VUV": one, "XAF": one, "XOF": one, "XPF": one,
	"BHD": thousandth, "JOD": thousandth, "KWD": thousandth, "OMR": thousandth, "TND": thousandth,
}

// unit is the value of a currency's smallest unit, and the number of smallest units in one unit of the
// currency.
type unit struct{ value, count metering.Decimal }

var (
	one        = unit{metering.Whole(1), metering.Whole(1)}
	hundredth  = unit{metering.MustDecimal("0.01"), metering.Whole(100)}
	thousandth = unit{metering.MustDecimal("0.001"), metering.Whole(1000)}
)

// unitOf returns the smallest unit of a currency.
func unitOf(currency string) unit {
	if u, ok := units[currency]; ok {
		return u
	}
	return hundredth
}

// Amount converts an amount from smallest units to units of the currency.
func Amount(smallest metering.Decimal, currency string) metering.Decimal {
	return smallest.Mul(unitOf(currency).value)
}

// Smallest converts an amount of the currency to a whole number of smallest units, rounded half to even.
func Smallest(amount metering.Decimal, currency string) metering.Decimal {
	return amount.Mul(unitOf(currency).count).Round(0)
}
