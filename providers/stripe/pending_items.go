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

// lineKey is the metadata of an invoice item that says which line of ours it is.
const lineKey = "odometer_line"

// PendingLine is a line of a subscription's next invoice, or of one of ours: an
// invoice item that waits for it, or is on its draft, and is set to another amount
// again and again. It is made once.
type PendingLine struct {
	ItemID         string // "": it is looked for, and made where there is none
	Key            string // that it is looked for by
	Identifier     string // of the report that sets it
	Customer       string
	SubscriptionID string
	Own            *OwnInvoice      // that it is on instead of the subscription's next one
	Currency       string           // ISO 4217
	Amount         metering.Decimal // in Stripe's smallest unit of the currency; never below 0
	Description    string           // the customer reads it on the invoice
	Period         metering.Range   // what it is charged for
	Product        string
	TaxBehavior    string    // "": the account's default
	TaxCode        string    // "": the product's
	Since          time.Time // it was made then at the earliest, by our clock
	About          *About
	IdempotencyKey string
}

// SetLine sets a line to an amount. The item is the line's, also beside an error
// where it was found. What was not answered may be repeated: it sets the same, or
// finds what it has made.
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

// findLine finds the item of a line among those that the customer has, pending
// or invoiced; "": there is none. Stripe lists at once what it took.
func (c *Client) findLine(ctx context.Context, key string, l PendingLine) (string, error) {
	items, err := list[invoiceItem](ctx, c, key, "/v1/invoiceitems", query("customer", l.Customer, "created[gte]", seconds(l.Since.Add(-clocks))))
	if err != nil {
		return "", fmt.Errorf("list invoice items: %w", err)
	}
	i := slices.IndexFunc(items, func(i invoiceItem) bool { return i.Metadata[lineKey] == l.Key })
	if i < 0 {
		return "", nil
	}
	return items[i].ID, nil
}

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
	ctx, x := open(ctx)
	params.Context = ctx
	made, err := invoiceitem.Client{B: c.backend, Key: key}.New(params)
	answer, err := judge(x, err)
	if err != nil {
		return "", answer, err
	}
	return made.ID, answer, nil
}

func (c *Client) updateLine(ctx context.Context, key string, l PendingLine) (Answer, error) {
	ctx, x := open(ctx)
	_, err := invoiceitem.Client{B: c.backend, Key: key}.Update(l.ItemID, l.params(ctx, l.IdempotencyKey+".set"))
	return judge(x, err)
}

// params are what making and setting a line have in common.
func (l PendingLine) params(ctx context.Context, idempotencyKey string) *stripego.InvoiceItemParams {
	amount, _ := strconv.ParseInt(l.Amount.String(), 10, 64) // checked
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
	case !whole(l.Amount) || l.Amount.IsNegative():
		return metering.Invalid("line.amount", "must be a whole number of 0 or more")
	}
	if _, err := strconv.ParseInt(l.Amount.String(), 10, 64); err != nil {
		return metering.Errorf(metering.CodeProviderRefuse, "the amount exceeds 2^63-1, the maximum of a Stripe invoice item")
	}
	return nil
}

// LineState is where a line stands at Stripe.
type LineState struct {
	ItemID     string // "": there is none
	Identifier string // of the report that set it last
	Final      bool   // it is on an invoice that changes no more
}

// Line reads where a line stands.
func (c *Client) Line(ctx context.Context, key string, l PendingLine) (s LineState, err error) {
	if s.ItemID = l.ItemID; s.ItemID == "" {
		if s.ItemID, err = c.findLine(ctx, key, l); err != nil || s.ItemID == "" {
			return s, err
		}
	}
	var item invoiceItem
	err = c.read(ctx, key, stripego.FormatURLPath("/v1/invoiceitems/%s", s.ItemID), nil, &item)
	if AnswerOf(err).Status == http.StatusNotFound {
		return LineState{}, nil // somebody has deleted it
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
