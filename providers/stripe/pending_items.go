package stripe

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	stripego "github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/invoiceitem"

	"github.com/odometer-metering/odometer/metering"
)

// lineKey is the metadata field of an invoice item that holds the key of our line.
const lineKey = "odometer_line"

// PendingLine is a line of a subscription's next invoice or of a standalone invoice. It is an invoice item,
// either pending or on the draft of that invoice. It is created once and its amount is updated repeatedly.
type PendingLine struct {
	ItemID         string // "": found by Key, or created
	Key            string // identifies the line
	Identifier     string // id of the report that sets the line
	Customer       string
	SubscriptionID string
	Own            *OwnInvoice      // standalone invoice of the line; nil: the subscription's next invoice
	Currency       string           // ISO 4217
	Amount         metering.Decimal // in the currency's smallest unit at Stripe; never negative
	Description    string           // text on the customer's invoice
	Period         metering.Range   // period of the charged usage
	Product        string
	TaxBehavior    string    // "": the account's default
	TaxCode        string    // "": the product's code
	Since          time.Time // earliest creation time of the line, by our clock
	About          *About
	IdempotencyKey string
}

// SetLine creates the line's invoice item at Stripe, or updates its amount, and returns the id of the item. If the item
// already existed, SetLine returns the id even with an error. A call without a response can be repeated: the repeat
// finds the created item, or sets the same amount.
func (c *Client) SetLine(ctx context.Context, key string, l PendingLine) (item string, answer Answer, err error) {
	if err := l.check(); err != nil {
		return "", Answer{}, err
	}
	if l.ItemID == "" {
		if l.ItemID, err = c.findLine(ctx, key, l); err != nil {
			return "", AnswerOf(err), err
		}
	}
	if l.ItemID == "" {
		return c.makeLine(ctx, key, l)
	}
	answer, err = c.updateLine(ctx, key, l)
	return l.ItemID, answer, err
}

// findLine returns the id of a line's invoice item, pending or invoiced; "" if there is none. Stripe lists
// an accepted item immediately.
func (c *Client) findLine(ctx context.Context, key string, l PendingLine) (string, error) {
	items, err := list[invoiceItem](ctx, c, key, "/v1/invoiceitems", query("customer", l.Customer, "created[gte]", seconds(l.Since.Add(-maxClockSkew))))
	if err != nil {
		return "", fmt.Errorf("list invoice items: %w", err)
	}
	i := slices.IndexFunc(items, func(i invoiceItem) bool { return i.Metadata[lineKey] == l.Key })
	if i < 0 {
		return "", nil
	}
	return items[i].ID, nil
}

// makeLine creates the line's invoice item. For a line of a standalone invoice, it first creates the draft of the
// invoice if the draft does not exist.
func (c *Client) makeLine(ctx context.Context, key string, l PendingLine) (string, Answer, error) {
	params := l.params(ctx, l.IdempotencyKey)
	params.Customer, params.Currency = &l.Customer, new(strings.ToLower(l.Currency))
	if l.Own == nil {
		params.Subscription = &l.SubscriptionID
	} else {
		draft, answer, err := c.draftOwn(ctx, key, *l.Own)
		if err != nil {
			return "", answer, err
		}
		params.Invoice = &draft
	}
	ctx, x := withExchange(ctx)
	params.Context = ctx
	made, err := invoiceitem.Client{B: c.backend, Key: key}.New(params)
	answer, err := judge(x, err)
	if err != nil {
		return "", answer, err
	}
	return made.ID, answer, nil
}

// updateLine makes the call that sets the amount of an existing invoice item.
func (c *Client) updateLine(ctx context.Context, key string, l PendingLine) (Answer, error) {
	ctx, x := withExchange(ctx)
	_, err := invoiceitem.Client{B: c.backend, Key: key}.Update(l.ItemID, l.params(ctx, l.IdempotencyKey+".set"))
	return judge(x, err)
}

// params returns the parameters shared by the calls that create and update a line.
func (l PendingLine) params(ctx context.Context, idempotencyKey string) *stripego.InvoiceItemParams {
	amount, _ := strconv.ParseInt(l.Amount.String(), 10, 64) // valid, see check
	metadata := l.About.metadata(l.Identifier, l.SubscriptionID, l.Amount)
	metadata[lineKey] = l.Key
	params := &stripego.InvoiceItemParams{
		Params:      stripego.Params{Context: ctx, IdempotencyKey: &idempotencyKey},
		Description: &l.Description,
		Period:      &stripego.InvoiceItemPeriodParams{Start: new(l.Period.Start.Unix()), End: new(l.Period.End.Unix())},
		PriceData:   &stripego.InvoiceItemPriceDataParams{Currency: new(strings.ToLower(l.Currency)), Product: &l.Product, UnitAmount: &amount},
		Metadata:    metadata,
	}
	if l.TaxBehavior != "" {
		params.PriceData.TaxBehavior = &l.TaxBehavior
	}
	if l.TaxCode != "" {
		params.TaxCode = &l.TaxCode
	}
	return params
}

// check validates the line before a call.
func (l PendingLine) check() error {
	switch {
	case l.IdempotencyKey == "" || l.Identifier == "" || l.Key == "":
		return metering.Invalid("line.key", "identifier and idempotency key must be set")
	case l.Customer == "" || l.SubscriptionID == "" || l.Product == "":
		return metering.Invalid("line.subscription_id", "customer and product must be set")
	case !currencyPattern.MatchString(l.Currency):
		return metering.Invalid("line.currency", "must be an ISO 4217 currency code")
	case l.Description == "" || utf8.RuneCountInString(l.Description) > maxDescription:
		return metering.Invalid("line.description", "must have 1 to %d characters", maxDescription)
	case !l.Period.Start.Before(l.Period.End):
		return metering.Invalid("line.period", "must end after its start")
	case !isWhole(l.Amount) || l.Amount.IsNegative():
		return metering.Invalid("line.amount", "must be a whole number of 0 or more")
	}
	if _, err := strconv.ParseInt(l.Amount.String(), 10, 64); err != nil {
		return metering.Errorf(metering.CodeProviderRefuse, "the amount exceeds 2^63-1, the maximum of a Stripe invoice item")
	}
	return nil
}

// LineState is the state of a line at Stripe.
type LineState struct {
	ItemID     string // "": no invoice item
	Identifier string // id of the last report that set the line
	Final      bool   // the line's invoice is no longer a draft
}

// Line reads the state of a line from Stripe.
func (c *Client) Line(ctx context.Context, key string, l PendingLine) (s LineState, err error) {
	if s.ItemID = l.ItemID; s.ItemID == "" {
		if s.ItemID, err = c.findLine(ctx, key, l); err != nil || s.ItemID == "" {
			return s, err
		}
	}
	var item invoiceItem
	err = c.read(ctx, key, stripego.FormatURLPath("/v1/invoiceitems/%s", s.ItemID), nil, &item)
	if AnswerOf(err).Status == http.StatusNotFound {
		return LineState{}, nil // the invoice item was deleted
	}
	if err != nil {
		return s, fmt.Errorf("get invoice item: %w", err)
	}
	s.Identifier = item.Metadata[reportKey]
	if item.Invoice == "" {
		return s, nil
	}
	var in invoice
	if err := c.read(ctx, key, stripego.FormatURLPath("/v1/invoices/%s", string(item.Invoice)), nil, &in); err != nil {
		return s, fmt.Errorf("get invoice: %w", err)
	}
	s.Final = in.Status != "draft"
	return s, nil
}
